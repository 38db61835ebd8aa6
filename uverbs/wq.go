package uverbs

import (
	"errors"
	"math"
	"sync"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/noescape"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A WQ is a work queue. It contains receives for the raw packets that a QP with
// [RSSConfig] directs to it through an [RWQIndTable]. Its methods may be called
// from any number of goroutines, unless it was created with SingleGoroutine.
type WQ struct {
	object
	impl   providerWQ
	cq     *CQ
	maxWR  int
	maxSGE int

	queueLock
	gate gate

	stateMu sync.Mutex // serialises Modify
	state   WQState
}

// A WQConfig describes a work queue: ibv_create_wq(3). It is a receive queue,
// IBV_WQT_RQ, which is the only type.
type WQConfig struct {
	CQ     *CQ
	MaxWR  int // maximum number of receives
	MaxSGE int // of each receive; 0 means 1
	Flags  WQFlags
	// SingleGoroutine omits the lock. The queue then belongs to one goroutine at a
	// time.
	SingleGoroutine bool
}

// WQFlags are optional features of a WQ. The values are those of ibv_wq_flags.
type WQFlags uint32

// The flags of ibv_create_wq(3).
const (
	WQCVLANStripping     WQFlags = 1 << 0 // the VLAN tag of a received frame is in the WC: see WC.CVLAN
	WQScatterFCS         WQFlags = 1 << 1 // receives end with the frame's checksum, 4 bytes
	WQDelayDrop          WQFlags = 1 << 2 // packets wait for a receive for a while; needs CAP_SYS_RAWIO
	WQPCIWriteEndPadding WQFlags = 1 << 3 // writes to memory are padded to the end of a cache line
)

// WQState is the state of a WQ. The values are those of ibv_wq_state.
type WQState uint8

// The states of ibv_modify_wq(3).
const (
	WQStateReset WQState = 0
	WQStateRdy   WQState = 1 // ready: receives can be posted, and packets arrive
	WQStateErr   WQState = 2
)

func (s WQState) String() string {
	names := [...]string{"RESET", "RDY", "ERR"}
	if int(s) < len(names) {
		return names[s]
	}
	return "state " + itoa(uint64(s))
}

// WQMask selects fields of a [WQAttr]. The values are those of ibv_wq_attr_mask.
type WQMask uint32

// The bits of ibv_modify_wq(3).
const (
	WQMaskState    WQMask = 1 << 0
	WQMaskCurState WQMask = 1 << 1
	WQMaskFlags    WQMask = 1 << 2
)

// A WQAttr contains the attributes of a WQ: struct ibv_wq_attr.
type WQAttr struct {
	State     WQState
	CurState  WQState
	Flags     WQFlags
	FlagsMask WQFlags // the bits of Flags to change
}

// CreateWQ creates a work queue in state RESET: ibv_create_wq(3). It returns
// [ErrInvalid] if the device does not support the configuration, [ErrNotSupported]
// if it has no work queues, as on rxe, and [ErrClosed] after Close of the PD or the
// CQ.
func (p *PD) CreateWQ(cfg WQConfig) (*WQ, error) {
	if cfg.MaxSGE == 0 {
		cfg.MaxSGE = 1
	}
	if err := p.checkWQ(&cfg); err != nil {
		return nil, err
	}
	q := &WQ{queueLock: queueLock{single: cfg.SingleGoroutine}, cq: cfg.CQ}
	q.object = object{ctx: p.ctx, life: q, kind: "WQ", rank: rankWQ}
	q.addParents(&p.object, &cfg.CQ.object)
	q.id = p.ctx.id(q)
	q.gate.set(p.ctx, gateState)
	if err := q.createWith(func() error { return q.create(p, &cfg) }); err != nil {
		return nil, err
	}
	return q, nil
}

func (p *PD) checkWQ(cfg *WQConfig) error {
	const op = "create WQ"
	switch {
	case cfg.CQ == nil:
		return invalid(op, p.String(), "CQ is nil")
	case cfg.CQ.ctx != p.ctx:
		return invalid(op, p.String(), cfg.CQ.String()+" belongs to another Context than the PD")
	case cfg.MaxWR < 1 || cfg.MaxWR > math.MaxInt32:
		return invalid(op, p.String(), "MaxWR must be 1 to 2^31-1: "+sitoa(cfg.MaxWR))
	case cfg.MaxSGE < 0 || cfg.MaxSGE > math.MaxInt32:
		return invalid(op, p.String(), "MaxSGE must be 0 to 2^31-1: "+sitoa(cfg.MaxSGE))
	}
	return nil
}

func (q *WQ) create(p *PD, cfg *WQConfig) error {
	const op = "create WQ"
	wqs, ok := q.ctx.impl.(providerWQs)
	if !ok {
		return &Error{Op: op, Object: q.ctx.name, Kind: ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the device has no work queues"}
	}
	create := func(uhwIn, uhwOut []byte) (driver.Reply, error) {
		r, err := q.setHandle(q.command(p, cfg, uhwIn, uhwOut))
		if err == nil {
			q.number = r.Number
		}
		return r, err
	}
	impl, reply, err := wqs.CreateWQ(
		&driver.WQConfig{MaxWR: cfg.MaxWR, MaxSGE: cfg.MaxSGE, Memory: p.memory()}, create)
	if err != nil {
		q.destroyIfExists(q.destroyKernel)
		return q.explainCreate(err, cfg)
	}
	q.impl, q.handle, q.number = impl, reply.Handle, reply.Number
	q.maxWR, q.maxSGE = reply.Cap.MaxRecvWR, reply.Cap.MaxRecvSGE
	return nil
}

func (q *WQ) command(p *PD, cfg *WQConfig, uhwIn, uhwOut []byte) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_CREATE)
	cmd.NewHandle(uapi.UVERBS_ATTR_CREATE_WQ_HANDLE)
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE, p.handle)
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, cfg.CQ.handle)
	cmd.Uint64(uapi.UVERBS_ATTR_CREATE_WQ_USER_HANDLE, q.id)
	cmd.Uint64(uapi.UVERBS_ATTR_CREATE_WQ_TYPE, uapi.IB_UVERBS_WQT_RQ)
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_WQ_MAX_WR, uint32(cfg.MaxWR))
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_WQ_MAX_SGE, uint32(cfg.MaxSGE))
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_WQ_FLAGS, uint32(cfg.Flags))
	wr := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR)
	sge := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE)
	wqn := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM)
	q.ctx.nameEvents(cmd, uapi.UVERBS_ATTR_CREATE_WQ_EVENT_FD)
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := q.ctx.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	copy(uhwOut, reply)
	return driver.Reply{Handle: cmd.Made(uapi.UVERBS_ATTR_CREATE_WQ_HANDLE), Number: *wqn,
		Cap: driver.Cap{MaxRecvWR: int(*wr), MaxRecvSGE: int(*sge)}}, nil
}

func (q *WQ) explainCreate(err error, cfg *WQConfig) error {
	const op = "create WQ"
	if a, qerr := q.ctx.limits(); qerr == nil {
		for _, n := range []struct {
			name         string
			asked, limit int
		}{{"MaxWR", cfg.MaxWR, a.MaxQPWR}, {"MaxSGE", cfg.MaxSGE, a.MaxSGE}} {
			if n.asked > n.limit {
				return q.ctx.explainLimit(op, err, n.name, n.asked, func(*DeviceAttr) int { return n.limit })
			}
		}
	}
	detail := ""
	switch {
	case errors.Is(err, unix.EPERM) && cfg.Flags&WQDelayDrop != 0:
		detail = "the flag WQDelayDrop needs CAP_SYS_RAWIO"
	case notSupported(err):
		detail = explainRaw(err)
	}
	return q.ctx.wrap(op, q.ctx.name, err, detail)
}

// Context returns the context of q.
func (q *WQ) Context() *Context { return q.ctx }

// CQ returns the CQ for the completions of q.
func (q *WQ) CQ() *CQ { return q.cq }

// WQN returns the WQ's number, which is WC.QPNum in its completions.
func (q *WQ) WQN() uint32 { return q.number }

// MaxWR returns the maximum number of receives in the queue. It is at least the
// requested number.
func (q *WQ) MaxWR() int { return q.maxWR }

// MaxSGE returns the maximum number of SGEs in a receive.
func (q *WQ) MaxSGE() int { return q.maxSGE }

// State returns the state that Modify set last.
func (q *WQ) State() WQState {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	return q.state
}

// PostRecv posts work requests to the queue: ibv_post_wq_recv(3). Errors and n are
// as for [QP.PostSend]: [ErrState] in RESET, [ErrDeviceGone], and [ErrClosed] after
// Close.
func (q *WQ) PostRecv(wrs ...RecvWR) (n int, err error) {
	if race.Enabled {
		releasePost(q.ctx)
	}
	q.lock()
	if g := q.gate.Load(); g != gateOpen {
		err = wqGateError(g)
	} else if n, err = q.impl.PostRecv(noescape.Slice(wrs)); err != nil && q.gate.Load() == gateClosed {
		err = ErrClosed // a single-goroutine queue was closed during the post
	}
	q.unlock()
	return n, err
}

func wqGateError(g uint32) error {
	if g == gateState {
		return errWQState
	}
	return gateErrors[g]
}

// errWQState is what a post to a WQ in RESET returns. It matches ErrState.
var errWQState error = &sentinel{
	text:  "uverbs: the WQ is in state RESET, where it takes no receives: call WQ.Ready",
	errno: unix.EINVAL,
	kinds: []error{ErrState},
}

// Outstanding returns how many receives occupy the queue. A receive occupies it
// until its completion is polled. Outstanding returns 0 for a closed WQ.
func (q *WQ) Outstanding() (n int) {
	q.lock()
	if q.gate.Load() != gateClosed {
		n = q.impl.Outstanding()
	}
	q.unlock()
	return n
}

func (q *WQ) deviceGone() { q.gate.closeGone() }

// destroy destroys the kernel's queue. It waits for posts that are under way.
func (q *WQ) destroy() error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	q.lock()
	defer q.unlock()
	gate := q.gate.Swap(gateClosed)
	err := q.destroyKernel()
	if err != nil { // the queue stays open
		q.gate.set(q.ctx, gate)
	}
	return err
}

func (q *WQ) destroyKernel() error {
	const reply = 4
	return q.destroyHandleReply(uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_DESTROY, uapi.UVERBS_ATTR_DESTROY_WQ_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_WQ_RESP, reply)
}

func (q *WQ) retire() error {
	q.lock()
	defer q.unlock()
	q.gate.Store(gateClosed)
	if !q.ctx.ending.Load() {
		q.cq.purge(q.impl)
	}
	return q.impl.Retire()
}

// Close destroys the queue: ibv_destroy_wq(3). It returns [ErrBusy] while a table
// contains the queue. Close is idempotent.
func (q *WQ) Close() error { return q.close() }
