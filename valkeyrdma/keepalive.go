package valkeyrdma

import "time"

// keepAlive is the part of a connection that finds out whether the peer's device still replies. It also posts receives
// again while no call waits: servers send a command every three seconds.
type keepAlive struct {
	timer    *time.Timer
	seenTail uint64 // number of the next request when the timer last ran
	seenDone uint64
	silent   int // times that the timer ran while requests were outstanding and none had completed
}

// maxSilent is how often the timer may run without a completion.
const maxSilent = 4

func (c *Conn) startKeepAlive() {
	if c.config.KeepAlive > 0 {
		c.timer = time.AfterFunc(c.config.KeepAlive, c.probe)
	}
}

// stopKeepAlive ends the probes. The caller holds c.mu.
func (c *Conn) stopKeepAlive() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// probe sends a command if nothing else was sent, and ends the connection if the peer's device has not replied for
// long.
func (c *Conn) probe() {
	c.mu.Lock()
	defer c.unlock()
	c.pollAll()
	if c.closed || c.err != nil {
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
			s.Interrupt()
		}
		return
	}
	// The last requests may have no completion. That of the command shows that they have completed, too.
	if c.tail == c.seenTail && c.controllable() && (c.tail == c.done || c.quiet > 0) {
		c.sendCommand(command{op: opKeepAlive}, true)
	}
	c.seenTail, c.seenDone = c.tail, c.done
	c.timer.Reset(c.config.KeepAlive)
}
