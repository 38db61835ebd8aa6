// Package prm has the tables of a ConnectX programmer's reference manual: the
// layouts of its commands, contexts, work queue elements and completions.
//
// Every field is defined once, with its offset and width. All layouts are
// big-endian; bit 0 is the most significant bit of the first byte, as in the
// reference manual and in the kernel's mlx5_ifc.h, whose names the fields have.
//
//	state := prm.QPCState.Get(context)
//	prm.CreateCQOutCQN.Set(out, uint64(cq.Number))
//	context := prm.CreateQPInQPC.Bytes(in) // a layout within a layout
package prm
