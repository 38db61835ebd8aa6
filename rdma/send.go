package rdma

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/uverbs"
)

// readsOffer reports whether r reads an offered message.
func (r *request) readsOffer() bool { return r.offer != nil || r.op != nil && r.op.proof }

// The send queue has some requests more than messages: READs and other requests of this side, and what the protocol
// sends beside messages.
const (
	extraSends = 16
	maxSends   = 256 // requests in the send queue

	// With shared receives, the queue has 25 entries of 320 bytes, which take 8 KiB on mlx5.
	sharedSends    = 17
	sharedReserved = 8
	sharedInline   = 124 // of inlineSize: with more, entries are larger
)

func (c *Conn) initSends() {
	depth, reserved := c.sends()
	n := 1
	for n < depth {
		n *= 2
	}
	c.requests = make([]request, n)
	c.depth, c.reserved = depth, reserved
	// Among the requests that fill the room, some must have a completion, or nothing would free it.
	c.signalEach = uint64(max(min(c.room()/2, depth/4), 1))
}

// room returns how many requests can be posted for messages and one-sided operations. Those of the protocol
// may use a few more.
func (c *Conn) room() int { return c.space() - c.reserved }

// sends returns the length of the send queue, and how many requests of the protocol there is always room for. An offer
// needs two at its end: this side invalidates the window, or tells the peer that it has read the message. A connection
// with shared receives has a short queue, and what the protocol sends may wait for room.
func (c *Conn) sends() (depth, reserved int) {
	if c.shared != nil {
		return min(2*c.options.Depth, sharedSends) + sharedReserved, sharedReserved
	}
	reserved = extraSends + 4*c.options.Offers
	return min(2*c.options.Depth, maxSends) + reserved, reserved
}

func (c *Conn) space() int { return c.depth - int(c.tail-c.head) }

func (c *Conn) sendable() bool  { return c.messages.credits > 0 && c.room() > 0 }
func (c *Conn) writable() bool  { return c.messages.credits > 0 && c.room() > 1 }
func (c *Conn) replyable() bool { return c.replies.credits > 0 && c.room() > 0 }

// Send sends a message and returns when b may be used again. If the peer has not released enough of the
// earlier messages, Send waits. Messages arrive in the order of the calls. An error that occurs
// after Send has returned is that of later calls. [Conn.Close] returns an error if a message may not have been
// delivered. To learn that it has been processed, wait for a reply.
//
// Send returns context.Cause(ctx) if ctx ends before the message is sent; then the peer does not get it,
// and the connection can be used further. It returns [ErrTooLong] if the message is longer than
// Options.MaxMessage of the peer, and what [Conn.Err] returns if the connection has ended. Memory is
// allocated for messages of more than 128 bytes, with the errors of [Conn.Alloc].
func (c *Conn) Send(ctx context.Context, b []byte) error {
	if err := c.send(ctx, kindMessage, 0, b, nil); err != nil {
		return c.opError("send to", err)
	}
	return nil
}

// SendBuffer sends the bytes of a buffer without a copy, and releases it when the peer has received them. On a sealed
// connection ([Conn.Sealed]) it copies them and releases the buffer at once, and returns [uverbs.ErrInvalid] for memory
// of a [RegionFunc] that this process cannot read.
// If it returns an error, the buffer still belongs to the caller. See [Conn.Send].
//
// The Buffer of a [Message] can be sent to forward the message: on any connection through the same device, or on any
// connection if the message is not longer than Options.EagerSize of the one that has received it. Such a short message
// is copied and released at once, so that its sender may go on. SendBuffer returns [ErrForeign] for memory of another
// device.
func (c *Conn) SendBuffer(ctx context.Context, b Buffer) error {
	if err := c.sendBuffer(ctx, kindMessage, 0, b, nil); err != nil {
		return c.opError("send to", err)
	}
	return nil
}

// send sends a message of kind k: b and, behind it or its offer, the trailer t of a call.
func (c *Conn) send(ctx context.Context, k kind, number int, b, t []byte) error {
	if len(b)+len(t) <= c.inline {
		if err := c.lockToSend(ctx, k); err != nil {
			return err
		}
		err := c.postInline(k, number, b, t)
		c.unlock()
		return err
	}
	if len(b) > c.remote.maxMessage {
		return c.tooLong(len(b))
	}
	room := len(b)
	if room+len(t) <= c.remote.eager { // otherwise, t is sent with the offer
		room += len(t) + c.tag
	}
	m, err := c.get(room)
	if err != nil {
		return err
	}
	m.hold()
	copy(m.bytes, b)
	copy(m.bytes[len(b):room], t)
	if err := c.sendMemory(ctx, k, number, m, len(b), t); err != nil {
		m.drop()
		return err
	}
	return nil
}

func (c *Conn) tooLong(n int) error {
	return fmt.Errorf("%w: a message of %d bytes: the peer's Options.MaxMessage is %d", ErrTooLong, n, c.remote.maxMessage)
}

func (c *Conn) sendBuffer(ctx context.Context, k kind, number int, b Buffer, t []byte) error {
	if b.received() || c.seal != nil {
		return c.forward(ctx, k, number, b, t)
	}
	if err := c.hold("SendBuffer", b); err != nil {
		return err
	}
	n := int(b.m.n.Load())
	if n > c.remote.maxMessage {
		b.m.drop()
		return c.tooLong(n)
	}
	var err error
	copies := b.m.readOnly && n+len(t) > c.remote.eager && !c.binds
	switch {
	case !copies && (len(t) == 0 || n+len(t) > c.remote.eager):
		err = c.sendMemory(ctx, k, number, b.m, n, t)
	case b.m.bytes == nil && n > 0: // there is nothing to copy
		err = c.offer(ctx, k, number, b.m, n, t)
	default: // no window for them is possible, or the trailer has to be behind the bytes
		defer b.m.drop()
		return c.forward(ctx, k, number, b, t)
	}
	if err != nil {
		b.m.drop()
		return err
	}
	b.disown()
	return nil
}

// forward sends a copy of a buffer, for example of a message that is in a receive or that is to be sealed, and releases
// it.
func (c *Conn) forward(ctx context.Context, k kind, number int, b Buffer, t []byte) error {
	if c.seal != nil {
		if n, ok := b.copyable(); !ok {
			return fmt.Errorf("%w: %d bytes of a RegionFunc, which this process cannot seal: let the peer read them by Share, "+
				"or send them on a connection without Options.Seal", uverbs.ErrInvalid, n)
		}
	}
	err := b.withBytes("SendBuffer", func(p []byte) error { return c.send(ctx, k, number, p, t) })
	if err == nil {
		b.disown()
	}
	return err
}

// sendMemory sends n bytes of m. The caller's use of m passes to the request. If there is room for it in the same SEND,
// the trailer t is also in m, behind the n bytes.
func (c *Conn) sendMemory(ctx context.Context, k kind, number int, m *memory, n int, t []byte) error {
	if n+len(t) > c.remote.eager {
		return c.offer(ctx, k, number, m, n, t)
	}
	if err := c.lockToSend(ctx, k); err != nil {
		return err
	}
	defer c.unlock()
	seq, flags := c.next(false)
	credits := c.owedCredits()
	if k == kindMessage {
		number = c.takenNumber()
	}
	imm, size := packImm(k, credits, number), n+len(t)
	if c.seal != nil {
		var err error
		if size, err = c.sealMemory(imm, m, size); err != nil {
			return c.refused(err)
		}
	}
	b := c.qp.StartSend()
	b.SendImm(seq, flags, imm)
	b.SGE(m.sge(size))
	if err := b.Submit(); err != nil {
		return c.refused(err)
	}
	c.posted(request{m: m, carries: uint8(k.base()) + 1}, flags)
	c.sent(credits)
	if k == kindMessage {
		c.sentTaken(number)
	}
	c.countSent(k, number, n)
	return nil
}

// countSent records that a message or reply of n bytes was posted or offered, which uses a credit.
func (c *Conn) countSent(k kind, number, n int) {
	c.flow(k).credits--
	if k.base() == kindCall {
		c.calls.all[number].sent = true
	}
	c.stats.sent++
	c.stats.sentBytes += uint64(n)
}

// postInline sends data and, behind it, a trailer. The caller holds c.mu and has waited for a credit.
func (c *Conn) postInline(k kind, number int, data, trailer []byte) (err error) {
	if k == kindMessage {
		number = c.takenNumber()
	}
	if len(trailer) == 0 {
		err = c.postControl(k, number, data, false)
	} else {
		err = c.postJoined(k, number, data, trailer)
	}
	if err != nil {
		return c.refused(err)
	}
	if k == kindMessage {
		c.sentTaken(number)
	}
	c.countSent(k, number, len(data))
	return nil
}

// postJoined is postControl for data in two parts.
func (c *Conn) postJoined(k kind, number int, a, b []byte) error {
	var room [2 * inlineSize]byte // a device may have room for more than inlineSize
	return c.postControl(k, number, append(append(room[:0], a...), b...), false)
}

// postControl posts a SEND of up to c.inline bytes. It returns the error of the post.
func (c *Conn) postControl(k kind, number int, data []byte, signal bool) error {
	seq, flags := c.next(signal)
	credits := c.owedCredits()
	imm := packImm(k, credits, number)
	if c.seal != nil {
		var err error
		if data, err = c.sealInline(imm, data); err != nil {
			return err
		}
	}
	b := c.qp.StartSend()
	b.SendImm(seq, flags, imm)
	b.Inline(data)
	if err := b.Submit(); err != nil {
		return err
	}
	var r request
	if k.base() <= kindReply {
		r.carries = uint8(k.base()) + 1
	}
	c.posted(r, flags)
	c.sent(credits)
	return nil
}

// sentTaken records that a message has carried number: see takenNumber.
func (c *Conn) sentTaken(number int) {
	if number > 0 {
		c.control.taken = c.control.taken[:len(c.control.taken)-1]
	}
}

// next returns the number of the next request, and its flags. Of the requests that nothing waits for, only
// some have completions. Close waits for all.
func (c *Conn) next(signal bool) (seq uint64, flags uverbs.SendFlags) {
	if signal || c.closing || c.tail-c.signaled >= c.signalEach {
		flags = uverbs.Signaled
	}
	return c.tail, flags
}

// posted records a request.
func (c *Conn) posted(r request, flags uverbs.SendFlags) {
	c.requests[c.tail&uint64(len(c.requests)-1)] = r
	if flags&uverbs.Signaled != 0 {
		c.signaled = c.tail
	}
	c.tail++
	local := r.window != nil || r.op != nil && r.op.share != nil
	c.busy = c.busy || !local
}

// lockToSend acquires c.mu and waits until a message of kind k can be sent. If it returns an error, the caller does not
// hold c.mu.
func (c *Conn) lockToSend(ctx context.Context, k kind) error {
	c.mu.Lock()
	switch {
	case c.flow(k).credits > 0 && c.room() > 0 && c.usable() == nil && ctx.Err() == nil:
		return nil
	case k.base() == kindReply:
		return c.waitToSend(ctx, needReply)
	}
	return c.waitToSend(ctx, needSend)
}

// waitToSend waits until a call with a need can go on. The caller holds c.mu, and not any more if waitToSend returns an
// error.
func (c *Conn) waitToSend(ctx context.Context, need int) error {
	if need == needReply || need == needReplyOffer {
		return c.waitToReply(ctx, need)
	}
	return c.waitFor(ctx, need)
}

func (c *Conn) waitFor(ctx context.Context, need int) error {
	since, turn := time.Now(), c.nextTurn()
	for {
		err := c.usable()
		switch {
		case err != nil:
		case ctx.Err() != nil:
			err = c.blocked(need, ctxerr.Of(ctx))
		case c.ready(need):
			c.stalled(since)
			return nil
		default:
			if err = c.stepAt(ctx, turn, need, nil); err != nil {
				err = c.blocked(need, err)
			}
		}
		if err != nil {
			c.unlock()
			return err
		}
	}
}

// replyPatience is how long a reply waits for a peer that accepts none. A peer with this package accepts replies while
// any call of it waits, whatever its program releases: see flow.go. A long reply also waits until the peer has read
// those before.
const replyPatience = 2 * time.Minute

// waitToReply is waitToSend for a reply. If the peer accepts none for replyPatience, waitToReply ends the connection.
func (c *Conn) waitToReply(ctx context.Context, need int) error {
	bounded, cancel := context.WithTimeoutCause(ctx, c.calls.replyPatience, ErrReplyTimeout)
	defer cancel()
	c.calls.replying++
	err := c.waitFor(bounded, need)
	if err == nil {
		c.calls.replying--
		return nil
	}
	c.mu.Lock()
	defer c.unlock()
	c.calls.replying--
	if errors.Is(err, ErrReplyTimeout) && c.err == nil {
		return c.refused(ErrReplyTimeout)
	}
	return err
}

// blocked adds to the error of a call with a need what it has waited for, if that is the peer's program.
func (c *Conn) blocked(need int, err error) error {
	k := kindMessage
	if need == needReply || need == needReplyOffer {
		k = kindReply
	}
	if !needsCredit(need) || c.flow(k).credits > 0 {
		return err
	}
	err = fmt.Errorf("%w: the peer has not released earlier messages, of which it holds as many as it has room for", err)
	if c.count > 0 {
		err = fmt.Errorf("%w; %d messages of the peer wait for Recv on this side: if the peer waits for their release, "+
			"receive in another goroutine than that which sends", err, c.count)
	}
	return err
}

// requestDone handles the completion of a send request, and so of those before it.
func (c *Conn) requestDone(wc *uverbs.WC) {
	err := wc.Err()
	known := wc.WRID-c.head < c.tail-c.head
	if err != nil {
		if errors.Is(err, uverbs.WCRemAccessErr) {
			if known && c.requests[wc.WRID&uint64(len(c.requests)-1)].readsOffer() {
				err = &unreadable{err}
			} else {
				err = &forbidden{err}
			}
		}
		c.fail(err)
	}
	if !known {
		return // a completion that was lost and came again does not exist
	}
	for c.head <= wc.WRID {
		r := c.requests[c.head&uint64(len(c.requests)-1)]
		c.requests[c.head&uint64(len(c.requests)-1)] = request{}
		c.head++
		if c.head <= wc.WRID {
			c.finish(&r, nil)
		} else {
			c.finish(&r, err)
		}
	}
}

// finish ends a request.
func (c *Conn) finish(r *request, err error) {
	if err != nil && r.carries > 0 {
		c.failed.add(kind(r.carries - 1))
	}
	if r.op != nil {
		c.opDone(r.op, err)
	}
	if r.offer != nil {
		c.fetched(r.offer, err)
	}
	if r.window != nil {
		c.windowFree(r.window)
		for _, o := range r.window.flushes {
			c.opDone(o, nil)
		}
		r.window.flushes = r.window.flushes[:0]
	}
	if r.m != nil {
		r.m.drop()
	}
}

// dropRequests ends the requests that have not completed, when the QP no longer exists.
func (c *Conn) dropRequests() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; c.head != c.tail; c.head++ {
		r := &c.requests[c.head&uint64(len(c.requests)-1)]
		c.finish(r, c.err)
		*r = request{}
	}
}
