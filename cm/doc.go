// Package cm connects queue pairs by IP address: librdmacm for Go. It uses the kernel's
// connection manager through /dev/infiniband/rdma_cm.
//
// # Three levels
//
// [Dial] and [Listen] establish connections in one call, as package net does.
// [JoinMulticast] joins a group. They are built on the second level: the values that
// they return have the methods that most programs need, and their ID method returns the
// SyncID for all others.
//
// A [SyncID] is an rdma_cm_id without an event channel: its calls take a context and
// wait for their result. [GetAddrInfo] and [CreateEP] belong to this level.
//
// An [ID] on an [EventChannel] has all of rdma_cma.h: calls return at once, and results
// arrive as events. One channel serves any number of ids.
//
// At all levels, the calls of rdma_verbs.h post requests and wait for completions:
// [Conn.PostRecv], [Conn.PostSend], [Conn.PostRead], [Conn.PostWrite], [Conn.SendComp],
// [Conn.RecvComp], and the same methods of ID.
//
// # Devices
//
// Ids share the devices that they are bound to. Each device is opened once, with one
// PD, and closed with its last id. A program that needs its own PD or Context passes
// the PD to [ID.CreateQP].
//
// A peer that has or guesses an rkey of the PD of its QP can access that memory. With
// the shared PD, this includes the memory of all connections. If peers must not access
// each other's memory, set Options.OwnPD.
//
// # Waiting
//
// A waiting call does not block a thread. All synchronous ids of a process, including
// all connections, share one descriptor and one goroutine that reads it. Completions
// arrive through one descriptor for each device.
//
// # Closing
//
// Close closes what the id has created in the right order: it leaves groups, then
// closes the QP, its queues and the id. Kernel events of a closed id are dropped.
//
// When the peer ends the connection of a synchronous id, or its device is removed, the
// posted requests of the QP are flushed. [Conn.RecvComp] and [Conn.SendComp] return
// [ErrDisconnected] for each flushed request and, once their queue is empty, for every
// further call, even if no request was posted. [Conn.Err] returns why the connection
// has ended, and the channel of [Conn.Disconnected] is closed. A loop that receives
// therefore ends as follows:
//
//	wc, err := conn.RecvComp(ctx)
//	if errors.Is(err, cm.ErrDisconnected) {
//		return nil
//	}
//
// A peer that loses power sends nothing. A send to it fails once its retries are used
// up, but a side that only receives does not notice. Such a side should limit its waits
// with a context and, after a timeout, send something, for example a WRITE of zero
// bytes. Its completion shows whether the peer is still there.
//
// # Errors
//
// Each function's comment lists the errors that the function creates. [Error]
// classifies all others. Any function that issues a command to the connection manager
// may also return [ErrCredentials] and [uverbs.ErrDeviceGone].
//
// # Debugging
//
// With GOVERBS_TRACE=1 in the environment, each command is printed to standard error.
package cm
