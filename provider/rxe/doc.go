// Package rxe is the provider for soft-RoCE, the kernel's RDMA device over any
// Ethernet interface (CONFIG_RDMA_RXE). Import it for its side effect:
//
//	import _ "github.com/goverbs/goverbs/provider/rxe"
//
// # Rings
//
// Each queue is a ring in memory that the kernel made and this package maps: a
// header with two indices, then elements of one size, a power of two. The
// writer of the ring owns the producer index and the reader the consumer
// index; both stay below the number of elements, equal means empty, and one
// element is never used, so that full differs from empty. Send and receive
// queue are written here and read by the kernel, the completion queue the
// other way round. Indices are accessed by sync/atomic: the store of ours
// publishes the elements written before it, the load of the other side's
// comes before the elements it covers. Each call publishes once.
//
// The kernel keeps its own copy of sizes and of the indices it owns, so a
// program that corrupts a ring hurts itself alone. In the other direction the
// header is checked once, when it is mapped, and each index is masked, so that
// no content of a ring can lead outside of it.
//
// # Doorbell
//
// The kernel does not watch the send queue. After publishing, a post issues
// the command POST_SEND with no work request in it, which makes the kernel
// look. The other queues need no command.
//
// # What the kernel does differently
//
// A request with a bad LKey completes as WCLocQPOpErr under Linux 6.1 and as
// WCWRFlushErr under 6.12 and 7.2, where WCLocProtErr is meant. A receive that
// is posted in the state ERR is flushed when the kernel next has to do with
// the QP's receives, not at once. After a move to RESET with sends waiting,
// 6.12 and 7.2 lose later sends; this package makes the move twice, which
// mends it.
//
// A UD message over the port's MTU is dropped and completes with success, as the
// IBA says: this package refuses it. A QKey with bit 31 set is sent as it is. A
// datagram that is too long for its receive is dropped, and under 6.1 moves the
// QP to ERR. The IP stack hands on the packets of a multicast group only where
// the host is a member of it on the interface: attaching the QP is not enough. A
// size of an SRQ that is too small for what is posted crashes Linux 6.1.176:
// this package refuses it.
//
// # ABI requirements
//
// The driver's uverbs ABI versions 1 and 2, as in Linux 5.0 and later. They
// differ on 32-bit machines only.
//
// # Sources
//
// rdma/rdma_user_rxe.h for the layouts; drivers/infiniband/sw/rxe in Linux,
// mainly rxe_queue.h, rxe_req.c, rxe_comp.c and rxe_resp.c, for what the kernel
// makes of them.
package rxe
