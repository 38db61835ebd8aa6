package uverbs

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/noescape"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An SRQConfig describes a shared receive queue: ibv_create_srq(3).
type SRQConfig struct {
	MaxWR  int // receives that the queue holds
	MaxSGE int // SGEs of each receive; 0: 1
	// Limit is the number of remaining receives below which [EventSRQLimitReached] is raised,
	// once. 0 means never. [SRQ.Modify] sets it again. mlx5 does not accept a Limit here.
	Limit int
	// SingleGoroutine omits the lock. Then only one goroutine at a time may use the queue.
	SingleGoroutine bool

	// XRCD makes the queue an XRC SRQ: it receives the messages that peers send to it through
	// XRCRecv QPs of the XRC domain. Their completions go to CQ, which must be set then. Its
	// memory belongs to the PD, whichever QP a message arrives on.
	XRCD *XRCD
	CQ   *CQ
}

// An SRQ is a shared receive queue. QPs created with QPConfig.SRQ use its receives.
// Its methods may be called from any number of goroutines, unless it was created
// with SingleGoroutine.
type SRQ struct {
	object
	impl providerSRQ
	xrcd *XRCD // of an XRC SRQ, like cq and srqn
	cq   *CQ
	srqn uint32

	maxWR  atomic.Int64
	maxSGE int
	extra  int // receives that the kernel counts but that the provider reserves

	limit atomic.Pointer[func()] // of watch

	queueLock
	gate gate
}

// An SRQAttr contains the attributes of an SRQ: struct ibv_srq_attr.
type SRQAttr struct {
	MaxWR  int // maximum number of receives
	MaxSGE int // of each receive; cannot be changed
	Limit  int // an event is raised when fewer receives are left; 0 if there is no limit, or after the event
}

// SRQMask selects fields of an [SRQAttr]. The values are those of
// ibv_srq_attr_mask.
type SRQMask uint32

// The bits of ibv_modify_srq(3).
const (
	SRQMaskMaxWR SRQMask = 1 << 0
	SRQMaskLimit SRQMask = 1 << 1
)

// CreateSRQ creates a shared receive queue: ibv_create_srq(3). [SRQ.Query] returns
// its actual size. CreateSRQ returns [ErrInvalid] if the device does not support
// the configuration, and [ErrClosed] after Close of the PD.
func (p *PD) CreateSRQ(cfg SRQConfig) (*SRQ, error) {
	if cfg.MaxSGE == 0 {
		cfg.MaxSGE = 1
	}
	if err := p.checkSRQ(&cfg); err != nil {
		return nil, err
	}
	s := &SRQ{queueLock: queueLock{single: cfg.SingleGoroutine || p.single()}, xrcd: cfg.XRCD, cq: cfg.CQ}
	s.object = object{ctx: p.ctx, life: s, kind: "SRQ", rank: rankSRQ}
	s.addParents(&p.object)
	if s.xrcd != nil {
		s.addParents(&s.xrcd.object, &s.cq.object)
	}
	s.id = p.ctx.id(s)
	s.gate.set(p.ctx, gateOpen)
	if err := s.createWith(func() error { return s.create(p, &cfg) }); err != nil {
		return nil, err
	}
	return s, nil
}

func (p *PD) checkSRQ(cfg *SRQConfig) error {
	const op = "create SRQ"
	for _, n := range []struct {
		name     string
		value    int
		smallest int
	}{{"MaxWR", cfg.MaxWR, 1}, {"MaxSGE", cfg.MaxSGE, 0}, {"Limit", cfg.Limit, 0}} {
		if n.value < n.smallest || n.value > math.MaxInt32 {
			return invalid(op, p.String(), n.name+" must be "+sitoa(n.smallest)+" to 2^31-1: "+sitoa(n.value))
		}
	}
	switch {
	case (cfg.XRCD == nil) != (cfg.CQ == nil):
		return invalid(op, p.String(), "XRCD and CQ go together: an XRC SRQ needs both, another has neither")
	case cfg.XRCD == nil:
	case cfg.XRCD.ctx != p.ctx:
		return invalid(op, p.String(), cfg.XRCD.String()+" belongs to another Context than the PD")
	case cfg.CQ.ctx != p.ctx:
		return invalid(op, p.String(), cfg.CQ.String()+" belongs to another Context than the PD")
	}
	return nil
}

func (s *SRQ) create(p *PD, cfg *SRQConfig) error {
	room := 0
	asked := &driver.SRQConfig{MaxWR: cfg.MaxWR, MaxSGE: cfg.MaxSGE, Limit: cfg.Limit, XRC: cfg.XRCD != nil,
		Memory: p.memory()}
	impl, reply, err := s.ctx.impl.CreateSRQ(asked, func(uhwIn, uhwOut []byte) (driver.Reply, error) {
		r, err := s.setHandle(s.command(p, asked, uhwIn, uhwOut))
		room = r.SRQ.MaxWR
		return r, err
	})
	if err != nil {
		s.destroyIfExists(s.destroyKernel)
		return s.ctx.explainSRQ("create SRQ", s.ctx.name, err, SRQAttr{cfg.MaxWR, cfg.MaxSGE, cfg.Limit}, cfg.MaxWR)
	}
	s.impl, s.handle, s.number, s.srqn = impl, reply.Handle, reply.Handle, reply.Number
	s.maxWR.Store(int64(reply.SRQ.MaxWR))
	s.maxSGE = reply.SRQ.MaxSGE
	s.extra = max(room-reply.SRQ.MaxWR, 0)
	return nil
}

func (s *SRQ) command(p *PD, cfg *driver.SRQConfig, uhwIn, uhwOut []byte) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_CREATE)
	cmd.NewHandle(uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE)
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, p.handle)
	kind := uint64(uapi.IB_UVERBS_SRQT_BASIC)
	var number *uint32
	if s.xrcd != nil {
		kind = uapi.IB_UVERBS_SRQT_XRC
		cmd.Handle(uapi.UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, s.xrcd.handle)
		cmd.Handle(uapi.UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, s.cq.handle)
		number = ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM)
	}
	cmd.Uint64(uapi.UVERBS_ATTR_CREATE_SRQ_TYPE, kind)
	cmd.Uint64(uapi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, s.id)
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, uint32(cfg.MaxWR))
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE, uint32(cfg.MaxSGE))
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_SRQ_LIMIT, uint32(cfg.Limit))
	wr := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR)
	sge := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE)
	s.ctx.nameEvents(cmd, uapi.UVERBS_ATTR_CREATE_SRQ_EVENT_FD)
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := s.ctx.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	copy(uhwOut, reply)
	r := driver.Reply{Handle: cmd.Made(uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE),
		SRQ: driver.SRQCap{MaxWR: int(*wr), MaxSGE: int(*sge)}}
	if number != nil {
		r.Number = *number
	}
	return r, nil
}

// explainSRQ finds out, after a failure, which value the device does not support.
// room is the number of receives that the queue can hold.
func (c *Context) explainSRQ(op, object string, err error, asked SRQAttr, room int) error {
	detail := ""
	if errors.Is(err, unix.EINVAL) {
		if a, qerr := c.QueryDevice(); qerr == nil {
			detail = asked.explainLimits(a)
		}
		if detail == "" && asked.Limit > room {
			detail = "Limit is " + sitoa(asked.Limit) + ", but the queue holds " + sitoa(room) + " receives"
		}
	}
	if errors.Is(err, unix.ENOMEM) {
		detail = "the kernel has no memory for it, or the device no object left"
	}
	return c.wrap(op, object, err, detail)
}

func (s SRQAttr) explainLimits(a *DeviceAttr) string {
	for _, n := range []struct {
		name         string
		asked, limit int
	}{{"MaxWR", s.MaxWR, a.MaxSRQWR}, {"MaxSGE", s.MaxSGE, a.MaxSRQSGE}} {
		if n.asked > n.limit {
			return n.name + " is " + sitoa(n.asked) + ", the device accepts " + sitoa(n.limit) + " at most"
		}
	}
	return ""
}

// Context returns the context of s.
func (s *SRQ) Context() *Context { return s.ctx }

// SRQN returns the number by which peers address an XRC SRQ: ibv_get_srq_num(3). It
// returns 0 for other SRQs.
func (s *SRQ) SRQN() uint32 { return s.srqn }

// MaxWR returns the number of receives that the queue can hold at least: the
// requested number, which mlx5 rounds up.
func (s *SRQ) MaxWR() int { return int(s.maxWR.Load()) }

// MaxSGE returns the maximum number of SGEs in a receive.
func (s *SRQ) MaxSGE() int { return s.maxSGE }

// PostRecv posts work requests to the queue: ibv_post_srq_recv(3). The order in
// which messages arrive determines which QP uses which receive. Errors and n are as
// for [QP.PostSend]. The errors include [ErrDeviceGone] and [ErrClosed].
func (s *SRQ) PostRecv(wrs ...RecvWR) (n int, err error) {
	if race.Enabled {
		releasePost(s.ctx)
	}
	s.lock()
	if g := s.gate.Load(); g != gateOpen {
		err = gateErrors[g]
	} else if n, err = s.impl.PostRecv(noescape.Slice(wrs)); err != nil && s.gate.Load() == gateClosed {
		err = ErrClosed // a single-goroutine queue was closed during the post
	}
	s.unlock()
	return n, err
}

// watch sets the functions of verbs.WatchSRQ.
func (s *SRQ) watch(limit func(), dropped func(wrID uint64)) {
	s.limit.Store(&limit)
	if d, ok := s.impl.(driver.Dropper); ok {
		s.lock()
		defer s.unlock()
		d.OnDrop(dropped)
	}
}

// limitReached calls the function of watch. It reports whether there is one.
func (s *SRQ) limitReached() bool {
	f := s.limit.Load()
	if f != nil {
		(*f)()
	}
	return f != nil
}

func (s *SRQ) deviceGone() { s.gate.closeGone() }

// Modify changes the number of receives that the queue can hold, if the device
// supports it, and the limit that raises [EventSRQLimitReached]: ibv_modify_srq(3).
// Posted receives are kept. Modify returns [ErrInvalid] for a size that is too
// small for them and for values that the device does not support, [ErrNotSupported]
// if the device cannot resize SRQs, and [ErrClosed] after Close.
func (s *SRQ) Modify(a SRQAttr, m SRQMask) error {
	if m&SRQMaskMaxWR != 0 && (a.MaxWR < 1 || a.MaxWR > math.MaxInt32) {
		return invalid("modify", s.String(), "MaxWR must be 1 to 2^31-1: "+sitoa(a.MaxWR))
	}
	if m&SRQMaskLimit != 0 && (a.Limit < 0 || a.Limit > math.MaxInt32) {
		return invalid("modify", s.String(), "Limit must be 0 to 2^31-1: "+sitoa(a.Limit))
	}
	s.lock()
	defer s.unlock()
	if s.gate.Load() == gateClosed {
		return named("modify", s.String(), ErrClosed)
	}
	maxWR := 0
	if m&SRQMaskMaxWR != 0 {
		maxWR = a.MaxWR
	}
	err := s.impl.Modify(maxWR, func(uhwIn, uhwOut []byte) (driver.Reply, error) {
		return s.modifyCommand(a, m, uhwIn, uhwOut)
	})
	if err != nil {
		return s.explainModify(a, m, err)
	}
	if m&SRQMaskMaxWR != 0 {
		s.maxWR.Store(int64(a.MaxWR))
	}
	if p, ok := s.impl.(driver.Limited); ok && m&SRQMaskLimit != 0 {
		p.SetLimit(a.Limit)
	}
	return nil
}

func (s *SRQ) modifyCommand(a SRQAttr, m SRQMask, uhwIn, uhwOut []byte) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	ioctl.Write[ioctl.Void](cmd, uapi.IB_USER_VERBS_CMD_MODIFY_SRQ, &uapi.IbUverbsModifySrq{
		SrqHandle: s.handle, AttrMask: uint32(m), MaxWr: uint32(a.MaxWR), SrqLimit: uint32(a.Limit)})
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := s.ctx.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	copy(uhwOut, reply)
	return driver.Reply{Handle: s.handle}, nil
}

func (s *SRQ) explainModify(a SRQAttr, m SRQMask, err error) error {
	asked, room := SRQAttr{}, 0
	if now, qerr := s.query(); qerr == nil {
		room = now.MaxWR
		asked.Limit = now.Limit
	}
	if m&SRQMaskMaxWR != 0 {
		asked.MaxWR, room = a.MaxWR, a.MaxWR
	}
	if m&SRQMaskLimit != 0 {
		asked.Limit = a.Limit
	}
	return s.ctx.explainSRQ("modify", s.String(), err, asked, room)
}

// Query returns the queue's attributes: ibv_query_srq(3). It returns [ErrClosed]
// after Close.
func (s *SRQ) Query() (SRQAttr, error) {
	s.lock() // Close waits for the command
	defer s.unlock()
	if s.gate.Load() == gateClosed {
		return SRQAttr{}, named("query", s.String(), ErrClosed)
	}
	return s.query()
}

func (s *SRQ) query() (SRQAttr, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsQuerySrqResp](cmd, uapi.IB_USER_VERBS_CMD_QUERY_SRQ,
		&uapi.IbUverbsQuerySrq{SrqHandle: s.handle})
	if err := s.ctx.dev.Do(cmd); err != nil {
		return SRQAttr{}, s.ctx.wrap("query", s.String(), err, "")
	}
	return SRQAttr{MaxWR: int(resp.MaxWr) - s.extra, MaxSGE: int(resp.MaxSge), Limit: int(resp.SrqLimit)}, nil
}

// destroy destroys the kernel's queue. It waits for posts that are under way.
func (s *SRQ) destroy() error {
	s.lock()
	defer s.unlock()
	gate := s.gate.Swap(gateClosed)
	err := s.destroyKernel()
	if err != nil { // the queue stays open
		s.gate.set(s.ctx, gate)
	}
	return err
}

func (s *SRQ) destroyKernel() error {
	return s.destroyHandleReply(uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_DESTROY,
		uapi.UVERBS_ATTR_DESTROY_SRQ_HANDLE, uapi.UVERBS_ATTR_DESTROY_SRQ_RESP, destroySRQLen)
}

func (s *SRQ) retire() error {
	s.lock()
	defer s.unlock()
	s.gate.Store(gateClosed)
	if s.cq != nil && !s.ctx.ending.Load() {
		s.cq.purge(s.impl)
	}
	return s.impl.Retire()
}

// Close destroys the queue: ibv_destroy_srq(3). It returns [ErrBusy] while QPs use
// the queue. Close is idempotent.
func (s *SRQ) Close() error { return s.close() }
