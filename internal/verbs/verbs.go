// Package verbs has the functions of package uverbs, and one of package cm, that only other packages of this module
// call. Package uverbs sets them. It cannot be imported here, so that the arguments have no types of it.
package verbs

import (
	"errors"
	"time"
)

// EndWaits makes Wait and PollWait of a uverbs.CQ return err whenever the queue is empty, from now
// on. It is for a caller that knows that there will be no more completions. Remaining completions
// can still be polled. With a nil err, waits block again. Any goroutine may call EndWaits, even on a
// queue with SingleGoroutine.
var EndWaits func(cq any, err error)

// Interrupt makes Wait and PollWait of a uverbs.CQ return ErrInterrupted whenever the queue is empty, while on is set.
// Unlike EndWaits, which has the end of the queue, it does not replace what another goroutine has set.
var Interrupt func(cq any, on bool)

// EndWith makes waits of a uverbs.CQ end with a cm.Conn, as those of the queues that package cm creates do. The CQ is
// that of a QP with an SRQ, for which nothing is flushed that would end the waits. Package cm sets it.
var EndWith func(conn, cq any)

// ErrInterrupted is the error of a wait that Interrupt has ended.
var ErrInterrupted = errors.New("verbs: interrupted")

// Polling is how long waits poll where SetPolling of a uverbs.CQ leaves that to the library: 0 for what the library
// chooses. Tests set it.
var Polling time.Duration

// CloseIdle closes a uverbs.Context if no objects except the given ones exist on it. Otherwise it
// closes nothing and returns uverbs.ErrBusy. It is for packages that open a device and allocate a PD
// on behalf of others. It waits until objects that are being created are finished. For an AH whose
// neighbor does not reply that takes seconds: if the caller holds a lock meanwhile, other users of
// the lock wait too.
var CloseIdle func(ctx any, but ...any) error

// OnIdle makes a uverbs.Context call f whenever the last object except the given ones has been
// closed. f runs in the goroutine that closed the object, and that Close returns f's error. f is not
// called while the Context is being closed. f may call CloseIdle. A nil f removes the previous one.
var OnIdle func(ctx any, f func() error, but ...any)

// AllocReused is Alloc of a uverbs.PD and returns a *uverbs.MR, whose memory stays mapped forever. After Close and
// FreeReused, which may come in any order, it is used for later MRs of AllocReused. So a slice that the program still
// has shows other data then, but does not fault. The contents of the memory are undefined.
var AllocReused func(pd any, n int, access uint32) (mr any, err error)

// FreeReused says that the program does not use the memory of an MR of AllocReused any more.
var FreeReused func(mr any)

// PortDown reports whether the last event of a port of a uverbs.Context says that it is down. It issues no command.
var PortDown func(ctx any, port int) bool

// WatchSRQ sets functions of a uverbs.SRQ. The Context calls limit, in place of an EventSRQLimitReached, when fewer
// receives than the SRQ's limit are left. A QP that is being closed calls dropped with the WRID of each receive whose
// completion was not polled and cannot be any more: not all drivers drop them. Both are called with locks held: they
// must not block, and must not call methods of the SRQ.
var WatchSRQ func(srq any, limit func(), dropped func(wrID uint64))

// MaxInline returns n, or the largest MaxInline that QPs of a uverbs.Context can have, if the provider says that it is
// less.
var MaxInline func(ctx any, n int) int

// SendsInFlight returns how many sends of a uverbs.QP the device may still be working on:
// SendsOutstanding minus those whose completions have not been polled, which stay in the CQ. On
// devices that release requests by completions, a request without Signaled counts until a later one
// has completed. SendsInFlight holds the CQ's lock: a CQ with SingleGoroutine must not be polled
// meanwhile. The result is 0 for a closed QP.
var SendsInFlight func(qp any) int

// Established moves a uverbs.QP to RTS without a command: on iWARP, the kernel has done it, or does it with the command
// that follows. depth is the number of READs that the connection allows. A QP that is beyond RTS stays there.
var Established func(qp any, depth uint8)
