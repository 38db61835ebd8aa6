package rdma

import (
	"context"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/internal/lead"
)

// Nothing runs in the background of a connection. A call that waits polls the completion queue itself, or sleeps while
// another does: see package lead. Of the calls that send, the one that has waited longest comes first: a long message
// would wait forever while others have short ones to send.

// What calls wait for.
const (
	needOwn        = iota // their own completion, which wakes them
	needMessage           // Recv
	needSend              // to send a message
	needWritten           // to write with a sealed notice
	needOffer             // to offer a message
	needReply             // to send a reply
	needReplyOffer        // to offer a reply
	needPost              // to post something else
	needNumber            // Call, for a number
	needHandle            // Handle
	needs
)

const _ = uint(lead.MaxNeeds - needs) // does not compile if package lead has room for fewer

// ready reports whether a call with a need can go on.
func (c *Conn) ready(need int) bool {
	switch need {
	case needMessage:
		return c.receivable() || c.draining
	case needSend:
		return c.sendable()
	case needWritten:
		return c.writable()
	case needOffer:
		return c.mayOffer(kindMessage)
	case needReply:
		return c.replyable()
	case needReplyOffer:
		return c.mayOffer(kindReply)
	case needPost:
		return c.room() > 0
	case needNumber:
		return c.callable()
	case needHandle:
		return c.handleReady()
	}
	return false
}

// needsCredit reports whether calls with a need wait for credits.
func needsCredit(need int) bool { return need >= needSend && need <= needReplyOffer }

func (c *Conn) initWaits() {
	w := &c.waiters
	w.Lock, w.Unlock, w.Poll, w.Handle, w.Ready = c.mu.Lock, c.unlock, c.pollWait, c.handlePoll, c.ready
	c.leaderDone.L, c.calls.replyPatience = &c.mu, replyPatience
}

// unlock releases c.mu at the end of a call, or before it waits.
func (c *Conn) unlock() {
	c.waiters.Pass()
	if c.queued != nil {
		c.runHooks()
	}
	c.mu.Unlock()
}

// nextTurn returns the turn of a call that begins to wait.
func (c *Conn) nextTurn() uint64 {
	c.turns++
	return c.turns
}

// step waits until something has happened that may concern the caller. The caller holds c.mu and checks
// what it waits for before and after. mine, if not nil, is where the caller can be found by what it
// waits for.
func (c *Conn) step(ctx context.Context, need int, mine **lead.Waiter) error {
	return c.stepAt(ctx, c.nextTurn(), need, mine)
}

// stepAt is step for a call that keeps its turn.
func (c *Conn) stepAt(ctx context.Context, turn uint64, need int, mine **lead.Waiter) error {
	if ctx.Err() != nil {
		return ctxerr.Of(ctx)
	}
	c.sendControl(true)
	if c.err != nil {
		return nil // the caller looks at c.err
	}
	w := c.newWaiter()
	w.Need, w.Turn, w.Yields = need, turn, needsCredit(need)
	if mine != nil {
		*mine = w
	}
	err := c.waiters.Wait(ctx, w)
	if mine != nil {
		*mine = nil
	}
	c.idleWaiters = append(c.idleWaiters, w)
	return err
}

func (c *Conn) newWaiter() *lead.Waiter {
	n := len(c.idleWaiters)
	if n == 0 {
		return new(lead.Waiter)
	}
	w := c.idleWaiters[n-1]
	c.idleWaiters = c.idleWaiters[:n-1]
	return w
}

func (c *Conn) pollWait(ctx context.Context) (int, error) { return c.cq.PollWait(ctx, c.wcs[:]) }

// handlePoll handles what pollWait has returned. The caller holds c.mu, and looks at c.err.
func (c *Conn) handlePoll(n int, err error) error {
	c.handling = true
	c.handle(c.wcs[:n])
	c.handling = false
	switch {
	case err != nil:
		c.fail(err)
	case c.failure != nil:
		c.decide()
	}
	c.leaderDone.Broadcast()
	return nil
}

// dismiss makes all calls look at the state, and returns when the leader has handled what has arrived. The caller holds
// c.mu and has set c.closing.
func (c *Conn) dismiss() {
	c.waiters.WakeAll()
	for c.waiters.Leader() != nil {
		c.waiters.Interrupt(c.waiters.Leader())
		c.leaderDone.Wait()
	}
}

// opError returns the error of an operation.
func (c *Conn) opError(op string, err error) error {
	return &Error{Op: op, Local: c.local, Peer: c.peer, Err: err}
}

// stalled reports the time that a call has waited.
func (c *Conn) stalled(since time.Time) {
	d := time.Since(since)
	c.stats.stalls++
	c.stats.stallTime += d
	if t := c.options.Trace; !c.handshaking && t != nil && t.Stalled != nil {
		c.later(func() { t.Stalled(c, d) })
	}
}
