package uverbs

import "sync/atomic"

// A gate says whether a queue accepts requests, and if not, why. It is the only state of a
// queue that posts load.
type gate struct{ atomic.Uint32 }

const (
	gateOpen  uint32 = iota
	gateFlush        // of receive queues: posted requests are flushed
	gateState
	gateSRQ
	gateNone // the queue does not exist
	gateGone // the device is gone
	gateClosed
)

var gateErrors = [...]error{
	gateState:  ErrState,
	gateSRQ:    ErrSRQ,
	gateNone:   ErrNoQueue,
	gateGone:   ErrDeviceGone,
	gateClosed: ErrClosed,
}

// set changes the gate of a queue. If the device is gone, set does not open it.
func (g *gate) set(c *Context, to uint32) {
	g.Store(to)
	if c.deviceGone.Load() { // otherwise markDeviceGone sees the stored value
		g.closeGone()
	}
}

// closeGone makes a gate report that the device is gone, unless the queue is closed or never
// accepts requests.
func (g *gate) closeGone() {
	for _, was := range []uint32{gateOpen, gateFlush, gateState} {
		g.CompareAndSwap(was, gateGone)
	}
}
