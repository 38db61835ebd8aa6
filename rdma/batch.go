package rdma

import (
	"context"

	"github.com/goverbs/goverbs/uverbs"
)

// A Batch is a set of one-sided operations that are started together and waited for once. They may be carried out in
// any order. A Batch belongs to one goroutine at a time. The buffers must not be used between the call of Do and its
// return.
type Batch struct {
	c   *Conn
	ops []batchOp
	err error
}

type batchOp struct {
	buf   Buffer
	n     int
	addr  uint64
	key   uint32
	write bool
}

// NewBatch returns an empty batch.
func (c *Conn) NewBatch() *Batch { return &Batch{c: c} }

// Read adds a [Conn.ReadBuffer].
func (b *Batch) Read(buf Buffer, from Token, off int) { b.add("Batch.Read", buf, &from, off, CanRead) }

// Write adds a [Conn.WriteBuffer].
func (b *Batch) Write(buf Buffer, to Token, off int) { b.add("Batch.Write", buf, &to, off, CanWrite) }

func (b *Batch) add(method string, buf Buffer, t *Token, off int, right Rights) {
	err := b.c.hold(method, buf)
	n := 0
	if err == nil {
		n = int(buf.m.n.Load())
		if right == CanRead {
			err = buf.m.writable()
		}
		buf.m.drop()
		if err == nil {
			err = t.check(off, n, right)
		}
	}
	if b.err == nil {
		b.err = err
	}
	if err == nil && n > 0 {
		b.ops = append(b.ops, batchOp{buf, n, t.Addr + uint64(off), t.Key, right == CanWrite})
	}
}

// Len returns how many operations the batch has.
func (b *Batch) Len() int { return len(b.ops) }

// Do carries out the operations, waits for them and empties the batch. If an operation that was added is wrong, Do
// returns its error and does nothing. Otherwise the errors are those of [Conn.ReadBuffer] and [Conn.WriteBuffer]; some
// of the operations may have been carried out.
func (b *Batch) Do(ctx context.Context) error {
	err := b.err
	if err == nil && len(b.ops) > 0 {
		if err = b.hold(); err == nil {
			err = b.c.doBatch(ctx, b.ops)
		}
	}
	clear(b.ops)
	b.ops, b.err = b.ops[:0], nil
	return b.c.onesided("do a batch at", err)
}

// hold adds a user to each buffer.
func (b *Batch) hold() error {
	for i := range b.ops {
		if err := b.c.hold("Batch.Do", b.ops[i].buf); err != nil {
			dropAll(b.ops[:i])
			return err
		}
	}
	return nil
}

// dropAll removes a user from each buffer.
func dropAll(ops []batchOp) {
	for i := range ops {
		ops[i].buf.m.drop()
	}
}

// doBatch carries out operations whose buffers are held.
func (c *Conn) doBatch(ctx context.Context, ops []batchOp) error {
	defer func() { dropAll(ops) }() // those that were not posted
	o, err := c.lockToPost(ctx)
	if err != nil {
		return err
	}
	for len(ops) > 0 {
		if c.room() <= 0 {
			if err := c.waitToSend(ctx, needPost); err != nil {
				c.mu.Lock()
				defer c.unlock()
				return c.giveUp(o, err)
			}
		}
		n := min(len(ops), c.room())
		if err := c.postOps(o, ops[:n]); err != nil {
			defer c.unlock()
			return c.giveUp(o, err)
		}
		ops = ops[n:]
	}
	defer c.unlock()
	return c.finishOp(ctx, o)
}

// giveUp ends the wait for an op after err.
func (c *Conn) giveUp(o *op, err error) error {
	if o.pending == 0 {
		c.freeOp(o)
	} else {
		o.abandoned = true
	}
	return err
}

// postOps posts operations, for which there is room, with one doorbell. The caller's use of each buffer
// passes to its operation.
func (c *Conn) postOps(o *op, ops []batchOp) error {
	b := c.qp.StartSend()
	for i := range ops {
		p := &ops[i]
		var flags uverbs.SendFlags
		if i == len(ops)-1 {
			flags = uverbs.Signaled
		}
		if p.write {
			b.WriteSGE(c.tail+uint64(i), flags, p.addr, p.key, p.buf.m.sge(p.n))
		} else {
			b.ReadSGE(c.tail+uint64(i), flags, p.addr, p.key, p.buf.m.sge(p.n))
		}
	}
	if err := b.Submit(); err != nil {
		return c.unposted(err)
	}
	for i := range ops {
		var flags uverbs.SendFlags
		if i == len(ops)-1 {
			flags = uverbs.Signaled
		}
		o.pending++
		c.posted(request{m: ops[i].buf.m, op: o}, flags)
	}
	c.stats.operations += uint64(len(ops))
	return nil
}
