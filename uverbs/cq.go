package uverbs

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/noescape"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A CQ is a completion queue. Any number of goroutines may call its methods, unless it was
// created with SingleGoroutine.
type CQ struct {
	object
	impl    providerCQ
	entries atomic.Int64
	channel *CompChannel

	queueLock
	usable  atomic.Bool // impl is set: callers that find the queue by its id may use it
	dead    atomic.Bool
	failure atomic.Pointer[error] // see fail
	token   chan struct{}         // contains a token if a waiter should look at the queue
	closing chan struct{}
	waiters atomic.Int32
	armed   atomic.Uint32
	events  atomic.Uint32 // number of events that have been read
	over    atomic.Pointer[error]
}

// CreateCQ creates a completion queue: ibv_create_cq(3). It returns [ErrInvalid] if the
// configuration is inconsistent or the device does not support it, and [ErrClosed] after Close
// of the Context.
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
		return nil, err
	}
	q.usable.Store(true)
	if c.deviceGone.Load() {
		q.fail(ErrDeviceGone)
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
	impl, reply, err := q.ctx.impl.CreateCQ(&driver.CQConfig{Entries: cfg.Entries, Memory: cfg.PD.memory()}, func(uhwIn, uhwOut []byte, attrs ...driver.Attr) (driver.Reply, error) {
		return q.made(q.command(cfg, uhwIn, uhwOut, attrs))
	})
	if err != nil {
		q.unmake(q.destroyKernel)
		return q.ctx.explainLimit("create CQ", err, "Entries", cfg.Entries, func(a *DeviceAttr) int { return a.MaxCQE })
	}
	q.impl, q.handle, q.number = impl, reply.Handle, reply.Handle
	q.entries.Store(int64(reply.Entries))
	return nil
}

func (q *CQ) command(cfg *CQConfig, uhwIn, uhwOut []byte, attrs []driver.Attr) (driver.Reply, error) {
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
	for _, a := range attrs {
		cmd.Uint32(a.ID, a.Value)
	}
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := q.ctx.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	copy(uhwOut, reply)
	return driver.Reply{Handle: cmd.Made(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE), Entries: int(*entries)}, nil
}

// Context returns the context that q was created on.
func (q *CQ) Context() *Context { return q.ctx }

// Entries returns how many completions the queue holds. Any goroutine may call it.
func (q *CQ) Entries() int { return int(q.entries.Load()) }

// Poll stores up to len(wcs) completions in wcs and returns their number: ibv_poll_cq(3). It
// does not wait and does not allocate. It returns [ErrClosed] after Close. If the queue is
// empty, it returns [ErrCQOverrun] if completions were lost because the queue was full, and
// [ErrDeviceGone] if the device is gone.
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

// Arm requests an event for the next completion, or for the next one that is solicited or
// failed: ibv_req_notify_cq(3). [CQ.Wait] calls it itself. Poll again after Arm: earlier
// completions raise no event. Arm returns [ErrClosed] after Close, and EINVAL on a queue with
// NoEvents.
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
	// If an event was requested and has not been read, it is still to come. A second request
	// would only leave a record in the channel that no goroutine reads.
	before := q.armed.Load()
	if before >= want {
		return nil
	}
	q.armed.Store(want)
	if err := q.impl.Arm(solicitedOnly, q.events.Load()); err != nil {
		q.armed.CompareAndSwap(want, before)
		if q.dead.Load() { // another goroutine closed the single-goroutine queue
			return ErrClosed
		}
		return q.ctx.wrap("arm", q.String(), err, "")
	}
	return nil
}

// What the queue is armed for.
const (
	armedNot uint32 = iota
	armedSolicited
	armedAny
)

// event records that an event of the queue has been read.
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

// wake makes one waiter look at the queue.
func (q *CQ) wake() {
	select {
	case q.token <- struct{}{}:
	default: // a token is already there
	}
	// The waiter that reads the channel does not see the token.
	if q.channel.reader.Load() == q {
		q.channel.interrupt()
	}
}

// Wait waits until a completion can be polled. Another goroutine may poll it first. A waiting
// goroutine occupies no thread. The wait ends early with an error that wraps the cause of the
// end of ctx (context.Cause), with [ErrClosed] if the queue is closed, or with [ErrDeviceGone].
// Wait also returns nil if the next Poll of the empty queue returns an error: see [CQ.Poll].
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

// look reports whether the queue has a completion. If not, it arms the queue: the next
// completion raises an event, so a waiter that was woken in vain does not have to wake another.
func (q *CQ) look() (ready bool, err error) {
	if ready, err := q.ready(); ready || err != nil {
		return ready, err
	}
	if over := q.over.Load(); over != nil {
		return false, *over
	}
	if err := q.Arm(false); err != nil {
		return false, err
	}
	return q.ready() // completions before Arm raise no event
}

// EndWaits makes [CQ.Wait] and [CQ.PollWait] return err whenever the queue is empty, from now
// on. It is for a caller that knows that there will be no more completions. Remaining
// completions can still be polled. With a nil err, waits block again. Any goroutine may call
// EndWaits, even on a queue with SingleGoroutine.
func (q *CQ) EndWaits(err error) {
	if err == nil {
		q.over.Store(nil)
		return
	}
	q.over.Store(&err)
	if q.channel != nil {
		q.wake()
	}
}

// WaitEvent waits for the event that [CQ.Arm] requested, and acknowledges it:
// ibv_get_cq_event(3), ibv_ack_cq_events(3). It does not look at the queue, so poll between Arm
// and WaitEvent. One event may stand for several completions, so poll until the queue is empty
// after WaitEvent. The wait ends early as that of [CQ.Wait] does. Wait and WaitEvent consume
// each other's events: use only one of them on a queue. WaitEvent returns [ErrClosed] after
// Close, and [ErrDeviceGone] or [ErrCQOverrun] if the device was removed or the queue overran
// before the call. A wait that is interrupted by either returns nil, as there may be completions
// to poll.
func (q *CQ) WaitEvent(ctx context.Context) error {
	if q.channel == nil {
		return errNoEvents
	}
	if f := q.failure.Load(); f != nil {
		return *f
	}
	q.waiters.Add(1)
	defer q.waiters.Add(-1)
	err := q.park(ctx)
	if err == nil && q.failure.Load() != nil {
		q.wake() // the other waiters must return too
	}
	return err
}

func (q *CQ) park(ctx context.Context) error {
	select {
	case <-q.token:
		return nil
	case <-ctx.Done():
		return q.waitCut(ctx)
	case <-q.closing:
		return ErrClosed
	case <-q.channel.broken:
		return q.channel.err
	case <-q.channel.readToken:
		return q.channel.read(ctx, q)
	}
}

// waitCut returns the error of a wait that was ended by its ctx.
func (q *CQ) waitCut(ctx context.Context) error {
	return &Error{Op: "wait for a completion", Object: q.String(), Err: context.Cause(ctx)}
}

// waitOver reports whether a wait has ended, by the same conditions as park.
func (q *CQ) waitOver(ctx context.Context) (bool, error) {
	select {
	case <-q.token:
		return true, nil
	case <-ctx.Done():
		return true, q.waitCut(ctx)
	case <-q.closing:
		return true, ErrClosed
	case <-q.channel.broken:
		return true, q.channel.err
	default:
		return false, nil
	}
}

// PollWait polls, and waits until there is at least one completion. The wait ends early as that
// of [CQ.Wait] does. PollWait also returns the errors of [CQ.Poll], and [ErrInvalid] if wcs is
// empty.
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

// tearDown destroys the kernel's queue. It waits for a poll in progress.
func (q *CQ) tearDown() error {
	q.lock()
	defer q.unlock()
	q.dead.Store(true)
	err := q.destroyKernel()
	if err != nil { // the queue still exists
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
	return q.impl.Retire()
}

// Close destroys the queue: ibv_destroy_cq(3). It returns [ErrBusy] while QPs use the queue.
// Waits end with [ErrClosed]. Close is idempotent. On a single-goroutine queue only the
// goroutine that uses it may call Close.
func (q *CQ) Close() error { return q.close() }
