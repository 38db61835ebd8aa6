// Package rdmacm issues the commands of the kernel's connection manager
// (rdma/rdma_user_cm.h) and reads its events, on /dev/infiniband/rdma_cm.
//
// # Wire
//
// A command is one write(2): a header with the command's number and sizes, then the
// command's struct. The kernel writes the reply to the address at the start of the
// struct before the write returns. The kernel assigns ids, starting at 0. A uid is the
// caller's number of an id, and the kernel returns it in the id's events. It must not
// be 0, which the kernel uses for an id whose events are not delivered yet.
//
// # Memory
//
// Request and reply are in one heap object, which is from a pool. The garbage collector
// does not move it, whereas a goroutine's stack can move.
//
// # Waiting
//
// The file is non-blocking and registered with the runtime's poller. [File.NextEvent]
// first asks the kernel. It waits only if there is no event, and a waiting call does
// not block a thread.
//
// # Errors
//
// A command returns the kernel's unix.Errno unchanged. Other errors have a sentinel:
// [ErrNoNode], [ErrABI], [ErrCredentials], os.ErrClosed and os.ErrDeadlineExceeded.
//
// # Tracing
//
// With GOVERBS_TRACE=1 in the environment, each command is printed to standard error
// when it returns: node, command, id, payload, errno, reply, time.
package rdmacm
