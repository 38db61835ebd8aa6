// Package siw is the provider for soft-iWARP, the kernel's RDMA device over TCP
// (CONFIG_RDMA_SIW), which Debian's kernels do not have. Import it for its side effect:
//
//	import _ "github.com/goverbs/goverbs/provider/siw"
//
// # What iWARP lacks
//
// QPs are of type RC and are connected by rdma_cm only, with packages cm and rsocket.
// [uverbs.QP.Endpoint] returns [uverbs.ErrNotSupported]. There is no immediate data, so
// package rdma refuses connections, and package rsocket sends its messages as librdmacm
// does there. There are no atomics, memory windows, datagrams or resizable queues, and a
// QP serves one connection: it cannot be moved to RESET. READs have one SGE and no fence,
// and SEND_INV has no inline data. Each of these is refused with a typed error, before
// the kernel sees it.
//
// A SEND that finds no receive ends the connection. A WRITE completes when TCP has its
// bytes: a peer that refuses it ends the connection later.
//
// # Rings
//
// Each queue is a ring of elements of the same size in memory that the kernel allocates
// and this package maps. There are no indices: each element has a flag that says that
// the other side may read it, and the reader clears the flag to release the element. The
// kernel copies a request before it executes it, so requests occupy the send queue only
// until then, and MaxSendWR does not bound the completions that are to come.
//
// The number of elements is a power of two that the kernel returns, and positions are
// masked, so that no content of a ring can cause an access outside of it. Empty SGEs are
// left out: a send with one before others crashes Linux 6.12.
//
// # Doorbell and events
//
// As with rxe, a post of sends issues the command POST_SEND without work requests. The
// kernel then sends in the system call. Arming a CQ is a store to memory behind its ring.
// The kernel treats no receive as solicited, so Arm requests events for all completions.
//
// # Requests in ERR
//
// The kernel completes the requests in the rings when a QP moves to ERR, on its own if
// the connection breaks, and reads the rings no more. From the move to ERR by
// [uverbs.QP.Modify] on, which package cm does at the end of a connection, the CQs
// complete what was posted since with WCWRFlushErr.
//
// # Sources
//
// rdma/siw-abi.h for the layouts; drivers/infiniband/sw/siw in Linux for the behaviour
// of the kernel, mainly siw_verbs.c, siw_qp.c, siw_qp_tx.c and siw_cq.c.
package siw
