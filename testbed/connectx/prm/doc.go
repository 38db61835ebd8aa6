// Package prm is the programmer's reference of a ConnectX as tables: the
// layouts of its commands, contexts, work queue elements and completions.
//
// Every field is named once, with its place and width. All layouts are
// big-endian; bit 0 is the most significant bit of the first byte, as in the
// reference manual and in the kernel's mlx5_ifc.h, whose names the fields bear.
//
//	state := prm.QPCState.Get(context)
//	prm.CreateCQOutCQN.Set(out, uint64(cq.Number))
//	context := prm.CreateQPInQPC.Bytes(in) // a layout within a layout
package prm
