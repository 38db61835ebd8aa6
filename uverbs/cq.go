package uverbs

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/noescape"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A CQConfig describes a completion queue: ibv_create_cq(3).
type CQConfig struct {
	// Entries is how many completions the queue must hold. The device may make it larger: see
	// [CQ.Entries].
	//
	// A full queue loses completions and reports [ErrCQOverrun]. The queue is large enough if
	// it has an entry for each request that may complete before it is polled. If every send is
	// signaled, that is the sum over the QPs of MaxSendWR and of MaxRecvWR, or of the MaxWR of
	// their SRQs. CreateQP does not check this, since a program may leave sends unsignaled or
	// post fewer requests than the queues hold.
	Entries int
	// Channel carries the queue's events. Nil means one of the channels of the Context: 64 CQs, and
	// as many as take a quarter of the descriptors that the process may open (RLIMIT_NOFILE), have
	// one each. More share them, so that their waits cost more.
	Channel *CompChannel
	// NoEvents creates a queue that can only be polled: Wait and Arm fail.
	NoEvents bool
	// Vector is the completion vector, which selects the CPU of the interrupt: 0 to
	// Context.CompVectors - 1.
	Vector int
	// SingleGoroutine omits the lock. Then only one goroutine at a time may call Poll, the wait
	// methods, Arm, Resize, Moderate and Close. The same restriction includes closing the
	// queue's QPs and moving them to RESET, because this removes their completions from the
	// queue.
	SingleGoroutine bool
	// PD may be a parent domain with a thread domain. Then the queue is a SingleGoroutine one.
	PD *PD
}

// A CQ is a completion queue. Any number of goroutines may call its methods, unless it was
// created with SingleGoroutine.
type CQ struct {
	object
	impl    providerCQ
	entries atomic.Int64
	channel *CompChannel // nil with NoEvents; then token and closing are nil too

	queueLock
	finishing sync.Mutex  // see QP.finishSends
	usable    atomic.Bool // impl is set: callers that find the queue by its id may use it
	dead      atomic.Bool
	failure   atomic.Pointer[error] // see fail
	token     chan struct{}         // contains a token if a waiter should look at the queue
	closing   chan struct{}
	waiters   atomic.Int32
	armed     atomic.Uint32
	events    atomic.Uint32         // number of events that have been read
	endErr    atomic.Pointer[error] // what waits return: see endWaits

	onCommon    atomic.Bool // channel is one of commonChannels, and has not been given back
	interrupted atomic.Bool // waits end: see interrupt
	polling     polling
}

// CreateCQ creates a completion queue: ibv_create_cq(3). It returns [ErrInvalid] if the
// configuration is inconsistent or the device does not support it, and [ErrClosed] after Close
// of the Context.
func (c *Context) CreateCQ(cfg CQConfig) (*CQ, error) {
	if err := c.checkCQ(&cfg); err != nil {
		return nil, err
	}
	if cfg.Channel == nil && !cfg.NoEvents {
		return c.createOnCommon(cfg)
	}
	return c.createCQ(&cfg)
}

// createOnCommon creates a CQ on one of the channels of the Context. It closes a new channel if its CQ cannot be
// created.
func (c *Context) createOnCommon(cfg CQConfig) (*CQ, error) {
	if !c.creating.begin() {
		return nil, &Error{Op: "create CQ", Object: c.name, Kind: ErrClosed, Detail: "the Context has been closed"}
	}
	defer c.creating.end()
	ch, isNew, err := c.takeChannel()
	if err != nil {
		return nil, err
	}
	cfg.Channel = ch
	q, err := c.createCQ(&cfg)
	if err != nil {
		return nil, errors.Join(err, c.giveChannel(ch, !isNew))
	}
	q.onCommon.Store(true)
	return q, nil
}

func (c *Context) createCQ(cfg *CQConfig) (*CQ, error) {
	q := &CQ{queueLock: queueLock{single: cfg.SingleGoroutine || cfg.PD.single()}}
	q.object = object{ctx: c, life: q, kind: "CQ", rank: rankCQ}
	if !cfg.NoEvents {
		q.channel, q.token, q.closing = cfg.Channel, make(chan struct{}, 1), make(chan struct{})
		q.addParents(&cfg.Channel.object)
	}
	if cfg.PD != nil {
		q.addParents(&cfg.PD.object)
	}
	q.id = c.id(q)
	if err := q.createWith(func() error { return q.create(cfg) }); err != nil {
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
		return invalid(op, c.name,
			"Vector "+sitoa(cfg.Vector)+" is out of range: the device has "+sitoa(c.vectors)+" completion vectors")
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
	vector := cfg.Vector // so that cfg is not on the heap
	of := &driver.CQConfig{Entries: cfg.Entries, Events: q.channel != nil, Memory: cfg.PD.memory()}
	if of.Events {
		of.Wake = q.wakeWaiter
	}
	create := func(uhwIn, uhwOut []byte, attrs ...driver.Attr) (driver.Reply, error) {
		return q.setHandle(q.command(of.Entries, vector, uhwIn, uhwOut, attrs))
	}
	impl, reply, err := q.ctx.impl.CreateCQ(of, create)
	if err != nil {
		err = q.undo(err, q.destroyKernel, impl)
		return q.ctx.explainLimit("create CQ", err, "Entries", cfg.Entries, func(a *DeviceAttr) int { return a.MaxCQE })
	}
	q.impl, q.handle, q.number = impl, reply.Handle, reply.Handle
	q.entries.Store(int64(reply.Entries))
	return nil
}

func (q *CQ) command(entries, vector int, uhwIn, uhwOut []byte, attrs []driver.Attr) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE)
	cmd.NewHandle(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE)
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_CQ_CQE, uint32(entries))
	cmd.Uint64(uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, q.id)
	if q.channel != nil {
		cmd.FD(uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, q.channel.fd)
	}
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, uint32(vector))
	created := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE)
	q.ctx.nameEvents(cmd, uapi.UVERBS_ATTR_CREATE_CQ_EVENT_FD)
	for _, a := range attrs {
		cmd.Uint32(a.ID, a.Value)
	}
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := q.ctx.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	copy(uhwOut, reply)
	return driver.Reply{Handle: cmd.Made(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE), Entries: int(*created)}, nil
}

// Context returns the context that q was created on.
func (q *CQ) Context() *Context { return q.ctx }

// Entries returns how many completions the queue holds. Any goroutine may call it.
func (q *CQ) Entries() int { return int(q.entries.Load()) }

// Poll stores up to len(wcs) completions in wcs and returns their number: ibv_poll_cq(3). It
// does not wait and does not allocate. Under the race detector, a post happens before the poll
// that returns its completion. It returns [ErrClosed] after Close. If the queue is
// empty, it returns [ErrCQOverrun] if completions were lost because the queue was full, and
// [ErrDeviceGone] if the device is gone.
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
	if race.Enabled && n > 0 {
		acquirePosts(q)
		acquirePosts(q.ctx)
	}
	return n, err
}

// pollError returns the error of a failed poll. While the Context is being closed,
// it is ErrClosed: completions may then belong to QPs that no longer exist.
func (q *CQ) pollError(err error) error {
	if q.ctx.ending.Load() {
		return ErrClosed
	}
	return err
}

// purge drops the unpolled completions of a queue that has been destroyed or
// emptied.
func (q *CQ) purge(gone any) {
	p, ok := q.impl.(driver.Purger)
	if !ok {
		return
	}
	q.lock()
	defer q.unlock()
	if !q.dead.Load() {
		p.Purge(gone)
	}
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
		return named(opArm, q.String(), ErrClosed)
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
			return named(opArm, q.String(), ErrClosed)
		}
		return q.ctx.wrap(opArm, q.String(), err, "")
	}
	return nil
}

const opArm = "arm"

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

// errNoEvents is the error of a wait for a queue without events. It matches ErrInvalid.
var errNoEvents error = &sentinel{
	text:  "uverbs: the CQ was created with NoEvents: it can be polled, not waited for",
	errno: unix.EINVAL,
	kinds: []error{ErrInvalid},
}

func (q *CQ) ready() (bool, error) {
	q.lock()
	defer q.unlock()
	if q.dead.Load() {
		return false, q.closedError()
	}
	return q.impl.Ready(), nil
}

const opWait = "wait for a completion"

// closedError returns the error of a wait that was ended by Close.
func (q *CQ) closedError() error { return &Error{Op: opWait, Object: q.String(), Kind: ErrClosed} }

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

// wakeWaiter makes one waiter look at the queue, if there is one: WaitEvent is to wait for an event.
func (q *CQ) wakeWaiter() {
	if q.waiters.Load() > 0 {
		q.wake()
	}
}

func (q *CQ) deviceGone() { q.fail(ErrDeviceGone) }

// fail makes polls of the queue return err once it is empty, and wakes its waiters. For a queue
// that is still being created, CreateCQ calls fail.
func (q *CQ) fail(err error) {
	if !q.usable.Load() {
		return
	}
	q.impl.Fail(err)
	q.failure.Store(&err) // last: a caller that sees it gets the error from Poll
	if q.channel != nil {
		q.wake()
	}
}

// destroy destroys the kernel's queue. It waits for a poll in progress.
func (q *CQ) destroy() error {
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
	return q.destroyHandleReply(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY, uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_CQ_RESP, destroyCQLen)
}

func (q *CQ) retire() error {
	q.lock()
	defer q.unlock()
	q.dead.Store(true)
	if q.channel != nil {
		close(q.closing)
		if q.channel.reader.Load() == q {
			q.channel.interrupt()
		}
	}
	return q.impl.Retire(q.single)
}

// unlocked reports whether polls of the queue may run beside calls that lock it. q may be nil.
func (q *CQ) unlocked() bool { return q != nil && q.single }

// Close destroys the queue: ibv_destroy_cq(3). It returns [ErrBusy] while QPs use the queue.
// Waits end with [ErrClosed]. Close is idempotent. On a single-goroutine queue only the
// goroutine that uses it may call Close.
func (q *CQ) Close() error {
	err := q.close()
	if err == nil && q.onCommon.CompareAndSwap(true, false) {
		err = q.ctx.giveChannel(q.channel, true)
	}
	return err
}
