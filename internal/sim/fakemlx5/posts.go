package fakemlx5

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
)

// A receiver is a queue for receives.
type receiver interface{ Received() }

// stackDepth is how many callers of a post are recorded.
const stackDepth = 32

// origin returns the call stack of a post by the calling goroutine, if the rules for programs are
// checked.
func (a *Adapter) origin() engine.Origin {
	if !a.cfg.Program {
		return nil
	}
	var stack [stackDepth]uintptr
	return append(engine.Origin(nil), stack[:runtime.Callers(3, stack[:])]...)
}

// ReceivesPosted is Received of ioctl.Posts, which the owner of the Kernel implements if it wants to
// be notified.
func (k *Kernel) ReceivesPosted(record uint64) {
	at := k.adapter.origin()
	race.Apart(func() {
		k.adapter.loop.Run(func() {
			if q := k.queues[record]; q != nil {
				k.adapter.HCA.From(at, q.Received)
			}
		})
	})
}

// SendQueueFull is Full of ioctl.Posts.
func (k *Kernel) SendQueueFull(qpn uint32) {
	at := k.adapter.origin()
	race.Apart(func() {
		k.adapter.loop.Run(func() { k.adapter.HCA.From(at, func() { k.adapter.HCA.Full(qpn) }) })
	})
}
