// Package mlx5 is the provider for ConnectX adapters, from ConnectX-4 on, and
// BlueField: the kernel driver mlx5_ib. Import it for its side effect:
//
//	import _ "github.com/goverbs/goverbs/provider/mlx5"
//
// Programs then use package uverbs. The functions here are for what only these adapters have, such as a choice of the
// port:
//
//	attr, err := mlx5.QueryDevice(dev) // dev is an open uverbs.Context
//	...
//	if attr.LAGPorts > 0 {
//		err = mlx5.ModifyLAGPort(qp, 1+i%attr.LAGPorts) // the i-th QP
//	}
//
// # Queues
//
// Queues are in the process's memory, which the kernel pins and the device reads and writes. A
// send queue is a ring of blocks of 64 bytes. A request occupies one or more blocks and consists
// of segments of 16 bytes: control, address and data. A receive queue is a ring of lists of data
// segments. A shared receive queue is a linked list whose slots are returned to the device in
// ascending runs. A doorbell record, 8 bytes of memory for each queue pair, holds the number of
// requests posted. All fields are big-endian.
//
// # Doorbell
//
// Each post of sends also writes to a register of the device. A register page has two registers
// that accept a whole request as a burst of stores that the CPU combines (BlueFlame), so that the
// device need not fetch the request from memory. The first queue pairs have a register each.
// Later ones share the remaining registers, with a lock around the burst. If pages cannot be
// mapped write-combining, all queue pairs use one register and write the first 8 bytes of the
// request to it.
//
// # Completions
//
// The owner bit of a completion queue entry changes with each lap of the ring. An entry names the
// queue pair by an index that this package chose, and the request by its position in the queue.
//
// A receive of an SRQ may refer to memory registered with OnDemand and meet an absent page. Poll
// hides the resulting completion and posts the receive again in another slot. To have slots in
// reserve, the ring has twice as many slots as requested, if the device supports that many.
//
// # Short messages
//
// On RC and UC, a message of up to 32 bytes (64 bytes if CQEs have 128) arrives in the completion
// itself. The result of a short READ or an atomic also does if all requests are signaled
// (SignalAll), or with ScatterAllowed of [QPOptions]. Poll copies the data to the memory that the
// SGEs name before it returns the completion. The only difference is that the CPU writes the
// memory instead of the device. If the CPU cannot write it, the completion has the status
// [uverbs.WCLocProtErr]. This happens if the MR was closed meanwhile, or if it covers memory that
// the process does not have mapped: a dma-buf or an imported MR. It also happens for memory whose
// key DevX created, of which the library knows neither place nor life. Register such memory before
// creating queue pairs: a queue pair created while the Context has such an MR or key leaves all
// messages to the device. ScatterDisabled of [QPOptions] and MLX5_SCATTER_TO_CQE=0 do that as well.
//
// # Device memory
//
// uverbs.Context.AllocDM allocates memory of the adapter (MEMIC in the kernel), in multiples of
// 64 bytes, aligned to up to 4096. It is mapped write-combining. ReadAt and WriteAt access 4 bytes
// at a time, as the adapter requires; loads are slow. For such an MR, as for a dma-buf, no message
// arrives in a completion.
//
// [MapDMOp] maps it once more, for an atomic operation that the device executes when the process
// accesses the memory there.
//
// # Raw Ethernet
//
// A raw packet QP has its send ring on separate pages, because the device treats the two rings as
// separate queues. A request has an Ethernet segment after the control segment. It selects the
// checksums that the device computes, and contains the first 18 bytes of the frame if the device
// requires them there. If these bytes are not given inline, they are copied from the memory that
// the SGEs name. Inline data follows, then SGEs. A work queue is a receive ring only. Completions
// of frames contain a flow tag in place of the QP number, so they must name the queue by index.
// Raw packet QPs are therefore not supported on devices with CQEs of version 0.
//
// # Environment
//
// The variables are those of the C library:
//
//	MLX5_SHUT_UP_BF=1            no BlueFlame
//	MLX5_POST_SEND_PREFER_BF=0   BlueFlame only for requests with inline data
//	MLX5_TOTAL_UUARS             registers for queue pairs: 16
//	MLX5_NUM_LOW_LAT_UUARS       how many of them are not shared: 4
//	MLX5_CQE_SIZE                bytes of a completion: 64 or 128
//	MLX5_SCATTER_TO_CQE=0        no messages in completions, unless QPOptions allow it
//	MLX_QP_ALLOC_TYPE            pages for the rings of QPs: ANON, HUGE, or
//	                             PREFER_HUGE, which falls back to small pages.
//	                             Each ring occupies whole huge pages.
//	MLX_CQ_ALLOC_TYPE            likewise, for CQs, SRQs and work queues
//	MLX_SRQ_ALLOC_TYPE
//	MLX_RWQ_ALLOC_TYPE
//
// MLX5_SINGLE_THREADED has no effect: it would remove the locks from queues whose users rely on
// them. Set SingleGoroutine in the queue's configuration instead.
package mlx5
