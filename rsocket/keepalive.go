package rsocket

import "time"

// keepAlive is the part of a connection that finds out whether the peer's device still replies.
type keepAlive struct {
	probes   *time.Timer
	seenTail uint64 // number of the next request when the timer last ran
	seenDone uint64
	silent   int // times that the timer ran while requests were outstanding and none had completed
}

// maxSilent is how often the timer may run without a completion. A peer that is stopped does not count as silent: its
// device replies, and it has receives for all that is sent.
const maxSilent = 4

func (c *Conn) startKeepAlive() {
	if c.config.KeepAlive > 0 {
		c.probes = time.AfterFunc(c.config.KeepAlive, c.probe)
	}
}

// stopKeepAlive ends the probes. The caller holds c.mu.
func (c *Conn) stopKeepAlive() {
	if c.probes != nil {
		c.probes.Stop()
	}
}

// probe writes nothing to the peer if nothing else was sent, which its program does not notice, and ends the
// connection if the peer's device has not replied for long.
func (c *Conn) probe() {
	c.mu.Lock()
	defer c.unlock()
	if c.leader == nil {
		c.poll()
	}
	if c.closed || c.err != nil || c.peerClosed {
		return
	}
	if c.tail == c.done || c.done != c.seenDone {
		c.silent = 0
	} else {
		c.silent++
	}
	if c.silent == maxSilent {
		c.fail(errPeerSilent)
		for _, s := range c.sides() {
			c.interrupt(s)
		}
		return
	}
	// The last requests may have no completion. That of the probe shows that they have completed, too.
	if c.tail == c.seenTail && c.controls < maxControls && (c.tail == c.done || c.quiet > 0) {
		id, flags := c.number(0, true, true)
		b := c.qp.StartSend()
		b.Write(id, flags, 0, 0)
		c.submit(&b)
	}
	c.seenTail, c.seenDone = c.tail, c.done
	c.probes.Reset(c.config.KeepAlive)
}
