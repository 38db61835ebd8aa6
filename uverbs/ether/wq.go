package ether

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/noescape"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/uverbs"
)

// A WQ is a work queue. It contains receives for the raw packets that a QP of
// [CreateRSSQP] directs to it through an [RWQIndTable]. Its methods may be called
// from any number of goroutines, unless it was created with SingleGoroutine.
type WQ struct {
	ctx    *uverbs.Context
	dev    *ioctl.Device
	life   driver.Extension
	impl   driver.WQ[uverbs.RecvWR]
	cq     *uverbs.CQ
	number uint32
	maxWR  int
	maxSGE int

	single bool
	calls  sync.Mutex // serialises calls of the provider, unless single
	gate   atomic.Uint32

	stateMu sync.Mutex // serialises Modify
	state   WQState
}

// The values of WQ.gate, which says whether the queue accepts receives, and if not, why. It is the
// only state that posts load.
const (
	gateOpen uint32 = iota
	gateReset
	gateGone // the device is gone
	gateClosed
)

var gateErrors = [...]error{gateReset: errReset, gateGone: uverbs.ErrDeviceGone, gateClosed: uverbs.ErrClosed}

// errReset is the error of a post to a WQ in RESET.
var errReset error = resetError{}

type resetError struct{}

func (resetError) Error() string {
	return "ether: the WQ is in state RESET, where it accepts no receives: call WQ.Ready"
}

// Is reports whether target is EINVAL, which the C library returns.
func (resetError) Is(target error) bool { return target == unix.EINVAL }

func (resetError) Unwrap() error { return uverbs.ErrState }

// A WQConfig describes a work queue: ibv_create_wq(3). It is a receive queue,
// IBV_WQT_RQ, which is the only type.
type WQConfig struct {
	CQ     *uverbs.CQ
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
	WQCVLANStripping     WQFlags = 1 << 0 // the VLAN tag of a received frame is in the WC: see CVLAN
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
	return "state " + strconv.Itoa(int(s))
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
// uverbs.ErrInvalid if the device does not support the configuration, uverbs.ErrNotSupported
// if it has no work queues, as on rxe, and uverbs.ErrClosed after Close of the PD or the
// CQ.
func CreateWQ(p *uverbs.PD, cfg WQConfig) (*WQ, error) {
	if cfg.MaxSGE == 0 {
		cfg.MaxSGE = 1
	}
	if err := cfg.check(p); err != nil {
		return nil, err
	}
	q := &WQ{ctx: p.Context(), single: cfg.SingleGoroutine, cq: cfg.CQ}
	q.gate.Store(gateReset)
	_, err := driver.Extend(q.ctx, opCreateWQ, driver.ExtensionConfig{Kind: "WQ", Rank: driver.AfterTables,
		Parents: []any{p, cfg.CQ}, DeviceGone: q.deviceGone, Object: q,
		Receives: func() (any, int) { return q.cq, q.maxWR },
		Create: func(e driver.Extension) (uint32, error) {
			q.life = e
			return 0, q.create(p, &cfg)
		},
		Destroy: q.destroy, Retire: q.retire})
	if err != nil {
		return nil, err
	}
	return q, nil
}

const opCreateWQ = "create WQ"

func (cfg *WQConfig) check(p *uverbs.PD) error {
	switch {
	case cfg.CQ == nil:
		return invalid(opCreateWQ, p.String(), "CQ is nil")
	case cfg.CQ.Context() != p.Context():
		return invalid(opCreateWQ, p.String(), cfg.CQ.String()+" belongs to another Context than the PD")
	case cfg.MaxWR < 1 || cfg.MaxWR > math.MaxInt32:
		return invalid(opCreateWQ, p.String(), "MaxWR must be 1 to 2^31-1: "+strconv.Itoa(cfg.MaxWR))
	case cfg.MaxSGE < 0 || cfg.MaxSGE > math.MaxInt32:
		return invalid(opCreateWQ, p.String(), "MaxSGE must be 0 to 2^31-1: "+strconv.Itoa(cfg.MaxSGE))
	}
	return nil
}

// Context returns the context of q.
func (q *WQ) Context() *uverbs.Context { return q.ctx }

func (q *WQ) String() string { return q.life.String() }

// CQ returns the CQ for the completions of q.
func (q *WQ) CQ() *uverbs.CQ { return q.cq }

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

func (q *WQ) lock() {
	if !q.single {
		q.calls.Lock()
	}
}

func (q *WQ) unlock() {
	if !q.single {
		q.calls.Unlock()
	}
}

// PostRecv posts work requests to the queue: ibv_post_wq_recv(3). Errors and n are
// as for uverbs.QP.PostSend: uverbs.ErrState in RESET, uverbs.ErrDeviceGone, and uverbs.ErrClosed
// after Close.
func (q *WQ) PostRecv(wrs ...uverbs.RecvWR) (n int, err error) {
	if race.Enabled {
		releasePost(q.ctx)
	}
	q.lock()
	if g := q.gate.Load(); g != gateOpen {
		err = gateErrors[g]
	} else if n, err = q.impl.PostRecv(noescape.Slice(wrs)); err != nil && q.gate.Load() == gateClosed {
		err = uverbs.ErrClosed // a single-goroutine queue was closed during the post
	}
	q.unlock()
	return n, err
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

// setGate changes the gate. If the device is gone, setGate does not open it.
func (q *WQ) setGate(to uint32) {
	q.gate.Store(to)
	if q.life.DeviceGone() { // otherwise deviceGone, which is called later, sees the stored value
		q.deviceGone()
	}
}

// deviceGone makes posts report that the device is gone, unless the queue is closed.
func (q *WQ) deviceGone() {
	for _, was := range []uint32{gateOpen, gateReset} {
		q.gate.CompareAndSwap(was, gateGone)
	}
}

// Close destroys the queue: ibv_destroy_wq(3). It returns uverbs.ErrBusy while a table
// contains the queue. Close is idempotent.
func (q *WQ) Close() error { return q.life.Close() }
