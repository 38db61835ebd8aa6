package rdma

import (
	"context"
	"slices"
)

// Flush waits until the peer has everything that calls sent which returned before Flush was called: short messages are
// in the peer's memory, and the peer has read those that are longer than its Options.EagerSize, which its program
// receives and releases. Then the buffers of these messages are released, and the bytes of a [Region] may be changed.
// Flush also waits until the device does not use buffers any more that were released after an operation whose context
// had ended. It does not wait until the peer's program receives short messages, nor for a long reply to a call that the
// peer has canceled: the peer does not read it. It is not the FLUSH operation of InfiniBand.
//
// If ctx ends first, Flush returns context.Cause(ctx), and the connection can be used further. If the connection ends,
// Flush returns what [Conn.Err] returns; whether the peer has received everything is unknown then. But if the peer has
// closed the connection and its program has received all messages, Flush returns nil; Close releases the buffers then.
func (c *Conn) Flush(ctx context.Context) error {
	if err := c.flushSends(ctx); err != nil && !c.allReceived() {
		return c.opError("flush", err)
	}
	return nil
}

// allReceived reports whether the peer has closed the connection and has received all messages before.
func (c *Conn) allReceived() bool {
	c.mu.Lock()
	defer c.unlock()
	return c.eof && c.unreceived == 0 && !c.closing
}

// flushSends posts a WRITE of no bytes, which completes after the requests before it, and waits for it and for the
// windows of messages that were offered.
func (c *Conn) flushSends(ctx context.Context) error {
	o, err := c.lockToPost(ctx)
	if err != nil {
		return err
	}
	seq, flags := c.next(true)
	b := c.qp.StartSend()
	b.Write(seq, flags, 0, 0)
	if err := b.Submit(); err != nil {
		defer c.unlock()
		c.freeOp(o)
		return c.refused(err)
	}
	o.pending = 1
	c.posted(request{op: o}, flags)
	for i := range c.windows {
		if w := &c.windows[i]; w.state != windowIdle && w.state != windowAllocating {
			o.pending++
			w.flushes = append(w.flushes, o)
		}
	}
	defer c.unlock()
	err = c.finishOp(ctx, o)
	if err != nil { // nothing waits for the windows any more
		for i := range c.windows {
			w := &c.windows[i]
			if k := slices.Index(w.flushes, o); k >= 0 {
				w.flushes = slices.Delete(w.flushes, k, k+1)
				c.opDone(o, nil)
			}
		}
	}
	return err
}
