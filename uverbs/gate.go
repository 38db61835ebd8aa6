package uverbs

import "sync/atomic"

// A gate says whether a queue takes requests, and if not why. Posts load it, and
// nothing else of what may have become of the queue.
type gate struct{ atomic.Uint32 }

const (
	gateOpen  uint32 = iota
	gateFlush        // of receives: what is posted is flushed
	gateState
	gateSRQ
	gateNone // there is no such queue
	gateGone // nor a device
	gateClosed
)

var gateErrors = [...]error{gateState: ErrState, gateSRQ: ErrSRQ, gateNone: ErrNoQueue, gateGone: ErrDeviceGone, gateClosed: ErrClosed}

// set is for a queue that something was done to. It opens nothing where the device
// is gone.
func (g *gate) set(c *Context, to uint32) {
	g.Store(to)
	if c.gone.Load() { // or else lose finds what was stored
		g.lose()
	}
}

// lose shuts a gate that is not shut for another reason.
func (g *gate) lose() {
	for _, was := range []uint32{gateOpen, gateFlush, gateState} {
		g.CompareAndSwap(was, gateGone)
	}
}
