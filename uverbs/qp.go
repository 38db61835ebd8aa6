package uverbs

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/noescape"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A QP is a queue pair. Its methods may be called from any number of goroutines,
// unless it was created with SingleGoroutine. Then each of the two queues belongs
// to one goroutine at a time, and only the owner of both may call Modify and Close.
type QP struct {
	object
	impl   providerQP
	pd     *PD   // nil if the QP belongs to an XRCD
	xrcd   *XRCD // of an XRCRecv QP
	cfg    QPConfig
	cap    QPCap
	single bool
	psn    uint32 // what Endpoint reports

	sq       sync.Mutex // serialises calls of the provider's send half
	poster   providerQP // handles PostSend: impl, or duringBatch in a single-goroutine QP with an open batch
	sendGate gate
	rq       sync.Mutex // serialises calls of the provider's receive half
	recvGate gate

	gidMu sync.Mutex
	gid   *GIDEntry // cached by localGID

	port atomic.Uint32 // set by Modify

	windowMu sync.Mutex
	windows  map[*MW]struct{} // type 2 windows that may be bound on this QP

	stateMu sync.Mutex // serialises Modify
	state   QPState
	groups  []mcastGroup // that the QP is attached to
}

// CreateQP creates a queue pair in state RESET: ibv_create_qp(3). It returns
// [ErrInvalid] if the configuration contradicts itself or exceeds the limits of the
// device, [ErrNotSupported] if the type is not supported, and [ErrClosed] after
// Close of the PD or of another object in cfg.
func (p *PD) CreateQP(cfg QPConfig) (*QP, error) {
	if cfg.RecvCQ == nil && cfg.Type != XRCSend {
		cfg.RecvCQ = cfg.SendCQ
	}
	if err := p.checkQP(&cfg); err != nil {
		return nil, err
	}
	cfg.SingleGoroutine = cfg.SingleGoroutine || p.single()
	var room [5]*object
	parents := append(room[:0], &p.object)
	if cfg.RSS != nil {
		parents = append(parents, &cfg.RSS.Table.object)
	}
	if cfg.SendCQ != nil {
		parents = append(parents, &cfg.SendCQ.object)
	}
	if cfg.RecvCQ != nil && cfg.RecvCQ != cfg.SendCQ {
		parents = append(parents, &cfg.RecvCQ.object)
	}
	if cfg.SRQ != nil {
		parents = append(parents, &cfg.SRQ.object)
	}
	return newQP(p.ctx, cfg, parents, func(q *QP) error {
		q.pd = p
		return q.create()
	})
}

// own copies what cfg points to: the program may change it later.
func (cfg *QPConfig) own() {
	if cfg.GID != nil {
		gid := *cfg.GID
		cfg.GID = &gid
	}
	if cfg.RSS != nil {
		rss := *cfg.RSS
		rss.Key = slices.Clone(rss.Key)
		cfg.RSS = &rss
	}
}

// newQP creates a QP. create issues the kernel's command.
func newQP(c *Context, cfg QPConfig, parents []*object, create func(*QP) error) (*QP, error) {
	cfg.own()
	q := &QP{cfg: cfg, single: cfg.SingleGoroutine, psn: randomPSN()}
	q.object = object{ctx: c, kind: "QP", rank: rankQP}
	q.under(parents...)
	q.destroy, q.retire = q.tearDown, q.retireRings
	q.id = c.id(q)
	send, recv := q.gatesOf(StateReset)
	q.sendGate.set(c, send)
	q.recvGate.set(c, recv)
	if err := q.make(func() error { return create(q) }); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *QP) create() error {
	impl, reply, err := q.ctx.impl.CreateQP(&q.cfg, q.env(), func(uhwIn, uhwOut []byte) (driver.Reply, error) {
		return q.made(q.command(uhwIn, uhwOut))
	})
	if err != nil {
		q.unmake(q.destroyKernel)
		return q.ctx.explainCreateQP(err, &q.cfg)
	}
	if impl == nil {
		impl = noQueues{}
	}
	q.poster = impl
	q.impl, q.handle, q.number, q.cap = impl, reply.Handle, reply.Number, QPCap(reply.Cap)
	return nil
}

func (q *QP) command(uhwIn, uhwOut []byte) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cfg := &q.cfg
	cmd.Start(uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE)
	cmd.NewHandle(uapi.UVERBS_ATTR_CREATE_QP_HANDLE)
	q.nameParents(cmd)
	cmd.Uint64(uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, q.id)
	ioctl.InOf(cmd, uapi.UVERBS_ATTR_CREATE_QP_CAP, &uapi.IbUverbsQpCap{
		MaxSendWr: uint32(cfg.MaxSendWR), MaxRecvWr: uint32(cfg.MaxRecvWR),
		MaxSendSge: uint32(cfg.MaxSendSGE), MaxRecvSge: uint32(cfg.MaxRecvSGE), MaxInlineData: uint32(cfg.MaxInline)})
	cmd.Uint64(uapi.UVERBS_ATTR_CREATE_QP_TYPE, uint64(cfg.Type))
	flags := uint32(cfg.CreateFlags)
	if cfg.SignalAll {
		flags |= uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL
	}
	if flags != 0 {
		cmd.Uint32(uapi.UVERBS_ATTR_CREATE_QP_FLAGS, flags)
	}
	capOut := ioctl.OutOf[uapi.IbUverbsQpCap](cmd, uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP)
	qpn := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM)
	q.ctx.nameEvents(cmd, uapi.UVERBS_ATTR_CREATE_QP_EVENT_FD)
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := q.ctx.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	copy(uhwOut, reply)
	return driver.Reply{Handle: cmd.Made(uapi.UVERBS_ATTR_CREATE_QP_HANDLE), Number: *qpn, Cap: driver.Cap{
		MaxSendWR: int(capOut.MaxSendWr), MaxRecvWR: int(capOut.MaxRecvWr),
		MaxSendSGE: int(capOut.MaxSendSge), MaxRecvSGE: int(capOut.MaxRecvSge), MaxInline: int(capOut.MaxInlineData)}}, nil
}

// nameParents adds the handles of the QP's parents to a create command.
func (q *QP) nameParents(cmd *ioctl.Cmd) {
	cfg := &q.cfg
	if q.xrcd != nil {
		cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, q.xrcd.handle)
		return
	}
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, q.pd.handle)
	if cfg.SRQ != nil {
		cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, cfg.SRQ.handle)
	}
	if cfg.RSS != nil {
		cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, cfg.RSS.Table.handle)
		return
	}
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cfg.SendCQ.handle)
	if cfg.RecvCQ != nil {
		cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cfg.RecvCQ.handle)
	}
}

// Context returns the context of q.
func (q *QP) Context() *Context { return q.ctx }

// PD returns the PD of q, or nil for an XRCRecv QP.
func (q *QP) PD() *PD { return q.pd }

// SRQ returns the SRQ of q, or nil if it has none.
func (q *QP) SRQ() *SRQ { return q.cfg.SRQ }

// QPN returns the QP's number. Peers use it to address the QP.
func (q *QP) QPN() uint32 { return q.number }

// Cap returns the actual sizes of the queues. They are at least the requested
// sizes.
func (q *QP) Cap() QPCap { return q.cap }

// SendCQ returns the CQ for completions of sends, or nil for an XRCRecv QP.
func (q *QP) SendCQ() *CQ { return q.cfg.SendCQ }

// RecvCQ returns the CQ for completions of receives, or nil for an XRC QP.
func (q *QP) RecvCQ() *CQ { return q.cfg.RecvCQ }

// PostSend posts work requests to the send queue, in order: ibv_post_send(3). If it
// returns an error, n is the index of the request that was refused. The requests
// before it have been posted; the refused request and those after it have not.
//
// PostSend does not allocate, and literals at the call site stay on the stack. In a
// loop, do not store the []SGE in a slice of requests that outlives it.
//
// If the kernel refuses the doorbell, all of wrs have been posted: n is their
// number, and they are sent with the next doorbell.
//
// The errors are [ErrQueueFull], [ErrRange], [ErrTooManySGEs], [ErrInlineTooLong],
// [ErrOpcode], [ErrRdAtomic], [ErrAtomicSize], [ErrNoMW], [ErrForeignMW],
// [ErrState], [ErrNoQueue], [ErrClosed], [ErrBusy] on a single-goroutine QP with an
// open batch, and the kernel's error for the doorbell.
//
//go:nosplit
func (q *QP) PostSend(wrs ...SendWR) (n int, err error) {
	if !q.single {
		q.sq.Lock()
	}
	if g := q.sendGate.Load(); g != gateOpen {
		err = gateErrors[g]
	} else if n, err = q.poster.PostSend(noescape.Slice(wrs)); err != nil {
		err = q.orClosed(&q.sendGate, err)
	}
	if !q.single {
		q.sq.Unlock()
	}
	return n, err
}

// PostRecv posts work requests to the receive queue, in order: ibv_post_recv(3).
// Errors and n are as for [QP.PostSend].
//
//go:nosplit
func (q *QP) PostRecv(wrs ...RecvWR) (n int, err error) {
	if !q.single {
		q.rq.Lock()
	}
	if g := q.recvGate.Load(); g != gateOpen {
		n, err = q.postRecvGated(g, wrs)
	} else if n, err = q.impl.PostRecv(noescape.Slice(wrs)); err != nil {
		err = q.orClosed(&q.recvGate, err)
	}
	if !q.single {
		q.rq.Unlock()
	}
	return n, err
}

// postRecvGated handles PostRecv if the gate is not open.
//
//go:noinline
func (q *QP) postRecvGated(g uint32, wrs []RecvWR) (n int, err error) {
	if g > gateFlush {
		return 0, gateErrors[g]
	}
	if n, err = q.impl.PostRecv(noescape.Slice(wrs)); err != nil {
		return n, q.orClosed(&q.recvGate, err)
	}
	return n, q.flushRecv()
}

// SendsOutstanding returns how many requests occupy the send queue. rxe releases a
// request when it completes. Other devices release it when its completion, or that
// of a later request, has been polled. SendsOutstanding returns 0 for a closed QP.
func (q *QP) SendsOutstanding() (n int) {
	if !q.single {
		q.sq.Lock()
	}
	if q.sendGate.Load() != gateClosed {
		n = q.impl.SendsOutstanding()
	}
	if !q.single {
		q.sq.Unlock()
	}
	return n
}

// RecvsOutstanding returns how many requests occupy the receive queue, like
// [QP.SendsOutstanding]. It returns 0 for a QP with an SRQ.
func (q *QP) RecvsOutstanding() (n int) {
	if !q.single {
		q.rq.Lock()
	}
	if g := q.recvGate.Load(); g != gateClosed && g != gateSRQ && g != gateNone {
		n = q.impl.RecvsOutstanding()
	}
	if !q.single {
		q.rq.Unlock()
	}
	return n
}

// flushRecv flushes receives that were posted in state ERR, if the provider has to
// do that.
func (q *QP) flushRecv() error {
	f, ok := q.impl.(driver.Flusher)
	if !ok {
		return nil
	}
	if err := f.FlushRecv(); err != nil {
		return q.orClosed(&q.recvGate, q.ctx.wrap("flush receives of", q.String(), err, ""))
	}
	return nil
}

// orClosed returns err, or ErrClosed if a single-goroutine queue was closed during
// the post. It must stay inlinable: a call here would make successful posts slower.
func (q *QP) orClosed(gate *gate, err error) error {
	if gate.Load() == gateClosed {
		return ErrClosed
	}
	return err
}

func (q *QP) lockBoth() {
	if !q.single {
		q.sq.Lock()
		q.rq.Lock()
	}
}

func (q *QP) unlockBoth() {
	if !q.single {
		q.rq.Unlock()
		q.sq.Unlock()
	}
}

// tearDown destroys the kernel's QP. It waits for Modify, Query and posts that are
// under way, because the kernel may reuse the handle for the next object.
func (q *QP) tearDown() error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	q.lockBoth()
	defer q.unlockBoth()
	send, recv := q.sendGate.Load(), q.recvGate.Load()
	q.closeGates()
	err := errors.Join(q.detachAll(), q.closeWindows())
	if err == nil {
		err = q.destroyKernel()
	}
	if err != nil { // the QP stays open
		q.sendGate.set(q.ctx, send)
		q.recvGate.set(q.ctx, recv)
	}
	return err
}

func (q *QP) destroyKernel() error {
	return q.destroyHandle(uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY, uapi.UVERBS_ATTR_DESTROY_QP_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_QP_RESP, destroyQPLen)
}

func (q *QP) closeGates() {
	q.sendGate.Store(gateClosed)
	q.recvGate.Store(gateClosed)
}

func (q *QP) retireRings() error {
	q.lockBoth()
	defer q.unlockBoth()
	q.closeGates()
	if !q.ctx.ending.Load() { // otherwise its CQs are closed too, and their owners may be polling
		q.purgeCQs()
	}
	return q.impl.Retire()
}

// Close destroys the QP: ibv_destroy_qp(3). Requests in its queues are dropped
// without completion. Type 2 memory windows that were ever bound on the QP are
// closed too. Close is idempotent. A goroutine that calls Close between StartSend
// and Submit deadlocks. Close returns [ErrBusy] while a [Flow] leads to the QP:
// close the flow first. If the kernel refuses, Close returns its error and the QP
// stays open.
func (q *QP) Close() error { return q.close() }
