package rsocket

import "time"

// keepAlive is the part of a connection that finds out whether the peer's device still replies.
type keepAlive struct {
	probes   *time.Timer
	seenTail uint64 // number of the next request when the timer last ran
	seenDone uint64
	silent   int // times that the timer ran and nothing had completed
}

// How often the timer may run without a completion: after a probe, and after other requests. The latter may have to
// wait for receives of a peer that is stopped.
const (
	silentProbe = 2
	silentData  = 16
)

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
	idle := c.tail == c.seenTail
	switch {
	case c.tail == c.done || c.done != c.seenDone:
		c.silent = 0
	default:
		c.silent++
	}
	limit := silentData
	if c.tail-c.done == 1 && c.posted[c.done&uint64(len(c.posted)-1)].probe {
		limit = silentProbe
	}
	if c.silent >= limit {
		c.fail(errPeerSilent)
		c.interruptAll()
		return
	}
	if idle && c.controls < maxControls && (c.tail == c.done || c.quiet > 0) {
		c.sendProbe()
	}
	c.seenTail, c.seenDone = c.tail, c.done
	c.probes.Reset(c.config.KeepAlive)
}

// sendProbe posts a WRITE of no bytes.
func (c *Conn) sendProbe() {
	id, flags := c.number(0, true, true)
	c.posted[id&uint64(len(c.posted)-1)].probe = true
	b := c.qp.StartSend()
	b.Write(id, flags, 0, 0)
	c.submit(&b)
}

// interruptAll makes all calls look at the state. The caller holds c.mu.
func (c *Conn) interruptAll() {
	for _, s := range c.sides() {
		c.interrupt(s)
	}
}
