package rdma

import (
	"fmt"
	"time"
)

// CodeIdle is the code of a [CloseError] if a side has closed the connection because of its Options.IdleTimeout.
// Programs use other codes.
const CodeIdle = 1<<64 - 1

// startIdleTimer starts the timer that closes the connection when nothing is received.
func (c *Conn) startIdleTimer() {
	d := c.options.IdleTimeout
	if d <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idleTimer = time.AfterFunc(d, func() { c.checkIdle(d) })
}

func (c *Conn) checkIdle(d time.Duration) {
	if c.isIdle(d) {
		// The connection is closed in any case. Its calls return the reason, and the peer may not exist any more.
		_ = c.CloseWithError(CodeIdle, fmt.Sprintf("nothing was received for %v, which is Options.IdleTimeout", d))
	}
}

// isIdle reports whether nothing was received for d, and otherwise starts the timer again.
func (c *Conn) isIdle(d time.Duration) bool {
	c.mu.Lock()
	defer c.unlock()
	c.look()
	if c.err != nil || c.closing || c.eof { // calls return why
		return false
	}
	waits := c.peerWaits()
	if !c.heard && !waits {
		return true
	}
	c.heard = waits // the time begins when it does not wait any more
	c.idleTimer.Reset(d)
	return false
}

// peerWaits reports whether the program has messages of the peer, or calls to which it has not replied, and no reply
// waits for the peer.
func (c *Conn) peerWaits() bool {
	if c.calls.replying > 0 {
		return false
	}
	f := &c.messages
	return f.granted+f.owed < f.receives || c.callsIn() > 0
}
