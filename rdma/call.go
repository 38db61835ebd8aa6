package rdma

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// Call sends a message and waits for the peer's reply to it: see [Message.Reply]. Other messages of the peer
// are received by Recv. Up to 1024 calls may wait on a connection; further ones wait for their turn.
//
// The peer's handler gets the deadline of ctx, as the time that is left, and what [WithMetadata] has set. The deadline
// is left out if the request fits into the peer's Options.EagerSize and the 13 bytes of the deadline do not. The
// context of the handler still ends when Call returns. If the handler returns an error, that of Call is a [*CallError],
// and the connection can be used further.
//
// Call returns context.Cause(ctx) if ctx ends first. The peer may have got the call then: the context of its handler
// ends (see [Message.Context]), and its reply is dropped. As long as the peer does not reply, the call is one of the
// 1024. The error of a call that has waited for its turn says so. The other errors are those of [Conn.Send] and
// [Conn.Recv]. The first Call registers memory for replies, with the errors of [Conn.Alloc]. The caller releases the
// reply.
func (c *Conn) Call(ctx context.Context, b []byte) (Message, error) {
	return c.call(ctx, nil, len(b), true, func(k kind, number int, t []byte) error {
		return c.send(ctx, k, number, b, t)
	})
}

// CallBuffer is Call with the bytes of a buffer, which it sends as [Conn.SendBuffer] does. It copies those of a short
// one, which is not longer than Options.EagerSize of the peer, if ctx has a deadline or metadata. When the call was
// sent, the buffer is released, also if CallBuffer then returns an error, such as a [*CallError] or that of ctx.
// Otherwise it still belongs to the caller. [Buffer.Cap] says which: it is 0 after the release. On a sealed connection
// ([Conn.Sealed]) it copies the bytes and releases the buffer at once, and returns [uverbs.ErrInvalid] for memory of a
// [RegionFunc] that this process cannot read.
func (c *Conn) CallBuffer(ctx context.Context, b Buffer) (Message, error) {
	n, copied := b.copyable()
	return c.call(ctx, nil, n, copied, func(k kind, number int, t []byte) error {
		return c.sendBuffer(ctx, k, number, b, t)
	})
}

// call makes a call with a body of n bytes, which send sends with the trailer t. Copied is whether a trailer can be
// behind the body. If into is not nil, a long reply is read into it.
func (c *Conn) call(ctx context.Context, into *memory, n int, copied bool,
	send func(k kind, number int, t []byte) error) (Message, error) {
	since := time.Now()
	k, err := c.newCall(ctx, into)
	if err == nil {
		if err = c.sendCall(ctx, k, n, copied, send); err != nil {
			c.mu.Lock()
			c.unsent(k)
			c.unlock()
		}
	}
	var m Message
	if err == nil {
		m, err = c.await(ctx, k)
	}
	c.countCall(since, err)
	if err != nil {
		return Message{}, c.opError("call", err)
	}
	return m, nil
}

// countCall records how a call that began at since has ended.
func (c *Conn) countCall(since time.Time, err error) {
	d := time.Since(since)
	c.mu.Lock()
	defer c.unlock()
	k := &c.stats
	if err != nil {
		k.callErrors++
		return
	}
	if k.callTimes == nil {
		k.callTimes = new(Histogram)
	}
	k.callTimes.add(d)
}

// sendCall sends a call, with a trailer if it has a deadline or metadata.
func (c *Conn) sendCall(ctx context.Context, k *call, n int, copied bool,
	send func(k kind, number int, t []byte) error) error {
	t, err := c.trailer(ctx, n, copied)
	switch {
	case err != nil:
		return err
	case t.size() == 0:
		return send(kindCall, k.number, nil)
	}
	return send(kindCallTrailer, k.number, t.appendTo(k.trailer[:0]))
}

// trailer returns the trailer of a call with a body of n bytes. A deadline is left out if the peer does not know it, or
// if the body fits into one of the peer's receives and the trailer does not.
func (c *Conn) trailer(ctx context.Context, n int, copied bool) (t trailer, err error) {
	known := c.hasTrailers()
	if o, ok := ctx.Value(outgoingKey{}).(*outgoing); ok {
		switch {
		case o.err != nil:
			return t, o.err
		case !known:
			return t, ErrNoMetadata
		}
		t.pairs = o.pairs
	}
	if deadline, ok := ctx.Deadline(); ok && known {
		t.timeout = max(time.Until(deadline), 1)
	}
	if t.timeout > 0 && !c.fits(n, copied, &t) {
		t.timeout = 0
	}
	if size := t.size(); size > 0 && !c.fits(n, copied, &t) {
		return t, fmt.Errorf("%w: the metadata of a call needs %d bytes, which do not fit into the peer's "+
			"Options.EagerSize of %d with a request of %d bytes: send less, or set it to more", ErrTooLong, size,
			c.remote.eager, n)
	}
	return t, nil
}

// newCall waits for a free number.
func (c *Conn) newCall(ctx context.Context, into *memory) (*call, error) {
	c.mu.Lock()
	if c.replies.receives == 0 && c.usable() == nil && ctx.Err() == nil {
		if err := c.startReplies(); err != nil {
			c.unlock()
			return nil, err
		}
	}
	if !c.callable() || c.usable() != nil || ctx.Err() != nil {
		full := !c.callable()
		if err := c.waitToSend(ctx, needNumber); err != nil {
			if full && ctx.Err() != nil {
				err = c.unanswered(err)
			}
			return nil, err
		}
	}
	defer c.unlock()
	var k *call
	if n := len(c.calls.free); n > 0 {
		k = c.calls.all[c.calls.free[n-1]]
		c.calls.free = c.calls.free[:n-1]
	} else {
		k = &call{number: len(c.calls.all)}
		c.calls.all = append(c.calls.all, k)
	}
	k.used, k.waiting, k.into = true, true, into
	c.calls.pending++
	return k, nil
}

// unanswered adds to the error of a call that has waited for a number why there was none.
func (c *Conn) unanswered(err error) error {
	c.mu.Lock()
	defer c.unlock()
	left := 0
	for _, k := range c.calls.all {
		if k.used && !k.waiting {
			left++
		}
	}
	return fmt.Errorf("%w: the peer has not replied to %d calls, of which %d have returned because their contexts had "+
		"ended: let the peer reply to each call, or close the connection", err, c.calls.pending, left)
}

// callable reports whether a call can have a number.
func (c *Conn) callable() bool { return len(c.calls.free) > 0 || len(c.calls.all) < maxCalls }

// unsent ends a call that was not sent.
func (c *Conn) unsent(k *call) {
	if k.replied { // the peer breaks the protocol
		c.drop(k.m)
	} else {
		c.calls.pending--
	}
	c.freeCall(k)
}

// freeCall makes the number of a call available.
func (c *Conn) freeCall(k *call) {
	c.uncancel(k)
	*k = call{number: k.number}
	c.calls.free = append(c.calls.free, k.number)
}

// await waits for the reply.
func (c *Conn) await(ctx context.Context, k *call) (Message, error) {
	c.mu.Lock()
	defer c.unlock()
	for {
		if err := k.err; err != nil {
			c.freeCall(k)
			return Message{}, err
		}
		if k.replied && (k.m.large == nil || k.m.large.done) {
			m := c.deliver(k.m)
			c.freeCall(k)
			if m.large != nil {
				return c.opened(m)
			}
			return m, nil
		}
		err := c.usable()
		if err != nil && (c.closing || c.err != nil || !k.replied) { // the peer waits until a reply has been read
			k.into = nil // Close may still handle a reply
			return Message{}, err
		}
		need := needOwn
		if k.replied && !k.m.large.reading {
			if c.room() > 0 {
				if err := c.fetch(ctx, k.m.large); err != nil {
					c.abandon(k)
					return Message{}, err
				}
				continue
			}
			need = needPost // until there is room
		}
		if err := c.step(ctx, need, &k.waiter); err != nil {
			c.abandon(k)
			return Message{}, err
		}
	}
}

// abandon ends the wait for a reply: it is dropped when it comes.
func (c *Conn) abandon(k *call) {
	k.waiting = false
	if k.replied {
		c.drop(k.m)
		c.freeCall(k)
		return
	}
	c.cancel(k)
}

// endCalls wakes the calls when the connection has ended.
func (c *Conn) endCalls() {
	for _, k := range c.calls.all {
		c.waiters.Wake(k.waiter)
	}
}

// callsOut returns how many calls of this side were sent and have had no reply.
func (c *Conn) callsOut() (n int) {
	for _, k := range c.calls.all {
		if k.sent && !k.replied {
			n++
		}
	}
	return n
}

// callsIn returns how many calls of the peer the program has received and not replied to.
func (c *Conn) callsIn() (n int) {
	for i := range c.calls.asked {
		if c.calls.asked[i].serial != 0 {
			n++
		}
	}
	for i := range c.count {
		if c.arrived[(c.first+i)%len(c.arrived)].kind == kindCall {
			n--
		}
	}
	return n
}

// replied handles a reply.
func (c *Conn) replied(m Message) error {
	if err := c.replies.use(); err != nil {
		return err
	}
	m.c = c
	if m.large == nil {
		m.Buffer.m.reply = true
	} else {
		c.replies.owed++ // its receive was posted again at once
	}
	if m.number >= len(c.calls.all) {
		return errNotCalled
	}
	k := c.calls.all[m.number]
	if !k.used || k.replied {
		return errNotCalled
	}
	c.calls.pending--
	if !k.waiting {
		c.freeCall(k)
		c.drop(m)
		return nil
	}
	if err := k.tooLong(m.n); err != nil {
		k.err, k.replied = err, true
		c.drop(m)
		c.waiters.Wake(k.waiter)
		return nil
	}
	if m.large == nil {
		c.moveReply(&m)
	} else {
		m.large.call = k
		c.prefetch(m.large)
	}
	k.m, k.replied = m, true
	c.waiters.Wake(k.waiter)
	return nil
}

// tooLong returns an error if a reply of n bytes is longer than the buffer for it.
func (k *call) tooLong(n int) error {
	if k.into == nil || int64(n) <= k.into.n.Load() {
		return nil
	}
	return fmt.Errorf("%w: a reply of %d bytes, and the buffer for it has %d: call with a longer one", ErrTooLong, n,
		k.into.n.Load())
}

// repliedError handles an error in place of a reply.
func (c *Conn) repliedError(e *CallError, m Message) error {
	if err := c.replied(m); err != nil {
		return err
	}
	if k := c.calls.all[m.number]; k.replied { // otherwise no caller waits
		k.err = e
		c.drop(k.m) // the error is a copy
		k.m = Message{}
	}
	return nil
}

// moveReply copies a reply out of its receive if that was the last one for replies. Otherwise a program that does not
// release replies until it has more of them would wait forever.
func (c *Conn) moveReply(m *Message) {
	if c.replies.granted+c.replies.owed > 0 {
		return
	}
	to, err := c.pool.get(m.n)
	if err != nil {
		return // further replies arrive when the program has released one
	}
	from := m.Buffer.m
	copy(to.bytes, from.bytes[:m.n])
	c.freeReceive(from)
	m.Buffer.m = to
}

var errNotCalled = fmt.Errorf("%w: a reply to no call", ErrProtocol)

// drop drops a reply that no call waits for.
func (c *Conn) drop(m Message) {
	large := m.large
	switch {
	case large == nil && m.Buffer.m == nil: // see repliedError
		return
	case large == nil && m.Buffer.m.pool != nil: // see moveReply
		c.pool.put(m.Buffer.m)
	case large == nil:
		c.freeReceive(m.Buffer.m)
	case large.reading:
		large.dropped, large.call = true, nil
	case large.done:
		large.m.drop()
		c.freeIncoming(large)
	default: // it need not be read
		c.flow(m.kind).offers--
		c.control.taken = append(c.control.taken, large.number)
		c.freeIncoming(large)
	}
	c.sendControl(false)
}

// ask records a call of the peer and returns its serial number.
func (c *Conn) ask(number int) (uint32, error) {
	k := &c.calls
	if number >= maxCalls {
		return 0, fmt.Errorf("%w: a call with number %d", ErrProtocol, number)
	}
	for len(k.asked) <= number {
		k.asked = append(k.asked, asked{canceled: true})
	}
	if k.asked[number].serial != 0 {
		return 0, fmt.Errorf("%w: another call with number %d", ErrProtocol, number)
	}
	if k.serial++; k.serial == 0 {
		k.serial = 1
	}
	k.asked[number] = asked{serial: k.serial}
	return k.serial, nil
}

// repliedVariant handles a reply with a trailer, or an error in place of a reply.
func (c *Conn) repliedVariant(m Message) error {
	b := m.Buffer.m.bytes[:m.n]
	if !c.hasReplyTrailers() {
		e, err := parseCallError(b)
		if err != nil {
			return err
		}
		return c.repliedError(e, m)
	}
	body, t, err := cutTrailer(b)
	if err != nil {
		return err
	}
	x, err := t.termsOfReply()
	if err != nil {
		return err
	}
	if t.code > 0 {
		e, err := newCallError(Code(t.code), body)
		if err != nil {
			return err
		}
		e.pairs = string(x.pairs)
		return c.repliedError(e, m)
	}
	m.n, m.terms = len(body), &x
	return c.replied(m)
}

// Metadata returns what the peer has sent beside a call by [WithMetadata], or nil: if there is none, and when the call
// has its reply. A [Handler] has it until it returns: [Request.Metadata]. Of a reply that [Conn.Call] has returned, it
// returns what the peer has set by [Message.SetReplyMetadata], also after Release. Other messages have none.
func (m Message) Metadata() map[string]string {
	return decodePairs(m.pairs())
}

// pairs returns the encoded metadata of a reply, or of a call that has no reply yet, or nil.
func (m Message) pairs() []byte {
	if m.kind != kindCall {
		if m.terms != nil {
			return m.terms.pairs
		}
		return nil
	}
	m.c.mu.Lock()
	defer m.c.unlock()
	a := &m.c.calls.asked[m.number]
	if a.serial != m.serial {
		return nil
	}
	return a.terms.pairs
}

// reply marks a call of the peer as replied to. It returns what it was.
func (c *Conn) reply(m Message) (asked, error) {
	if m.kind != kindCall {
		return asked{}, ErrNotCall
	}
	c.mu.Lock()
	defer c.unlock()
	a := &c.calls.asked[m.number]
	if a.serial != m.serial {
		return asked{}, ErrNotCall
	}
	was := *a
	a.serial, a.ctx, a.terms, a.out = 0, nil, terms{}, nil
	return was, nil
}

// unreply undoes reply after the reply could not be sent.
func (c *Conn) unreply(m Message, was asked) {
	c.mu.Lock()
	defer c.unlock()
	a, x := &c.calls.asked[m.number], was.ctx
	if a.serial != 0 { // the reply has arrived in spite of the error, and the peer has called again with the number
		delete(c.contexts, x)
		x.end(errReplied)
		return
	}
	a.serial, a.ctx, a.terms, a.out = m.serial, x, was.terms, was.out
	if a.canceled {
		x.end(errCanceled)
	}
}

// endContext ends the context of a call that has its reply, or whose handler has returned.
func (c *Conn) endContext(x *callContext, cause error) {
	if x == nil {
		return
	}
	x.end(cause)
	c.mu.Lock()
	defer c.unlock()
	delete(c.contexts, x)
}

// IsCall reports whether the peer waits for a reply: see [Conn.Call] and [Message.Reply].
func (m Message) IsCall() bool { return m.kind == kindCall }

// Reply replies to a call, once, before or after Release. Calls may be replied to in any order. Reply
// returns [ErrNotCall] if the message is not a call or has had its reply, and the errors of [Conn.Send]; after
// those it may be called again. If the peer accepts no reply for two minutes, the connection ends with
// [ErrReplyTimeout].
func (m Message) Reply(ctx context.Context, b []byte) error {
	return m.sendReply(func(out *outgoing) error {
		k, t, err := m.c.replyTrailer(out, len(b), true)
		if err != nil {
			return err
		}
		return m.c.send(ctx, k, m.number, b, t)
	})
}

// ReplyBuffer replies with the bytes of a buffer, as [Conn.SendBuffer] sends them. See [Message.Reply].
func (m Message) ReplyBuffer(ctx context.Context, b Buffer) error {
	return m.sendReply(func(out *outgoing) error {
		n, copied := b.copyable()
		k, t, err := m.c.replyTrailer(out, n, copied)
		if err != nil {
			return err
		}
		return m.c.sendBuffer(ctx, k, m.number, b, t)
	})
}

// ReplyError replies to a call with an error, which [Conn.Call] of the peer returns as a [*CallError]. Its code and
// text are those of err if that is a *CallError; otherwise the text is that of err, and the code that of a *CallError
// which err wraps, of an error of a context, or [CodeUnknown]. The code of the error of another [Conn.Call] is not
// passed on: it says something about another server. To pass it on, get the *CallError by errors.As. What the text has
// beyond 1024 bytes, or beyond the peer's Options.EagerSize, is left out. See [Message.Reply].
//
// A peer whose version of this package does not know errors of calls learns of it by the end of the connection:
// ReplyError calls [Conn.CloseWithError] with code and text then, and returns the [*CloseError]. If the peer has
// canceled the call, it gets an empty reply instead, and the connection goes on.
func (m Message) ReplyError(ctx context.Context, err error) error {
	switch {
	case m.c == nil:
		return ErrNotCall
	case err == nil:
		return m.c.opError("reply to", fmt.Errorf("%w: ReplyError without an error: use Reply", uverbs.ErrInvalid))
	}
	e := callErrorOf(err)
	if !m.c.hasTrailers() {
		return m.refuse(ctx, e)
	}
	return m.sendReply(func(out *outgoing) error {
		body, t := m.c.encodeError(e, out)
		return m.c.send(ctx, kindError, m.number, body, t)
	})
}

// refuse closes the connection with the error of a call, unless the peer has canceled the call: then it does not look
// at the reply.
func (m Message) refuse(ctx context.Context, e *CallError) error {
	c := m.c
	wants, canceled := false, false
	if m.kind == kindCall {
		c.mu.Lock()
		a := &c.calls.asked[m.number]
		wants, canceled = a.serial == m.serial, a.canceled
		c.unlock()
	}
	switch {
	case !wants:
		return c.opError("reply to", ErrNotCall)
	case canceled:
		return m.Reply(ctx, nil)
	}
	err := c.CloseWithError(uint64(e.Code), e.Text)
	return c.opError("reply to", errors.Join(c.Err(), err))
}

// sendReply replies to a call by send, which gets the metadata that was set.
func (m Message) sendReply(send func(out *outgoing) error) error {
	if m.c == nil {
		return ErrNotCall
	}
	was, err := m.c.reply(m)
	if err == nil {
		if err = send(was.out); err != nil {
			m.c.unreply(m, was)
		}
	}
	if err != nil {
		return m.c.opError("reply to", err)
	}
	m.c.endContext(was.ctx, errReplied)
	return nil
}
