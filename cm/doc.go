// Package cm connects queue pairs by IP address: librdmacm for Go. It speaks to
// the kernel's connection manager over /dev/infiniband/rdma_cm.
//
// # Three levels
//
// [Dial] and [Listen] make connections in one call, as package net does;
// [JoinMulticast] joins a group. They are made of the level below, and what
// they return can do all that it can.
//
// A [SyncID] is an rdma_cm_id without an event channel: each of its calls waits,
// by a context, for what it asks for. [GetAddrInfo] and [CreateEP] go with it.
//
// An [ID] on an [EventChannel] is the whole of rdma_cma.h: calls return at
// once, and the answers come as events, for any number of ids through one
// channel.
//
// On all of them the calls of rdma_verbs.h post and wait: [ID.PostRecv],
// [ID.PostSend], [ID.PostRead], [ID.PostWrite], [ID.SendComp], [ID.RecvComp].
//
// # Devices
//
// Ids share the devices that they are bound to: each is opened once, with one
// PD, and closed with the last id. A program that wants a PD of its own, or a
// Context, gives the PD to [ID.CreateQP].
//
// # Waiting
//
// No wait holds a thread. All synchronous ids of a process, and with them all
// connections, share one descriptor and one goroutine that reads it; completions
// come through one descriptor for each device.
//
// # Closing
//
// Close ends what the id made in the right order: it leaves groups, destroys
// the QP, its queues, then the id. Kernel events of an id that has been closed
// are dropped. A peer that goes away ends a synchronous id's connection: its
// QP flushes what is posted, so RecvComp returns.
//
// A peer that loses its power says nothing. A send to it fails once its retries
// are used up; a side that only receives does not notice. Such a side bounds its
// waits by a context, and then sends, were it a WRITE of no bytes: its completion
// tells whether the peer is there.
//
// # Errors
//
// Each function's comment lists the errors that it makes itself; [Error] tells
// the rest apart. Whatever asks the kernel's connection manager can meet
// [ErrCredentials] and [uverbs.ErrDeviceGone] besides.
//
// # Debugging
//
// With GOVERBS_TRACE=1 in the environment each command is printed to standard
// error.
package cm
