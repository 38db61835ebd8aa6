package uverbs

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/internal/verbs"
)

// Wait waits until a completion can be polled. Another goroutine may poll it first. Wait polls the
// queue for a short time if that is likely to suffice: see [CQ.SetPolling]. Then it sleeps, and
// occupies no thread. The wait ends early with an error that matches ctx.Err() and
// context.Cause(ctx), or with [ErrClosed] if the queue is closed. If the device is gone or the queue
// has overrun, Wait returns nil: polls return the completions that remain, and then
// [ErrDeviceGone] or [ErrCQOverrun].
func (q *CQ) Wait(ctx context.Context) error {
	if q.channel == nil {
		return errNoEvents
	}
	q.waiters.Add(1)
	defer q.waiters.Add(-1)
	q.poll(ctx)
	woken := false
	for {
		if done, err := q.checkReady(); done || err != nil {
			if woken && q.waiters.Load() > 1 {
				q.wake() // there may be completions for other waiters too
			}
			return err
		}
		if err := q.park(ctx); err != nil {
			return err
		}
		woken = true
	}
}

// SetPolling sets how long [CQ.Wait] and [CQ.PollWait] poll before they sleep. With 0, as at first, the library
// chooses: a wait polls for up to 10 µs if the last one that polled found a completion, and now and then otherwise. If
// d is negative, waits do not poll. A wait that polls lets other goroutines run, and ends for the same reasons as one
// that sleeps.
func (q *CQ) SetPolling(d time.Duration) { q.polling.set.Store(int64(d)) }

// PollWait polls, and waits until there is at least one completion. The wait ends early as that
// of [CQ.Wait] does. PollWait also returns the errors of [CQ.Poll], and [ErrInvalid] if wcs is
// empty.
func (q *CQ) PollWait(ctx context.Context, wcs []WC) (int, error) {
	if len(wcs) == 0 {
		return 0, invalid("poll", q.String(), "there is no room for a completion")
	}
	for {
		n, err := q.Poll(wcs)
		if n > 0 {
			return n, err
		}
		if err != nil {
			return 0, named(opWait, q.String(), err)
		}
		if err := q.Wait(ctx); err != nil {
			return 0, err
		}
	}
}

// WaitEvent waits for the event that [CQ.Arm] requested, and acknowledges it:
// ibv_get_cq_event(3), ibv_ack_cq_events(3). It does not look at the queue, so poll between Arm
// and WaitEvent. One event may stand for several completions, so poll until the queue is empty
// after WaitEvent. The wait ends early as [CQ.Wait] does. Wait and WaitEvent consume
// each other's events: use only one of them on a queue. WaitEvent returns [ErrClosed] after
// Close, and [ErrDeviceGone] or [ErrCQOverrun] if the device was removed or the queue overran
// before the call. A wait that is interrupted by either returns nil, as there may be
// completions to poll.
func (q *CQ) WaitEvent(ctx context.Context) error {
	if q.channel == nil {
		return errNoEvents
	}
	if f := q.failure.Load(); f != nil {
		return named(opWait, q.String(), *f)
	}
	q.waiters.Add(1)
	defer q.waiters.Add(-1)
	err := q.park(ctx)
	if err == nil && q.failure.Load() != nil {
		q.wake() // the other waiters must return too
	}
	return err
}

// endWaits is verbs.EndWaits.
func (q *CQ) endWaits(err error) {
	if err == nil {
		q.endErr.Store(nil)
		return
	}
	q.endErr.Store(&err)
	if q.channel != nil {
		q.wake()
	}
}

// interrupt is verbs.Interrupt.
func (q *CQ) interrupt(on bool) {
	q.interrupted.Store(on)
	if on && q.channel != nil {
		q.wake()
	}
}

// look reports whether the queue has a completion, or why a wait must end otherwise.
func (q *CQ) look() (ready bool, err error) {
	if ready, err := q.ready(); ready || err != nil {
		return ready, err
	}
	if q.interrupted.Load() {
		return false, verbs.ErrInterrupted
	}
	if over := q.endErr.Load(); over != nil {
		if ready, err := q.ready(); ready || err != nil {
			return ready, err // a completion that came before endWaits
		}
		return false, *over
	}
	return false, nil
}

// checkReady looks at the queue. If there is nothing, it arms the queue: the next completion
// raises an event, so a waiter that was woken in vain does not have to wake another.
func (q *CQ) checkReady() (ready bool, err error) {
	if ready, err := q.look(); ready || err != nil {
		return ready, err
	}
	if err := q.goneIsNoError(q.Arm(false)); err != nil {
		return false, err
	}
	return q.ready() // completions before Arm raise no event
}

// poll polls until there is a completion, the wait must end, or polling is no longer worth while. The caller looks at
// the queue next.
func (q *CQ) poll(ctx context.Context) {
	most := q.polling.time()
	if most == 0 {
		return
	}
	start := time.Now()
	for i := 1; ; i++ {
		ready, err := q.look()
		if ready {
			q.polling.done(true)
		}
		if ready || err != nil {
			return
		}
		if i%pollsPerLook != 0 {
			continue
		}
		// The clock of a testing/synctest bubble stands still, but a poll takes longer than a nanosecond.
		if time.Since(start) >= most || time.Duration(i) >= most {
			q.polling.done(false)
			return
		}
		if received(ctx.Done()) || received(q.channel.broken) {
			return
		}
		if i%(pollsPerLook*looksPerYield) == 0 {
			runtime.Gosched()
		}
	}
}

func (q *CQ) park(ctx context.Context) error {
	if received(q.channel.readToken) {
		return q.channel.read(ctx, q) // it checks the other conditions
	}
	select {
	case <-q.token:
		return nil
	case <-ctx.Done():
		return q.ctxError(ctx)
	case <-q.closing:
		return q.closedError()
	case <-q.channel.broken:
		return q.channelError()
	case <-q.channel.readToken:
		return q.channel.read(ctx, q)
	}
}

// ctxError returns the error of a wait that was ended by its ctx.
func (q *CQ) ctxError(ctx context.Context) error {
	return &Error{Op: opWait, Object: q.String(), Err: ctxerr.Of(ctx)}
}

// channelError returns the result of a wait that was ended because the channel is broken.
func (q *CQ) channelError() error { return q.goneIsNoError(named(opWait, q.String(), q.channel.err)) }

// goneIsNoError returns nil if err is ErrDeviceGone, after which polls of the queue return it. So a wait returns the
// same whether the channel or the asynchronous event reported the removal first.
func (q *CQ) goneIsNoError(err error) error {
	if !errors.Is(err, ErrDeviceGone) {
		return err
	}
	q.deviceGone() // the goroutine that marks all queues may not have reached this one
	return nil
}

// waitEnded reports whether a wait has ended, by the same conditions as park.
func (q *CQ) waitEnded(ctx context.Context) (bool, error) {
	switch {
	case received(q.token):
		return true, nil
	case received(ctx.Done()):
		return true, q.ctxError(ctx)
	case received(q.closing):
		return true, q.closedError()
	case received(q.channel.broken):
		return true, q.channelError()
	}
	return false, nil
}

// read reads the channel for q's waiter, which holds the read token, until an event of q
// arrives or the wait ends. It wakes the waiters of other queues whose events arrive, and
// returns the token.
func (ch *CompChannel) read(ctx context.Context, q *CQ) error {
	ch.watch(ctx)
	ch.reader.Store(q)
	defer func() {
		ch.reader.Store(nil)
		ch.readToken <- struct{}{}
	}()
	for {
		// An interrupt from here on makes the read return at once.
		if done, err := q.waitEnded(ctx); done {
			return err
		}
		id, err := ch.record.read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = ch.file.SetReadDeadline(time.Time{})
			if err == nil {
				continue
			}
		}
		if err != nil {
			return ch.fail(q, err)
		}
		if id == q.id {
			q.event()
			return nil
		}
		if other, ok := ch.ctx.lookup(id).(*CQ); ok {
			other.event()
			other.wake()
		}
	}
}

// watch makes the end of ctx interrupt the reader. A reader with the same ctx as the previous
// one reuses its watch. The last watch is stopped when the channel is closed.
func (ch *CompChannel) watch(ctx context.Context) {
	if ch.watched == ctx.Done() {
		return
	}
	ch.unwatch()
	ch.watched, ch.unwatch = ctx.Done(), func() {}
	if ch.watched != nil {
		stop := context.AfterFunc(ctx, ch.interrupt)
		ch.unwatch = func() { stop() }
	}
}

// fail ends the waits of all queues because reading the channel failed with err. It returns the
// error of q's wait. The caller holds the read token.
func (ch *CompChannel) fail(q *CQ, err error) error {
	select {
	case <-q.closing:
		return q.closedError()
	case <-ch.broken:
		return q.channelError()
	default:
	}
	err = explainRead(ch.file, err)
	switch {
	case errors.Is(err, os.ErrClosed):
		ch.err = ErrClosed
	case ch.ctx.isDeviceGone(err):
		ch.err = ErrDeviceGone
	default:
		ch.err = ch.ctx.wrap("wait for events", ch.String(), err, "")
	}
	close(ch.broken)
	return q.channelError()
}
