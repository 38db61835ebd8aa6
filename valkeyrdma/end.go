package valkeyrdma

import (
	"context"
	"errors"
	"time"
)

// closeTime is how long Close waits until the peer has received what was written. A device in the same data center has
// received it within microseconds, unless the peer has no buffer.
const closeTime = time.Second

// Close ends the connection and releases its memory. Other calls return an error that matches [net.ErrClosed] at once.
// Close waits for up to a second until the peer's device has received what was written, and otherwise says so, also if
// the connection has failed before. It does not if the peer has ended the connection. It is idempotent. If an object
// could not be closed, another call tries again.
func (c *Conn) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.reader.Interrupt()
	c.writer.Interrupt()
	c.unlock()
	c.ender.lock.Lock()
	defer c.ender.lock.Unlock()
	c.mu.Lock()
	again := c.unreleased
	var lost error
	if first {
		lost = c.flush()
	}
	c.unlock()
	if !first && !again {
		return nil
	}
	return c.opError("close", errors.Join(lost, c.release()))
}

// flush waits until the peer has received what was written. It returns an error if it has not, unless the peer has
// ended the connection.
func (c *Conn) flush() error {
	c.stopKeepAlive()
	c.ender.SetDeadline(time.Now().Add(closeTime))
	if c.err == nil && c.quiet > 0 {
		if err := c.wait(context.Background(), &c.ender, needControl, 0); err == nil && c.err == nil {
			c.sendCommand(command{op: opKeepAlive}, true)
		}
	}
	_ = c.wait(context.Background(), &c.ender, needCompleted, c.tail) // or until the deadline
	c.pollAll()
	if c.done < c.dataSent && c.err != errPeerClosed {
		return errors.Join(errNotReceived, c.err)
	}
	return nil
}

// release releases everything.
func (c *Conn) release() error {
	c.mu.Lock()
	for _, s := range c.sides() {
		s.SetDeadline(time.Time{})
	}
	c.dismiss()
	c.unlock()
	c.tellPeer() // at once
	err := c.cm.Close()
	c.mu.Lock()
	defer c.unlock()
	c.unreleased = err != nil
	return err
}
