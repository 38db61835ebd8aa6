package rdma

import "context"

// Flush waits until the peer has received what the calls that have returned have sent: short messages are in the peer's
// memory, and the peer has read those that are longer than its Options.EagerSize, which its program receives and
// releases. Then the buffers of these messages are released, and the bytes of a [Region] may be changed. Like Close,
// Flush does not wait until the peer's program receives short messages.
//
// If ctx ends first, Flush returns context.Cause(ctx), and the connection can be used further. If the connection ends,
// it returns what [Conn.Err] returns; whether the peer has received everything is unknown then.
func (c *Conn) Flush(ctx context.Context) error {
	if err := c.flushSends(ctx); err != nil {
		return c.opError("flush", err)
	}
	return nil
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
	return c.finishOp(ctx, o)
}
