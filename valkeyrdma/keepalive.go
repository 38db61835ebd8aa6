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

const (
	// maxSilent is how often the timer may run without a completion.
	maxSilent = 4
	// maxInterval is the longest time between two runs of the timer: the commands of a server fill the receives in 51
	// minutes, and one more ends the connection, or the server.
	maxInterval = 5 * time.Minute
)

// interval returns how often the timer runs. It also runs if no sign of life is sent.
func (c *Config) interval() time.Duration {
	if c.KeepAlive < 0 {
		return maxInterval
	}
	return min(c.KeepAlive, maxInterval)
}

func (c *Conn) startKeepAlive() { c.timer = time.AfterFunc(c.config.interval(), c.probe) }

// stopKeepAlive ends the probes. The caller holds c.mu.
func (c *Conn) stopKeepAlive() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// probe posts receives again, and checks the peer unless KeepAlive is negative.
func (c *Conn) probe() {
	c.mu.Lock()
	defer c.unlock()
	if c.closed { // the CQ may no longer exist
		return
	}
	c.pollAll()
	if c.err != nil {
		return
	}
	if c.config.KeepAlive > 0 {
		c.checkPeer()
	}
	if c.err == nil {
		c.timer.Reset(c.config.interval())
	}
}

// checkPeer sends a command if nothing else was sent, and ends the connection if the peer's device has not replied for
// long. The caller holds c.mu.
func (c *Conn) checkPeer() {
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
}
