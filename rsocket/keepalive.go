package rsocket

import "time"

// keepAlive is the part of a connection that finds out whether the peer's device still replies, and whether anything
// is sent or received.
type keepAlive struct {
	probes   *time.Timer
	seenTail uint64 // number of the next request when the timer last ran
	seenDone uint64
	silent   int    // times that the timer ran while requests were outstanding and none had completed
	probed   uint64 // probes that were sent

	idle      *time.Timer
	idleTail  uint64 // requests but probes, and
	idleCount uint16 // messages received, when the timer has last found others
	idleSince time.Time
}

// maxSilent is how often the timer may run without a completion. A peer that is stopped does not count as silent: its
// device replies, and it has receives for all that is sent.
const maxSilent = 4

func (c *Conn) startKeepAlive() {
	if c.config.KeepAlive > 0 {
		c.probes = time.AfterFunc(c.config.KeepAlive, c.probe)
	}
	if c.config.IdleTimeout > 0 {
		c.idleTail, c.idleSince = c.tail, time.Now()
		c.idle = time.AfterFunc(c.config.IdleTimeout/idleChecks, c.checkIdle)
	}
}

// stopKeepAlive ends the probes. The caller holds c.mu.
func (c *Conn) stopKeepAlive() {
	for _, t := range []*time.Timer{c.probes, c.idle} {
		if t != nil {
			t.Stop()
		}
	}
}

// idleChecks is how often in the IdleTimeout the timer looks whether anything was sent or received.
const idleChecks = 8

// checkIdle ends the connection if nothing was sent or received for Config.IdleTimeout. It looks at counters, so that
// messages cost nothing more.
func (c *Conn) checkIdle() {
	c.mu.Lock()
	defer c.unlock()
	if c.waiters.Leader() == nil {
		c.poll()
	}
	if c.closed || c.err != nil || c.peerClosed {
		return
	}
	timeout := c.config.IdleTimeout
	if tail := c.tail - c.probed; tail != c.idleTail || c.received != c.idleCount {
		c.idleTail, c.idleCount, c.idleSince = tail, c.received, time.Now()
	}
	if time.Since(c.idleSince) >= timeout {
		c.end(&idle{timeout})
		return
	}
	c.idle.Reset(timeout / idleChecks)
}

// end ends the connection because of err, and the calls that wait. The caller holds c.mu.
func (c *Conn) end(err error) {
	c.fail(err)
	for _, s := range c.sides() {
		s.Interrupt()
	}
}

// probe writes nothing to the peer if nothing else was sent, which its program does not notice, and ends the
// connection if the peer's device has not replied for long.
func (c *Conn) probe() {
	c.mu.Lock()
	defer c.unlock()
	if c.waiters.Leader() == nil {
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
		c.end(errPeerSilent)
		return
	}
	// The last requests may have no completion. That of the probe shows that they have completed, too.
	if c.tail == c.seenTail && c.controls < maxControls && (c.tail == c.done || c.quiet > 0) {
		id, flags := c.number(0, true, true)
		b := c.qp.StartSend()
		b.Write(id, flags, 0, 0)
		c.submit(&b)
		c.probed++
	}
	c.seenTail, c.seenDone = c.tail, c.done
	c.probes.Reset(c.config.KeepAlive)
}
