// Package rxe is the provider for soft-RoCE, the kernel's RDMA device over any
// Ethernet interface (CONFIG_RDMA_RXE). Import it for its side effect:
//
//	import _ "github.com/goverbs/goverbs/provider/rxe"
//
// # Rings
//
// Each queue is a ring in memory that the kernel allocates and this package maps: a
// header with two indices, followed by elements of the same size, a power of two.
// The writer of the ring owns the producer index, the reader owns the consumer
// index. Both are less than the number of elements. The ring is empty if they are
// equal. One element is never used, so that a full ring differs from an empty one.
// Send and receive queue are written by this package and read by the kernel. The
// completion queue is written by the kernel. Indices are accessed with sync/atomic:
// storing our index publishes the elements written before, and the other side's
// index is loaded before the elements that it covers. Each call publishes once.
//
// The kernel keeps its own copy of sizes and of its indices, so a program that
// corrupts a ring affects only itself. In the other direction, this package checks
// the header once, when it maps the ring, and masks each index, so that no content
// of a ring can cause an access outside of it.
//
// # Doorbell
//
// The kernel does not poll the send queue. After publishing, a post issues the
// command POST_SEND without work requests, which makes the kernel read the queue.
// The other queues need no command.
//
// # What the kernel does differently
//
// A request with an invalid LKey completes with WCLocQPOpErr on Linux 6.1 and with
// WCWRFlushErr on 6.12 and 7.2. WCLocProtErr would be correct. A receive that is
// posted in state ERR is not flushed at once, but when the kernel next processes
// the QP's receives. If sends are waiting when a QP moves to RESET, 6.12 and 7.2
// lose later sends. This package moves the QP twice, which avoids it.
//
// As the IBA says, a UD message longer than the port's MTU is dropped and completes
// with success. This package refuses it. A QKey with bit 31 set is sent as it is. A
// datagram that is too long for its receive is dropped, and on 6.1 moves the QP to
// ERR. The IP stack delivers packets of a multicast group only if the host is a
// member of the group on the interface: attaching the QP is not enough. Resizing an
// SRQ to a size that is too small for the posted receives crashes Linux 6.1.176.
// This package refuses it.
//
// # Kernel requirements
//
// Linux 6.0 or newer. Open returns [uverbs.ErrNotSupported] on an older kernel,
// unless its driver reports FLUSH or ATOMIC WRITE, which were added in 6.2. rxe of
// older kernels repeats a request that finds no receive at once and, with RNRRetryCount
// 7, without limit. If the receiver is on the same machine, the sender's doorbell
// then never returns, and the process cannot be killed.
//
// The driver's uverbs ABI versions are 1 and 2. They differ on 32-bit machines
// only.
//
// # Sources
//
// rdma/rdma_user_rxe.h for the layouts; drivers/infiniband/sw/rxe in Linux for the
// behaviour of the kernel, mainly rxe_queue.h, rxe_req.c, rxe_comp.c and
// rxe_resp.c.
package rxe
