package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// Operations on the peer's memory return when they have completed: data that was read is there, and data that
// was written is visible to the peer. If the context ends first, they return context.Cause(ctx), and it is
// unknown whether the operation has been or will be carried out. The connection can be used further.
//
// They return ErrBounds, ErrMisaligned and ErrRights if the token does not permit the operation, before the peer
// is asked. If the peer has shared less than the token says, or has revoked it, the connection ends
// with an error that matches uverbs.WCRemAccessErr.

// longestCopy bounds the buffers of Read and Write.
const longestCopy = 1 << 20

// Read reads len(p) bytes at off of the peer's memory.
func (c *Conn) Read(ctx context.Context, p []byte, from Token, off int) error {
	return c.onesided("read from", c.readCopy(ctx, p, from, off))
}

// ReadBuffer reads b.Len() bytes at off of the peer's memory into b, without a copy. If ctx ends first, b must not
// be used any more except to release it, and the bytes of a [Region] may change until [Conn.Flush] or Close of the
// region has returned nil. It returns [ErrForeign] for memory of another device, and for that of a message that is not
// longer than Options.EagerSize.
func (c *Conn) ReadBuffer(ctx context.Context, b Buffer, from Token, off int) error {
	return c.onesided("read from", c.readBuffer(ctx, b, from, off))
}

// Write writes p to off of the peer's memory. When it has returned, the peer's device has the data, and p may be used
// again. The peer's program is not notified: it sees the data for certain when a later message has arrived, for example
// that of [Conn.WriteImm].
func (c *Conn) Write(ctx context.Context, p []byte, to Token, off int) error {
	return c.onesided("write to", c.writeCopy(ctx, p, to, off))
}

// WriteBuffer writes the bytes of b to off of the peer's memory, without a copy. b still belongs to the caller. If
// ctx ends first, b must not be changed any more, only released. If b is that of a message that is not longer than
// Options.EagerSize, it is copied. WriteBuffer returns [ErrForeign] for memory of another device.
func (c *Conn) WriteBuffer(ctx context.Context, b Buffer, to Token, off int) error {
	return c.onesided("write to", c.writeBuffer(ctx, b, to, off))
}

// WriteImm is Write, and also sends a message without bytes: the peer's Recv returns it when the data is there,
// and [Message.Imm] returns imm. Like Send, it waits if the peer has not released enough messages. p has at
// most 1 MiB; for more, use WriteImmBuffer.
func (c *Conn) WriteImm(ctx context.Context, p []byte, to Token, off int, imm uint32) error {
	return c.onesided("write to", c.writeImmCopy(ctx, p, to, off, imm))
}

// WriteImmBuffer is [Conn.WriteImm] with the bytes of a buffer: see [Conn.WriteBuffer].
func (c *Conn) WriteImmBuffer(ctx context.Context, b Buffer, to Token, off int, imm uint32) error {
	return c.onesided("write to", c.writeImmBuffer(ctx, b, to, off, imm))
}

// CompareAndSwap replaces the 8 bytes at off of the peer's memory, a number in the peer's byte order, by new if they
// are old. It returns what they were before: the swap was done if that is old. It returns [ErrMisaligned] if off is not
// a multiple of 8: the memory of tokens with CanAtomic begins at such an address.
func (c *Conn) CompareAndSwap(ctx context.Context, t Token, off int, old, new uint64) (uint64, error) {
	v, err := c.atomic(ctx, &t, off, atomicOp{swap: true, x: old, y: new})
	return v, c.onesided("compare and swap at", err)
}

// FetchAdd adds to the 8 bytes at off of the peer's memory, a number in the peer's byte order. It returns what they
// were before. See [Conn.CompareAndSwap] for off.
func (c *Conn) FetchAdd(ctx context.Context, t Token, off int, add uint64) (uint64, error) {
	v, err := c.atomic(ctx, &t, off, atomicOp{x: add})
	return v, c.onesided("fetch and add at", err)
}

func (c *Conn) onesided(op string, err error) error {
	if err != nil {
		return c.opError(op, err)
	}
	return nil
}

func (c *Conn) readCopy(ctx context.Context, p []byte, from Token, off int) error {
	if err := from.check(off, len(p), CanRead); err != nil {
		return err
	}
	for len(p) > 0 {
		n := min(len(p), longestCopy)
		m, err := c.get(n)
		if err != nil {
			return err
		}
		m.hold()
		if err = c.transfer(ctx, CanRead, m, n, &from, off); err == nil {
			copy(p, m.bytes[:n])
		}
		m.drop()
		if err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// hold checks a buffer of the caller and adds a user.
func (c *Conn) hold(method string, b Buffer) error {
	if !b.hold() {
		b.misused(method)
		return ErrReleased
	}
	if b.m.pool != c.pool { // it is of another device, or a receive
		b.m.drop()
		return ErrForeign
	}
	return nil
}

func (c *Conn) readBuffer(ctx context.Context, b Buffer, from Token, off int) error {
	return c.transferBuffer(ctx, "ReadBuffer", CanRead, b, &from, off)
}

// transferBuffer reads into b or writes its data, as right says.
func (c *Conn) transferBuffer(ctx context.Context, method string, right Rights, b Buffer, t *Token, off int) error {
	if err := c.hold(method, b); err != nil {
		return err
	}
	defer b.m.drop()
	n := int(b.m.n.Load())
	if err := t.check(off, n, right); err != nil || n == 0 {
		return err
	}
	if right == CanRead {
		if err := b.m.writable(); err != nil {
			return err
		}
	}
	return c.transfer(ctx, right, b.m, n, t, off)
}

// transfer reads n bytes into m, or writes the first n bytes of m, as right says. m is owned or held.
func (c *Conn) transfer(ctx context.Context, right Rights, m *memory, n int, t *Token, off int) error {
	o, err := c.lockToPost(ctx)
	if err != nil {
		return err
	}
	seq, _ := c.next(true)
	b := c.qp.StartSend()
	if right == CanRead {
		b.ReadSGE(seq, uverbs.Signaled, t.Addr+uint64(off), t.Key, m.sge(n))
	} else {
		b.WriteSGE(seq, uverbs.Signaled, t.Addr+uint64(off), t.Key, m.sge(n))
	}
	return c.submit(ctx, &b, o, m)
}

func (c *Conn) writeCopy(ctx context.Context, p []byte, to Token, off int) error {
	if err := to.check(off, len(p), CanWrite); err != nil {
		return err
	}
	if len(p) > 0 && len(p) <= c.inline {
		o, err := c.lockToPost(ctx)
		if err != nil {
			return err
		}
		seq, _ := c.next(true)
		b := c.qp.StartSend()
		b.WriteInline(seq, uverbs.Signaled, to.Addr+uint64(off), to.Key, p)
		return c.submit(ctx, &b, o, nil)
	}
	for len(p) > 0 {
		n := min(len(p), longestCopy)
		m, err := c.get(n)
		if err != nil {
			return err
		}
		m.hold()
		copy(m.bytes, p[:n])
		err = c.transfer(ctx, CanWrite, m, n, &to, off)
		m.drop()
		if err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

func (c *Conn) writeBuffer(ctx context.Context, b Buffer, to Token, off int) error {
	if b.received() {
		return b.withBytes("WriteBuffer", func(p []byte) error { return c.writeCopy(ctx, p, to, off) })
	}
	return c.transferBuffer(ctx, "WriteBuffer", CanWrite, b, &to, off)
}

func (c *Conn) writeImmCopy(ctx context.Context, p []byte, to Token, off int, imm uint32) error {
	if len(p) > longestCopy {
		return fmt.Errorf("%w: WriteImm of %d bytes: it copies at most %d: write a Buffer with WriteImmBuffer", ErrTooLong,
			len(p), longestCopy)
	}
	if err := to.check(off, len(p), CanWrite); err != nil {
		return err
	}
	m, err := c.get(len(p))
	if err != nil {
		return err
	}
	m.hold()
	defer m.drop()
	copy(m.bytes, p)
	return c.writeImm(ctx, m, len(p), &to, off, imm)
}

func (c *Conn) writeImmBuffer(ctx context.Context, b Buffer, to Token, off int, imm uint32) error {
	if b.received() {
		return b.withBytes("WriteImmBuffer", func(p []byte) error { return c.writeImmCopy(ctx, p, to, off, imm) })
	}
	if err := c.hold("WriteImmBuffer", b); err != nil {
		return err
	}
	defer b.m.drop()
	n := int(b.m.n.Load())
	if err := to.check(off, n, CanWrite); err != nil {
		return err
	}
	return c.writeImm(ctx, b.m, n, &to, off, imm)
}

func (c *Conn) writeImm(ctx context.Context, m *memory, n int, to *Token, off int, imm uint32) error {
	if c.seal != nil {
		return c.writeSealed(ctx, m, n, to.Addr+uint64(off), to.Key, imm)
	}
	if err := c.lockToSend(ctx, kindMessage); err != nil {
		return err
	}
	o := c.newOp()
	seq, _ := c.next(true)
	b := c.qp.StartSend()
	b.WriteImm(seq, uverbs.Signaled, to.Addr+uint64(off), to.Key, imm)
	if n > 0 {
		b.SGE(m.sge(n))
	}
	if err := c.post(&b, o, m); err != nil {
		c.unlock()
		return err
	}
	defer c.unlock()
	c.messages.credits--
	return c.finishOp(ctx, o)
}

// writeSealed is writeImm for a sealed connection.
func (c *Conn) writeSealed(ctx context.Context, m *memory, n int, addr uint64, key, imm uint32) error {
	c.mu.Lock()
	if !c.writable() || c.usable() != nil || ctx.Err() != nil {
		if err := c.waitToSend(ctx, needWritten); err != nil {
			return err
		}
	}
	defer c.unlock()
	o := c.newOp()
	if err := c.postWritten(o, m, n, addr, key, imm); err != nil {
		c.freeOp(o)
		return err
	}
	c.messages.credits--
	return c.finishOp(ctx, o)
}

// postWritten posts a WRITE of n bytes of m and a kindWritten, which is sealed: the immediate data of a WRITE is not.
// The caller has waited for a credit and for room for two requests, and holds c.mu.
//
// A number of the sealer is used once, also if the post is refused: a device may send what it has refused with the next
// post. The peer would miss the number, so the connection ends then. Memory that a post would refuse is found before.
func (c *Conn) postWritten(o *op, m *memory, n int, addr uint64, key, imm uint32) error {
	var from uverbs.SGE
	if n > 0 {
		if from = m.sge(n); from.Length != uint32(n) {
			return c.unposted(uverbs.ErrRange)
		}
	}
	var data [writtenLen]byte
	binary.LittleEndian.PutUint32(data[:], imm)
	binary.LittleEndian.PutUint32(data[4:], uint32(n))
	credits := c.owedCredits()
	header := packImm(kindWritten, credits, 0)
	sealed, err := c.sealInline(header, data[:])
	if err != nil {
		return c.refused(err)
	}
	seq, _ := c.next(true)
	b := c.qp.StartSend()
	if n > 0 {
		b.WriteSGE(seq, 0, addr, key, from)
	} else {
		b.Write(seq, 0, addr, key)
	}
	b.SendImm(seq+1, uverbs.Signaled, header)
	b.Inline(sealed)
	if err := b.Submit(); err != nil {
		return c.refused(err)
	}
	m.hold()
	o.pending = 2
	c.posted(request{m: m, op: o}, 0)
	c.posted(request{op: o}, uverbs.Signaled)
	c.sent(credits)
	c.stats.operations++
	return nil
}

// An atomicOp is COMPARE_SWAP of x by y, or FETCH_ADD of x.
type atomicOp struct {
	swap bool
	x, y uint64
}

func (c *Conn) atomic(ctx context.Context, t *Token, off int, a atomicOp) (uint64, error) {
	if err := t.check(off, 8, CanAtomic); err != nil {
		return 0, err
	}
	if rest := (t.Addr + uint64(off)) % 8; rest != 0 {
		return 0, fmt.Errorf("%w: an atomic operation at offset %d, the address %#x: it is %d bytes past a multiple of 8",
			ErrMisaligned, off, t.Addr+uint64(off), rest)
	}
	m, err := c.get(8)
	if err != nil {
		return 0, err
	}
	m.hold()
	defer m.drop()
	o, err := c.lockToPost(ctx)
	if err != nil {
		return 0, err
	}
	seq, _ := c.next(true)
	b := c.qp.StartSend()
	if addr := t.Addr + uint64(off); a.swap {
		b.CompareSwap(seq, uverbs.Signaled, addr, t.Key, a.x, a.y)
	} else {
		b.FetchAdd(seq, uverbs.Signaled, addr, t.Key, a.x)
	}
	b.SGE(m.sge(8))
	if err := c.submit(ctx, &b, o, m); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(m.bytes), nil
}

// lockToPost acquires c.mu, waits for room in the send queue and returns a new op. If it returns an error, the
// caller does not hold c.mu.
func (c *Conn) lockToPost(ctx context.Context) (*op, error) {
	c.mu.Lock()
	if c.room() <= 0 || c.usable() != nil || ctx.Err() != nil {
		if err := c.waitToSend(ctx, needPost); err != nil {
			return nil, err
		}
	}
	return c.newOp(), nil
}

// submit posts the batch of one request, which uses m, waits for it and releases c.mu.
func (c *Conn) submit(ctx context.Context, b *uverbs.SendBatch, o *op, m *memory) error {
	defer c.unlock()
	if err := c.post(b, o, m); err != nil {
		return err
	}
	return c.finishOp(ctx, o)
}

// post posts the batch of one request, which uses m.
func (c *Conn) post(b *uverbs.SendBatch, o *op, m *memory) error {
	if err := b.Submit(); err != nil {
		if o.share != nil {
			o.share.binding = false
		}
		c.freeOp(o)
		return c.unposted(err)
	}
	if m != nil {
		m.hold()
	}
	o.pending = 1
	c.posted(request{m: m, op: o}, uverbs.Signaled)
	c.stats.operations++
	return nil
}

// unposted returns why an operation was not posted. If the operation itself is the reason, such as memory that was
// closed meanwhile, the connection can be used further.
func (c *Conn) unposted(err error) error {
	if end := c.usable(); end != nil {
		return end
	}
	for _, own := range []error{uverbs.ErrRange, uverbs.ErrInvalid, uverbs.ErrForeignMW, uverbs.ErrClosed} {
		if errors.Is(err, own) && c.cm.Err() == nil {
			return err
		}
	}
	return c.refused(err)
}

// finishOp waits until the requests of an op have completed.
func (c *Conn) finishOp(ctx context.Context, o *op) error {
	for o.pending > 0 {
		err := c.usable()
		if err == nil {
			err = c.step(ctx, needOwn, &o.waiter)
		}
		if err != nil && o.pending > 0 {
			o.abandoned = true
			return err
		}
	}
	err := o.err
	c.freeOp(o)
	if err == nil {
		return nil
	}
	if end := c.usable(); end != nil {
		return end // another request may have failed first
	}
	return c.cause(err)
}

// opDone handles the completion of one request of an op.
func (c *Conn) opDone(o *op, err error) {
	if o.err == nil {
		o.err = err
	}
	if o.pending--; o.pending > 0 {
		return
	}
	if o.share != nil {
		o.share.bound(o.abandoned)
	}
	if o.abandoned {
		c.freeOp(o)
		return
	}
	c.waiters.Wake(o.waiter)
}

func (c *Conn) newOp() *op {
	o := c.idleOps
	if o == nil {
		return &op{}
	}
	c.idleOps = o.next
	o.next = nil
	return o
}

func (c *Conn) freeOp(o *op) {
	*o = op{next: c.idleOps}
	c.idleOps = o
}
