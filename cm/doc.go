// Package cm connects queue pairs by IP address: librdmacm for Go. It uses the
// kernel's connection manager through /dev/infiniband/rdma_cm. Package rdma has
// messages and one-sided access that are simpler to use.
//
// A client sends a message to a server, which has posted a receive in Options.Setup:
//
//	c, err := cm.Dial(ctx, "192.0.2.1:7471", nil)
//	...
//	mr, err := c.AllocMsgs(4096)
//	...
//	n := copy(mr.Bytes(), "hello")
//	err = c.PostSend(1, uverbs.Signaled, mr.SGE(0, n))
//	...
//	wc, err := c.SendComp(ctx) // mr may be changed again
//	...
//	err = errors.Join(c.Shutdown(ctx), c.Close(), mr.Close())
//
// # Connections
//
// [Dial] and [Listen] establish connections, as package net does. [Listener.Accept]
// returns the connections of a listener, and [Listener.Request] lets a program
// inspect a peer before it accepts. [Options] configure both sides: the QP, private
// data, timeouts, and functions to be called before the QP is created and before the
// peer can send.
//
// # Sends and receives
//
// Memory must be registered: [Conn.AllocMsgs] allocates it, [Conn.RegMsgs] registers
// memory of the program. [Conn.PostRecv] posts a receive, first in Options.Setup.
// [Conn.PostSend] sends a message, and [Conn.PostSendInline] sends data that need
// not be registered. [uverbs.MR.SGE] returns the part of the memory that these calls
// use.
//
// # One-sided reads and writes
//
// [Conn.AllocRead] and [Conn.AllocWrite] allocate memory that the peer may access.
// It needs the address and the key of the memory, for example in
// [Options].PrivateData or in a message. [Conn.PostRead] reads the peer's memory,
// [Conn.PostWrite] writes to it, and [Conn.PostWriteImm] also completes a receive of
// the peer.
//
// # Completions
//
// [Conn.SendComp] waits until a send, READ or WRITE has completed, and
// [Conn.RecvComp] until a message has arrived. Both accept a context and do not
// block a thread. All synchronous ids of a process, including all connections, share
// one descriptor and one goroutine that reads it. Completions arrive through up to 64
// descriptors for each device.
//
// # Datagrams and multicast
//
// [JoinMulticast] joins a group. Datagrams to single peers are sent with ids of
// [PSUDP]: [NewID], [SyncID.Connect] and [ID.PostUDSend].
//
// # iWARP
//
// Connections of an iWARP device are TCP connections. They differ in this:
//
//   - The server must not send, write or read before the client has: a message that follows the reply of the kernel at
//     once may end the client's Connect with EINVAL.
//   - Soft-iWARP connects by TCP while [ID.Connect] waits: until the kernel gives up (tcp_syn_retries: about two
//     minutes) if the peer does not reply. Close and the context of a [SyncID] end it. Meanwhile, Disconnect and the
//     setters of the id wait.
//   - A WRITE or a send has completed when it was sent. What the peer refuses ends the connection, also a message for
//     which it has no receive.
//   - Only QPs of ids are connected: [ConnParam].QPN without a QP is [uverbs.ErrNotSupported].
//   - The QP has no address vector: QPConfig.Path and Options.TOS have no effect, and there are no paths.
//   - Soft-iWARP does not serve IPv4 for a listener on all addresses of both families, as of Listen(":7471"): listen on
//     0.0.0.0, or on an address.
//   - [EventTimewaitExit] does not follow, and either end may be the first to be notified that the connection is
//     established.
//
// # The end of a connection
//
// [Conn.Shutdown] ends a connection and waits for the peer, [Conn.Close] does not
// wait. Close closes what the id has created in the right order: it leaves groups,
// then closes the QP, its queues and the id. Kernel events of a closed id are
// dropped.
//
// When the peer ends the connection of a synchronous id, or its device is removed,
// the posted requests of the QP are flushed. [Conn.RecvComp] and [Conn.SendComp]
// return the cause for each flushed request and, once their queue is empty, for
// every further call, even if no request was posted. The cause is [ErrDisconnected]
// if either side has ended the connection, and [uverbs.ErrDeviceGone] if the device
// was removed. [Conn.Err] also returns it, and the channel of [Conn.Disconnected] is
// closed. A loop that receives therefore ends as follows:
//
//	wc, err := conn.RecvComp(ctx)
//	if errors.Is(err, cm.ErrDisconnected) {
//		return nil
//	}
//	if err != nil {
//		return err // uverbs.ErrDeviceGone, for example
//	}
//
// A peer that loses power sends nothing. A send to it fails once its retries are
// used up, but a side that only receives does not notice. Such a side should limit
// its waits with a context and, after a timeout, send something, for example a WRITE
// of zero bytes. Its completion shows whether the peer is still there.
//
// # Ids
//
// Connections are built on ids, which have all of rdma_cma.h and rdma_verbs.h. The
// methods named ID return the id of a connection, request, listener or group.
//
// A [SyncID] is an rdma_cm_id without an event channel: its calls accept a context
// and wait for their result. [NewID] and [CreateEP] create one, and [GetAddrInfo]
// resolves names.
//
// An [ID] on an [EventChannel] is asynchronous: calls return at once, and results
// arrive as events. One channel serves any number of ids.
//
// # Devices
//
// Ids share the devices that they are bound to. Each device is opened once, with one
// PD, and closed with its last id. A program that needs its own PD or Context sets
// Options.PD, or passes the PD to [ID.CreateQP]. [Devices] opens all devices.
//
// A peer that has or guesses an rkey of the PD of its QP can access that memory.
// With the shared PD, this includes the memory of all connections. If peers must not
// access each other's memory, set Options.OwnPD.
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
