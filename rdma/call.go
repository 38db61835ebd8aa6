package rdma

import (
	"context"
	"fmt"
)

// maxCalls is how many calls may wait for a reply in each direction.
const maxCalls = 1024

// calls are the calls of this side and those of the peer.
type calls struct {
	all  []*call // by number
	free []int   // numbers
	// asked has, by number, the serial number of the peer's call that has had no reply, or 0.
	asked  []uint32
	serial uint32
}

// A call waits for a reply.
type call struct {
	number  int
	used    bool // no other call may have the number
	waiting bool // a caller waits
	replied bool
	m       Message
	waiter  *waiter
}

// Call sends a message and waits for the peer's reply to it: see [Message.Reply]. Other messages of the peer
// are received by Recv. Up to 1024 calls may wait on a connection; further ones wait for their turn.
//
// Call returns context.Cause(ctx) if ctx ends first. The peer may have got the call then; its reply is dropped. The
// other errors are those of [Conn.Send] and [Conn.Recv]. The caller releases the reply.
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
			c.freeCall(k) // the peer has not got it
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
	defer c.unlock()
	for {
		if err := c.usable(); err != nil {
			return nil, err
		}
		if n := len(c.calls.free); n > 0 {
			k := c.calls.all[c.calls.free[n-1]]
			c.calls.free = c.calls.free[:n-1]
			k.used, k.waiting = true, true
			return k, nil
		}
		if n := len(c.calls.all); n < maxCalls {
			k := &call{number: n, used: true, waiting: true}
			c.calls.all = append(c.calls.all, k)
			return k, nil
		}
		if err := c.step(ctx, &c.callers, nil); err != nil {
			return nil, err
		}
	}
}

// callable reports whether a call can have a number.
func (c *Conn) callable() bool { return len(c.calls.free) > 0 || len(c.calls.all) < maxCalls }

// freeCall makes the number of a call available.
func (c *Conn) freeCall(k *call) {
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
		list := &c.others
		if k.replied && !k.m.large.reading {
			if c.room() > 0 {
				if err := c.fetch(k.m.large); err != nil {
					c.abandon(k)
					return Message{}, err
				}
				continue
			}
			list = &c.posters // until there is room
		}
		if err := c.step(ctx, list, &k.waiter); err != nil {
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
	}
}

// endCalls wakes the calls when the connection has ended.
func (c *Conn) endCalls() {
	for _, k := range c.calls.all {
		c.wake(k.waiter)
	}
}

// replied handles a reply.
func (c *Conn) replied(m Message) error {
	m.c = c
	if m.number >= len(c.calls.all) {
		return errNotCalled
	}
	k := c.calls.all[m.number]
	switch {
	case !k.used || k.replied:
		return errNotCalled
	case !k.waiting:
		c.freeCall(k)
		c.drop(m)
		return nil
	}
	k.m, k.replied = m, true
	if m.large != nil {
		m.large.call = k
		c.prefetch(m.large)
	}
	c.wake(k.waiter)
	return nil
}

var errNotCalled = fmt.Errorf("%w: a reply to no call", ErrProtocol)

// drop drops a message that nobody waits for.
func (c *Conn) drop(m Message) {
	large := m.large
	switch {
	case large == nil:
		c.repost(m.Buffer.m)
		c.owe()
	case large.reading:
		large.dropped, large.call = true, nil
	case large.done:
		large.m.drop()
		c.freeIncoming(large)
		c.owe()
	default: // it need not be read
		c.offers--
		c.control.taken = append(c.control.taken, large.number)
		c.freeIncoming(large)
		c.owe()
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
		k.asked = append(k.asked, 0)
	}
	if k.asked[number] != 0 {
		return 0, fmt.Errorf("%w: another call with number %d", ErrProtocol, number)
	}
	if k.serial++; k.serial == 0 {
		k.serial = 1
	}
	k.asked[number] = k.serial
	return k.serial, nil
}

// reply marks a call of the peer as replied to.
func (c *Conn) reply(m Message) error {
	if m.kind != kindCall {
		return ErrNotCall
	}
	c.mu.Lock()
	defer c.unlock()
	if c.calls.asked[m.number] != m.serial {
		return ErrNotCall
	}
	c.calls.asked[m.number] = 0
	return nil
}

// unreply undoes reply after the reply could not be sent.
func (c *Conn) unreply(m Message) {
	c.mu.Lock()
	defer c.unlock()
	c.calls.asked[m.number] = m.serial
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
	err := m.c.reply(m)
	if err == nil {
		if err = send(); err != nil {
			m.c.unreply(m)
		}
	}
	if err != nil {
		return m.c.opError("reply to", err)
	}
	return nil
}
