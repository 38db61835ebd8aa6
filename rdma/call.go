package rdma

import (
	"context"
	"fmt"
)

// Call sends a message and waits for the peer's reply to it: see [Message.Reply]. Other messages of the peer
// are received by Recv. Up to 1024 calls may wait on a connection; further ones wait for their turn.
//
// Call returns context.Cause(ctx) if ctx ends first. The peer may have got the call then: the context of its handler
// ends (see [Message.Context]), and its reply is dropped. As long as the peer does not reply, the call is one of the
// 1024. The error of a call that has waited for its turn says so. The other errors are those of [Conn.Send] and
// [Conn.Recv]. The first Call registers memory for replies, with the errors of [Conn.Alloc]. The caller releases the
// reply.
func (c *Conn) Call(ctx context.Context, b []byte) (Message, error) {
	return c.call(ctx, func(number int) error { return c.send(ctx, kindCall, number, b) })
}

// CallBuffer is Call with the bytes of a buffer, which it sends as [Conn.SendBuffer] does.
func (c *Conn) CallBuffer(ctx context.Context, b Buffer) (Message, error) {
	return c.call(ctx, func(number int) error { return c.sendBuffer(ctx, kindCall, number, b) })
}

func (c *Conn) call(ctx context.Context, send func(number int) error) (Message, error) {
	k, err := c.newCall(ctx)
	if err == nil {
		if err = send(k.number); err != nil {
			c.mu.Lock()
			c.unsent(k)
			c.unlock()
		}
	}
	if err != nil {
		return Message{}, c.opError("call", err)
	}
	m, err := c.await(ctx, k)
	if err != nil {
		return Message{}, c.opError("call", err)
	}
	return m, nil
}

// newCall waits for a free number.
func (c *Conn) newCall(ctx context.Context) (*call, error) {
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
	k.used, k.waiting = true, true
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
		if k.replied && (k.m.large == nil || k.m.large.done) {
			m := c.deliver(k.m)
			c.freeCall(k)
			return m, nil
		}
		err := c.usable()
		if err != nil && (c.closing || c.err != nil || !k.replied) { // the peer waits until a reply has been read
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

// reply marks a call of the peer as replied to. It returns its context, or nil.
func (c *Conn) reply(m Message) (*callContext, error) {
	if m.kind != kindCall {
		return nil, ErrNotCall
	}
	c.mu.Lock()
	defer c.unlock()
	a := &c.calls.asked[m.number]
	if a.serial != m.serial {
		return nil, ErrNotCall
	}
	x := a.ctx
	a.serial, a.ctx = 0, nil
	return x, nil
}

// unreply undoes reply after the reply could not be sent.
func (c *Conn) unreply(m Message, x *callContext) {
	c.mu.Lock()
	defer c.unlock()
	a := &c.calls.asked[m.number]
	if a.serial != 0 { // the reply has arrived in spite of the error, and the peer has called again with the number
		delete(c.contexts, x)
		x.end(errReplied)
		return
	}
	a.serial, a.ctx = m.serial, x
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
// those it may be called again.
func (m Message) Reply(ctx context.Context, b []byte) error {
	return m.sendReply(func() error { return m.c.send(ctx, kindReply, m.number, b) })
}

// ReplyBuffer replies with the bytes of a buffer, as [Conn.SendBuffer] sends them. See [Message.Reply].
func (m Message) ReplyBuffer(ctx context.Context, b Buffer) error {
	return m.sendReply(func() error { return m.c.sendBuffer(ctx, kindReply, m.number, b) })
}

func (m Message) sendReply(send func() error) error {
	if m.c == nil {
		return ErrNotCall
	}
	x, err := m.c.reply(m)
	if err == nil {
		if err = send(); err != nil {
			m.c.unreply(m, x)
		}
	}
	if err != nil {
		return m.c.opError("reply to", err)
	}
	m.c.endContext(x, errReplied)
	return nil
}
