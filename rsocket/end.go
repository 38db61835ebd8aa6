package rsocket

import (
	"errors"
	"math"
	"net"
	"sync/atomic"
	"time"
)

// CloseWrite tells the peer that this side sends no more: the peer's reads return io.EOF after what was written. It
// waits while too many messages of the protocol are on their way, until the deadline of writes.
func (c *Conn) CloseWrite() error {
	return c.closeSide("close", func() { c.writeClosed = true; c.writer.Interrupt() })
}

// CloseRead makes reads return io.EOF. The peer is told only if this side does not write any more, either.
func (c *Conn) CloseRead() error {
	return c.closeSide("close", func() { c.readClosed = true; c.reader.Interrupt() })
}

// closeSide closes one side of the connection, as note does, and tells the peer.
func (c *Conn) closeSide(op string, note func()) error {
	c.ender.lock.Lock()
	defer c.ender.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return c.opError(op, net.ErrClosed)
	}
	note()
	switch {
	case c.err != nil || c.peerClosed || c.finished:
		return nil // there is nobody to tell
	case c.writeClosed && (c.readClosed || c.peerEOF):
		return c.opError(op, c.finish())
	case c.writeClosed && !c.shutDown:
		return c.opError(op, c.shutdown())
	}
	return nil
}

// shutdown tells the peer that this side sends no more.
func (c *Conn) shutdown() error {
	if err := c.tell(controlShutdown); err != nil {
		return err
	}
	c.shutDown = true
	c.finished = c.peerEOF // both have said so: see receiveControl
	return nil
}

// finish tells the peer that this side neither sends nor receives any more.
func (c *Conn) finish() error {
	err := c.tell(controlDisconnect)
	c.finished = err == nil
	return err
}

// tell sends a message of op opControl.
func (c *Conn) tell(what int) error {
	if c.controls == maxControls {
		if err := c.wait(&c.ender, needControl, 0); err != nil {
			return err
		}
	}
	if c.err == nil {
		c.sendControl(immediate(opControl, what), sge{}, nil, true)
	}
	return nil
}

// Close ends the connection and releases its memory. Before, it waits until the device of the peer has received what
// was written, and the end, for up to Config.Linger. By default it waits for a moment only, and goes on in the
// background, as Close of a TCP connection does: without a reply of the peer, its caller is not delayed. If the peer
// has closed first, Close then waits for up to 100 milliseconds more, but not longer than Config.Linger, until the peer
// knows that everything was received.
// Other calls return an error that matches [net.ErrClosed] at once. Close is idempotent. If an object could not be
// closed, also in the background, another call tries again and returns its error.
func (c *Conn) Close() error {
	c.mu.Lock()
	first := !c.closed
	wait, background := max(c.linger, 0), time.Duration(0)
	if c.linger == 0 {
		wait, background = closeTime/time.Duration(1+lingering.Load()), lingerTime
	}
	c.closed = true
	if first { // a call of CloseWrite that waits ends in time, too
		c.ender.SetDeadline(time.Now().Add(wait))
	}
	c.reader.Interrupt()
	c.writer.Interrupt()
	c.unlock()
	c.ender.lock.Lock() // after CloseRead and CloseWrite
	defer c.ender.lock.Unlock()
	if !first {
		return c.releaseRest()
	}
	c.mu.Lock()
	c.stopKeepAlive()
	if c.err != nil || c.discard { // an earlier call has returned c.err, or the caller wants a reset
		c.unlock()
		return c.opError("close", c.release())
	}
	ended := c.flush()
	var lost error
	if c.done < c.dataTail && !c.peerClosed { // if the peer has closed, it does not want it
		lost = errNotReceived
	}
	peerWaits := c.peerClosed && !c.finished
	c.unlock()
	if !ended && background > 0 {
		c.lingerFor(background)
		return nil
	}
	if peerWaits {
		c.awaitPeer(min(wait, closeTime))
	}
	return c.opError("close", errors.Join(lost, c.release()))
}

// SetLinger replaces Config.Linger for this connection, as [net.TCPConn.SetLinger] does. If sec is positive, Close
// waits for up to sec seconds. If sec is negative, Close waits for a moment, and goes on in the background. If sec is
// 0, Close discards what the peer has not received, and the peer reads ECONNRESET; a peer in C reads the end of the
// file. After Close, SetLinger returns an error that matches [net.ErrClosed].
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	c.discard = sec == 0
	const longest = math.MaxInt64 / time.Second
	c.linger = min(time.Duration(max(sec, 0)), longest) * time.Second
	return nil
}

// lingering is the number of connections that Close has left to the background. A program that closes many whose peers
// do not reply waits less for each: all together they take closeTime * (1 + 1/2 + 1/3 + ...). Peers that reply do so
// much sooner.
var lingering atomic.Int64

// lingerFor starts the rest of Close, when the peer has not received everything. No other call uses the ender any more.
// Profiles have the name of a closure before it begins to run: package verbstest waits for it.
func (c *Conn) lingerFor(d time.Duration) {
	lingering.Add(1)
	go func() {
		defer lingering.Add(-1)
		c.mu.Lock()
		c.ender.SetDeadline(time.Now().Add(d))
		_ = c.flush()
		c.unlock()
		_ = c.release() // another Close returns the error
	}()
}

// awaitPeer waits until the peer, which has closed first, ends the connection, but no longer than d. The peer waits for
// the acknowledgement of what it has sent. A device that has not sent it when the QP is destroyed never does.
func (c *Conn) awaitPeer(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.cm.Disconnected():
	case <-timer.C:
	}
}

// release releases everything.
func (c *Conn) release() error {
	c.mu.Lock()
	for _, s := range c.sides() {
		s.SetDeadline(time.Time{})
	}
	c.unlock()
	// The peer learns of it at once. An error means that the connection has ended already.
	_ = c.cm.ID().ID.Disconnect()
	err := c.cm.Close()
	c.mu.Lock()
	defer c.unlock()
	c.unreleased = err != nil
	return err
}

// releaseRest releases what release could not. The caller holds the lock of c.ender.
func (c *Conn) releaseRest() error {
	c.mu.Lock()
	again := c.unreleased
	c.unlock()
	if !again {
		return nil
	}
	return c.opError("close", c.release())
}

// flush tells the peer of the end, and waits until it has received that and what was written, or does not receive any
// more. It returns false if the deadline of the ender is sooner.
func (c *Conn) flush() bool {
	c.pollAll()
	var err error
	if !c.finished && !c.peerClosed {
		err = c.finish()
	}
	if err == nil {
		err = c.wait(&c.ender, needReceived, c.tail)
	}
	if err != nil {
		c.pollAll()
	}
	return c.err != nil || c.peerClosed || c.finished && c.done >= c.tail
}

var errNotReceived = errors.New("the peer may not have received everything that was written")
