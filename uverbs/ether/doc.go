// Package ether sends and receives Ethernet frames with queue pairs of type uverbs.RawPacket, and
// directs frames to queues: flows, work queues, and receive-side scaling, as in ibv_create_flow(3),
// ibv_create_wq(3) and ibv_create_qp_ex(3). It is for programs that bypass the kernel's network
// stack. mlx5 devices on Ethernet support it, rxe does not. It requires CAP_NET_RAW.
//
// A frame is sent like a message, with PostSend or a SendBatch of a raw packet QP. A QP receives the
// frames that its flows select:
//
//	qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq, MaxSendWR: 64, MaxRecvWR: 64})
//	...
//	err = qp.Ready()
//	...
//	flow, err := ether.CreateFlow(qp, ether.FlowAttr{Specs: []ether.FlowSpec{ether.FlowEth{
//		Val:  ether.EthFilter{DstMAC: mac},
//		Mask: ether.EthFilter{DstMAC: [6]byte{255, 255, 255, 255, 255, 255}}}}})
//
// A device may also divide the data of a TCP stream into frames: uverbs.OpTSO.
//
// To distribute received frames over several goroutines, create WQs, a table of them
// ([CreateRWQIndTable]) and a QP that selects one by a hash ([CreateRSSQP]).
package ether
