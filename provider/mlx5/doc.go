// Package mlx5 is the provider for ConnectX adapters, from ConnectX-4 on, and
// BlueField: the kernel driver mlx5_ib. Import it for its side effect:
//
//	import _ "github.com/goverbs/goverbs/provider/mlx5"
//
// # Queues
//
// Queues lie in memory of the process, which the kernel pins and the device
// reads and writes. A send queue is a ring of blocks of 64 bytes; a request
// takes one or more of them, in segments of 16 bytes: control, address, data. A
// receive queue is a ring of lists of data segments; a shared one is a linked
// list. Doorbell records, 8 bytes of memory for each queue pair, say how much has
// been posted. Fields are big-endian.
//
// # Doorbell
//
// Sends are also told to a register of the device. A register page has two that
// take a whole request, by a burst of stores that the CPU combines (BlueFlame),
// so that the device need not fetch it. The first queue pairs have a register
// each. Those after them share the others, with a lock around the burst. Where
// pages cannot be mapped write-combining, all queue pairs use one register, and
// 8 bytes of the request.
//
// # Completions
//
// Entries of a completion queue change their owner bit with each lap of the
// ring. They name the queue pair by an index that this package chose, and the
// request by its place in the queue.
//
// # Short messages
//
// On RC and UC a message of up to 32 bytes, or 64 with completions of 128, comes
// in the completion, and so does what a short READ or an atomic brings where all
// requests are signaled (SignalAll). Poll puts it where the SGEs say, before it
// tells of it: nothing changes but that the memory is written by the CPU. Where
// the CPU cannot, the completion has the status [uverbs.WCLocProtErr]: the MR was
// closed meanwhile, or is of memory that the process does not have, a dma-buf or an
// imported MR. So register such memory before the queue pairs are made: those made
// while a Context has some leave all to the device. Or set MLX5_SCATTER_TO_CQE=0.
//
// # Raw Ethernet
//
// A raw packet QP has its send ring on pages of its own, because to the device
// the two rings are queues apart. A request has an Ethernet segment behind the
// control segment: which checksums the device makes, and the first 18 bytes of
// the frame where it wants them there, which are copied from what the SGEs name if
// they are not given inline. What comes next is inline data, then
// SGEs. A work queue is a receive ring alone. Completions of frames name the flow
// in place of the QP, so they must name the queue by index: devices with
// completions of version 0 have no raw packets here.
//
// # Environment
//
// As the C library has them:
//
//	MLX5_SHUT_UP_BF=1            no BlueFlame
//	MLX5_POST_SEND_PREFER_BF=0   BlueFlame for inline data alone
//	MLX5_TOTAL_UUARS             registers for queue pairs: 16
//	MLX5_NUM_LOW_LAT_UUARS       how many of them are not shared: 4
//	MLX5_CQE_SIZE                bytes of a completion: 64 or 128
//	MLX5_SCATTER_TO_CQE=0        no messages in completions
//	MLX_QP_ALLOC_TYPE            pages that rings lie in: ANON, HUGE, or
//	                             PREFER_HUGE, which does without if need be.
//	                             Each ring takes whole huge pages.
//	MLX_CQ_ALLOC_TYPE            likewise, of CQs, SRQs and work queues
//	MLX_SRQ_ALLOC_TYPE
//	MLX_RWQ_ALLOC_TYPE
//
// MLX5_SINGLE_THREADED has no effect: it would take the locks from queues whose
// users rely on them. Set SingleGoroutine in the queue's configuration.
package mlx5
