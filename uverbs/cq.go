package uverbs

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/noescape"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A CQ is a completion queue. Its methods may be called from any number of
// goroutines, unless it was made with SingleGoroutine.
type CQ struct {
	object
	impl    ProviderCQ
	entries int
	channel *CompChannel
	id      uint64

	queueLock
	usable  atomic.Bool // impl may be called by who knows the queue by its number
	dead    atomic.Bool
	token   chan struct{} // an event came: one waiter may look
	closing chan struct{}
	waiters atomic.Int32
	armed   atomic.Uint32
	events  atomic.Uint32 // how many have been read
}

// CreateCQ makes a completion queue: ibv_create_cq(3). [ErrInvalid] for a
// configuration that makes no sense or that the device does not take,
// [ErrClosed] after Close of the Context.
func (c *Context) CreateCQ(cfg CQConfig) (*CQ, error) {
	if err := c.checkCQ(&cfg); err != nil {
		return nil, err
	}
	q := &CQ{queueLock: queueLock{single: cfg.SingleGoroutine || cfg.PD.single()}, token: make(chan struct{}, 1), closing: make(chan struct{})}
	q.object = object{ctx: c, kind: "CQ", rank: rankCQ}
	if !cfg.NoEvents {
		if cfg.Channel == nil {
			var err error
			if cfg.Channel, err = c.defaultChannel(); err != nil {
				return nil, err
			}
		}
		q.channel = cfg.Channel
		q.under(&cfg.Channel.object)
	}
	if cfg.PD != nil {
		q.under(&cfg.PD.object)
	}
	q.destroy, q.retire = q.tearDown, q.retireRing
	q.id = c.id(q)
	if err := q.make(func() error { return q.create(&cfg) }); err != nil {
		c.forget(q.id)
		return nil, err
	}
	q.usable.Store(true)
	if c.gone.Load() {
		q.lose()
	}
	return q, nil
}

func (c *Context) checkCQ(cfg *CQConfig) error {
	const op = "create CQ"
	switch {
	case cfg.Entries < 1:
		return invalid(op, c.name, "Entries must be at least 1: "+sitoa(cfg.Entries))
	case cfg.Entries > math.MaxInt32:
		return invalid(op, c.name, "Entries must be below 2^31: "+sitoa(cfg.Entries))
	case cfg.Vector < 0 || cfg.Vector >= max(c.vectors, 1):
		return invalid(op, c.name, "Vector "+sitoa(cfg.Vector)+" is out of range: the device has "+sitoa(c.vectors)+" completion vectors")
	case cfg.NoEvents && cfg.Channel != nil:
		return invalid(op, c.name, "NoEvents and Channel exclude each other")
	case cfg.PD != nil && cfg.PD.ctx != c:
		return invalid(op, c.name, cfg.PD.String()+" belongs to another Context")
	case cfg.Channel != nil && cfg.Channel.ctx != c:
		return invalid(op, c.name, "the Channel belongs to another Context: "+cfg.Channel.String())
	}
	return nil
}

func (q *CQ) create(cfg *CQConfig) error {
	impl, reply, err := q.ctx.impl.CreateCQ(cfg, func(uhwIn, uhwOut []byte) (ProviderReply, error) {
		return q.made(q.command(cfg, uhwIn, uhwOut))
	})
	if err != nil {
		q.unmake(q.destroyKernel)
		return q.ctx.explainLimit("create CQ", err, "Entries", cfg.Entries, func(a *DeviceAttr) int { return a.MaxCQE })
	}
	q.impl, q.handle, q.number, q.entries = impl, reply.Handle, reply.Handle, reply.Entries
	return nil
}

func (q *CQ) command(cfg *CQConfig, uhwIn, uhwOut []byte) (ProviderReply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE)
	cmd.NewHandle(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE)
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_CQ_CQE, uint32(cfg.Entries))
	cmd.Uint64(uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, q.id)
	if q.channel != nil {
		cmd.FD(uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, q.channel.fd)
	}
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, uint32(cfg.Vector))
	entries := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE)
	q.ctx.nameEvents(cmd, uapi.UVERBS_ATTR_CREATE_CQ_EVENT_FD)
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := q.ctx.dev.Do(cmd); err != nil {
		return ProviderReply{}, err
	}
	copy(uhwOut, reply)
	return ProviderReply{Handle: cmd.Made(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE), Entries: int(*entries)}, nil
}

// Context returns the context that q was made from.
func (q *CQ) Context() *Context { return q.ctx }

// Entries is how many completions the queue holds.
func (q *CQ) Entries() int {
	q.calls.Lock()
	defer q.calls.Unlock()
	return q.entries
}

// Poll takes up to len(wcs) completions and returns how many: ibv_poll_cq(3).
// It does not wait and allocates nothing. [ErrClosed] after Close.
//
//go:nosplit
func (q *CQ) Poll(wcs []WC) (n int, err error) {
	if !q.single {
		q.calls.Lock()
	}
	if q.dead.Load() {
		err = ErrClosed
	} else if n, err = q.impl.Poll(noescape.Slice(wcs)); err != nil {
		err = q.pollError(err)
	}
	if !q.single {
		q.calls.Unlock()
	}
	return n, err
}

// Arm asks for an event at the next completion, or at the next one that is
// solicited or failed: ibv_req_notify_cq(3). [CQ.Wait] does it by itself. Poll
// once more after Arm: what came before raises no event. [ErrClosed] after
// Close; EINVAL on a queue with NoEvents.
func (q *CQ) Arm(solicitedOnly bool) error {
	if q.channel == nil {
		return errNoEvents
	}
	q.lock()
	defer q.unlock()
	if q.dead.Load() {
		return ErrClosed
	}
	want := armedAny
	if solicitedOnly {
		want = armedSolicited
	}
	// An event that was asked for and has not been read yet is still to come:
	// asking again would only leave records in the channel that nobody reads.
	before := q.armed.Load()
	if before >= want {
		return nil
	}
	q.armed.Store(want)
	if err := q.impl.Arm(solicitedOnly, q.events.Load()); err != nil {
		q.armed.CompareAndSwap(want, before)
		if q.dead.Load() { // closed under a single-goroutine queue
			return ErrClosed
		}
		return q.ctx.wrap("arm", q.String(), err, "")
	}
	return nil
}

// What the queue has been armed for.
const (
	armedNot uint32 = iota
	armedSolicited
	armedAny
)

// event notes that an event of the queue has been read.
func (q *CQ) event() {
	q.events.Add(1)
	q.armed.Store(armedNot)
}

var errNoEvents error = &sentinel{"uverbs: the CQ was made with NoEvents: it can be polled, not waited for", unix.EINVAL}

func (q *CQ) ready() (bool, error) {
	q.lock()
	defer q.unlock()
	if q.dead.Load() {
		return false, ErrClosed
	}
	return q.impl.Ready(), nil
}

// wake lets one waiter look at the queue.
func (q *CQ) wake() {
	select {
	case q.token <- struct{}{}:
	default: // one is on its way already
	}
	// The waiter that reads the channel does not see the token.
	if q.channel.reader.Load() == q {
		q.channel.interrupt()
	}
}

// Wait returns when a completion can be polled; another goroutine may take it
// first. It parks without holding a thread, and ends early with the cause of
// the context's end (context.Cause), with [ErrClosed] when the queue is closed, or with
// [ErrDeviceGone]: of a failure that does not take the device away the kernel tells
// by an event, so let a goroutine be in [Context.NextEvent].
func (q *CQ) Wait(ctx context.Context) error {
	if q.channel == nil {
		return errNoEvents
	}
	q.waiters.Add(1)
	defer q.waiters.Add(-1)
	woken := false
	for {
		if done, err := q.look(); done || err != nil {
			if woken && q.waiters.Load() > 1 {
				q.wake() // there may be completions for others too
			}
			return err
		}
		if err := q.park(ctx); err != nil {
			return err
		}
		woken = true
	}
}

// look tells whether a completion is there. If not, the queue is armed: one
// event comes for the next, and a waiter that was woken in vain owes none to
// the others.
func (q *CQ) look() (ready bool, err error) {
	if ready, err := q.ready(); ready || err != nil {
		return ready, err
	}
	if err := q.Arm(false); err != nil {
		return false, err
	}
	return q.ready() // what came before Arm raises no event
}

// WaitEvent waits for the event that [CQ.Arm] asked for: ibv_get_cq_event(3),
// the event being acknowledged by its return. It does not look at the queue, so
// poll between Arm and WaitEvent; and as one event may stand for several, poll
// until the queue is empty after it. It ends early as [CQ.Wait] does. The two
// take each other's events: use one of them on a queue. [ErrClosed] after
// Close.
func (q *CQ) WaitEvent(ctx context.Context) error {
	if q.channel == nil {
		return errNoEvents
	}
	q.waiters.Add(1)
	defer q.waiters.Add(-1)
	return q.park(ctx)
}

func (q *CQ) park(ctx context.Context) error {
	select {
	case <-q.token:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-q.closing:
		return ErrClosed
	case <-q.channel.broken:
		return ErrDeviceGone
	case <-q.channel.lead:
		return q.channel.read(ctx, q)
	}
}

// waitOver tells whether a wait has come to its end, as park does for those who
// do not read the channel.
func (q *CQ) waitOver(ctx context.Context) (bool, error) {
	select {
	case <-q.token:
		return true, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	case <-q.closing:
		return true, ErrClosed
	default:
		return false, nil
	}
}

// PollWait polls, and waits until there is at least one completion. It ends
// early as [CQ.Wait] does. [ErrInvalid] when wcs is empty.
func (q *CQ) PollWait(ctx context.Context, wcs []WC) (int, error) {
	if len(wcs) == 0 {
		return 0, invalid("poll", q.String(), "there is no room for a completion")
	}
	for {
		if n, err := q.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if err := q.Wait(ctx); err != nil {
			return 0, err
		}
	}
}

// tearDown destroys the kernel's queue and wakes the waiters. A poll under way
// ends first.
func (q *CQ) tearDown() error {
	q.lock()
	defer q.unlock()
	q.dead.Store(true)
	err := q.destroyKernel()
	if err != nil { // the queue lives on
		q.dead.Store(false)
	}
	return err
}

func (q *CQ) destroyKernel() error {
	return q.destroyHandle(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY, uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_CQ_RESP, destroyCQLen)
}

func (q *CQ) retireRing() error {
	q.lock()
	defer q.unlock()
	q.dead.Store(true)
	close(q.closing)
	if q.channel != nil && q.channel.reader.Load() == q {
		q.channel.interrupt()
	}
	q.ctx.forget(q.id)
	return q.impl.Retire()
}

// Close destroys the queue: ibv_destroy_cq(3). It answers [ErrBusy] while QPs
// use it; waiters wake with [ErrClosed]. It is idempotent. On a
// single-goroutine queue it belongs to the owner.
func (q *CQ) Close() error { return q.close() }
