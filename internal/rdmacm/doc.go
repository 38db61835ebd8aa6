// Package rdmacm issues the commands of the kernel's connection manager
// (rdma/rdma_user_cm.h) and takes its events, on /dev/infiniband/rdma_cm.
//
// # Wire
//
// A command is one write(2): a header with command number and sizes, then the
// command's struct. The kernel writes the reply to the address that the struct
// begins with, before the write returns. Ids are the kernel's and begin at 0.
// A uid is the caller's name for an id and comes back in the id's events: it must
// not be 0, which the kernel takes for an id whose owner does not want events yet.
//
// # Memory
//
// Request and reply lie in one heap object, which comes from a pool: the garbage
// collector does not move it, while a goroutine's stack may move.
//
// # Waiting
//
// The file is non-blocking and in the runtime's poller. [File.NextEvent] asks
// first and parks, without a thread, only when the kernel has no event.
//
// # Errors
//
// A command answers the kernel's unix.Errno as it is. What goes beyond it has a
// sentinel: [ErrNoNode], [ErrABI], [ErrCredentials], os.ErrClosed and
// os.ErrDeadlineExceeded.
//
// # Tracing
//
// With GOVERBS_TRACE=1 in the environment each command is printed to standard
// error when it returns: node, command, id, payload, errno, reply, time.
package rdmacm
