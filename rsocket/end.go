package rsocket

import (
	"errors"
	"net"
	"time"
)

// CloseWrite tells the peer that this side sends no more: the peer's reads return io.EOF after what was written. It
// waits while too many messages of the protocol are on their way, until the deadline of writes.
func (c *Conn) CloseWrite() error {
	return c.closeSide("close", func() { c.writeClosed = true; c.interrupt(&c.writer) })
}

// CloseRead makes reads return io.EOF. The peer is told only if this side does not write any more, either.
func (c *Conn) CloseRead() error {
	return c.closeSide("close", func() { c.readClosed = true; c.interrupt(&c.reader) })
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
	wasWriting := !c.writeClosed
	note()
	switch {
	case c.err != nil || c.peerClosed || c.finished:
		return nil // there is nobody to tell
	case c.writeClosed && (c.readClosed || c.peerEOF):
		return c.opError(op, c.finish())
	case c.writeClosed && wasWriting:
		return c.opError(op, c.tell(controlShutdown))
	}
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
// was written, for up to Config.Linger. Other calls return an error that matches [net.ErrClosed] at once. Close is
// idempotent.
func (c *Conn) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	for _, s := range []*side{&c.reader, &c.writer} {
		c.interrupt(s)
	}
	c.unlock()
	c.ender.lock.Lock() // after CloseRead and CloseWrite
	defer c.ender.lock.Unlock()
	if !first {
		return nil
	}
	c.mu.Lock()
	c.stopKeepAlive()
	lost := c.flush()
	for _, s := range c.sides() {
		c.setTimer(s, time.Time{})
	}
	c.closed = true
	c.unlock()
	// The peer learns of it at once. An error means that the connection has ended already.
	_ = c.cm.ID().ID.Disconnect()
	return c.opError("close", errors.Join(lost, c.cm.Close()))
}

// flush waits until the peer has received what was written, for as long as Close lingers. An error means that it may
// not have.
func (c *Conn) flush() error {
	if c.err != nil || c.peerClosed {
		return nil // an earlier call has returned why, or the peer does not want it
	}
	c.setTimer(&c.ender, time.Now().Add(c.config.Linger))
	if !c.finished {
		if err := c.finish(); err != nil {
			return errNotReceived
		}
	}
	err := c.wait(&c.ender, needReceived, c.tail)
	if !c.peerClosed && (err != nil || c.err != nil) {
		return errNotReceived
	}
	return nil
}

var errNotReceived = errors.New("the peer may not have received everything that was written")
