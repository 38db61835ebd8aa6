package rdma

import "fmt"

// A side sends a message only if the other has a receive for it: it needs a credit. The peer sends credits when its
// program has released messages. Replies have separate receives and credits, so that they do not wait for messages
// that the peer's program has not released: it may release them only after a reply.
//
// Replies also do not wait for a program that does not release replies: see moveReply. So a reply waits at most until
// any call that waits on the other side handles the replies before. It does not wait at all if no more than replyDepth
// calls have had no reply.

// replyDepth returns how many receives for replies a side has after its first call, if it has depth for messages.
func replyDepth(depth int) int { return min(depth, maxReplies) }

// flow returns the flow of messages of kind k.
func (c *Conn) flow(k kind) *flow {
	if k.base() == kindReply {
		return &c.replies
	}
	return &c.messages
}

// use records that the peer has used a credit.
func (f *flow) use() error {
	if f.granted == 0 {
		return fmt.Errorf("%w: a message without a credit", ErrProtocol)
	}
	f.granted--
	return nil
}

// get records that the peer has sent n credits.
func (f *flow) get(n int) error {
	if f.credits+n > f.most {
		return fmt.Errorf("%w: %d credits beside %d: it has %d receives", ErrProtocol, n, f.credits, f.most)
	}
	f.credits += n
	return nil
}

func (c *Conn) getCredits(n credits) error {
	if err := c.messages.get(n.messages); err != nil {
		return err
	}
	return c.replies.get(n.replies)
}

// startReplies posts the receives for replies, before the first call. The caller holds c.mu, which startReplies
// releases meanwhile.
func (c *Conn) startReplies() error {
	c.unlock()
	c.receiving.Lock()
	defer c.receiving.Unlock()
	c.mu.Lock()
	f := &c.replies
	if f.receives > 0 || c.usable() != nil {
		return c.usable()
	}
	first, n := c.filled, replyDepth(c.messages.receives+c.messages.withheld)
	c.unlock()
	err := c.allocReceives(n)
	c.mu.Lock()
	switch end := c.usable(); {
	case err != nil:
		return c.orEndLocked(err)
	case end != nil:
		return end
	}
	if err := c.postReceives(c.slots[first:c.filled]); err != nil {
		return c.refused(err)
	}
	f.receives, f.owed = n, n
	return nil
}

// owe records that the peer is to get a credit for a message. It is sent with the next message, or alone if more than
// half of the credits are owed or the peer has none.
func (c *Conn) owe() {
	c.messages.owed++
	c.checkOwed()
}

func (c *Conn) checkOwed() {
	if f := &c.messages; f.granted == 0 || 2*f.owed > f.receives {
		c.control.credits = true
	}
}

// creditsDue reports whether credits are to be sent although no message carries them. Waits is whether the caller
// is about to wait.
func (c *Conn) creditsDue(waits bool) bool {
	f := &c.replies
	return c.control.credits || waits && c.messages.granted == 0 && c.messages.owed > 0 ||
		f.owed > 0 && f.granted < c.calls.pending && (f.granted == 0 || 2*f.owed >= f.receives)
}

func (c *Conn) owedCredits() credits { return credits{c.messages.owed, c.replies.owed} }

// sent records that credits were sent.
func (c *Conn) sent(n credits) {
	c.messages.owed -= n.messages
	c.messages.granted += n.messages
	c.replies.owed -= n.replies
	c.replies.granted += n.replies
	c.control.credits = false
}

// sendControl sends what the protocol is to send, as far as there is room. Unless all is set, it leaves what can wait
// for a message of the program, because the call goes on and the peer can, too.
func (c *Conn) sendControl(all bool) {
	k := &c.control
	credits := c.creditsDue(all)
	if c.err != nil || c.failure != nil ||
		!credits && !k.invalidate && len(k.taken) == 0 && c.cancels.owed == 0 && !c.cancelable() {
		return
	}
	if c.cancelable() && c.space() > 0 {
		if err := c.sendCancels(); err != nil {
			c.fail(err)
			return
		}
		credits = c.creditsDue(all) // they have carried credits
	}
	for len(k.taken) > 0 && c.space() > 0 && (all || 2*len(k.taken) >= c.options.Offers) {
		n := k.taken[len(k.taken)-1]
		k.taken = k.taken[:len(k.taken)-1]
		if err := c.postControl(kindTaken, n, nil, false); err != nil {
			c.fail(err)
			return
		}
		credits = false // it has carried them
	}
	if k.invalidate && c.invalidate() {
		k.invalidate = false
	}
	if f := &c.cancels; (credits || f.owed > 0) && c.space() > 0 {
		n := f.owed
		f.owed, f.granted = 0, f.granted+n
		if err := c.postControl(kindCredits, n, nil, false); err != nil {
			c.fail(err)
		}
	}
}

// takenNumber returns the number that a message carries: one more than the number of an offer that has been read, or 0.
func (c *Conn) takenNumber() int {
	k := &c.control
	if len(k.taken) == 0 {
		return 0
	}
	return k.taken[len(k.taken)-1] + 1
}
