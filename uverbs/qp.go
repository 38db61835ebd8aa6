package uverbs

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/noescape"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A QP is a queue pair. Its methods may be called from any number of
// goroutines, unless it was made with SingleGoroutine: then each of the two
// queues belongs to one goroutine at a time, and Modify and Close to the owner
// of both.
type QP struct {
	object
	impl   ProviderQP
	pd     *PD   // nil: it has an XRCD
	xrcd   *XRCD // of an XRCRecv QP
	cfg    QPConfig
	cap    QPCap
	single bool
	id     uint64
	psn    uint32 // of Endpoint

	sq       sync.Mutex // serialises the send half of the provider's calls
	sendGate gate
	rq       sync.Mutex // and the receive half
	recvGate gate

	gidMu sync.Mutex
	gid   *GIDEntry // what localGID chose

	port atomic.Uint32 // that Modify set

	windowMu sync.Mutex
	windows  map[*MW]struct{} // of type 2, that may be bound here

	stateMu sync.Mutex // serialises Modify
	state   QPState
	groups  []mcastGroup // that the QP is attached to
}

// CreateQP makes a queue pair in state RESET: ibv_create_qp(3). [ErrInvalid]
// for a configuration that makes no sense or that the device does not take,
// [ErrNotSupported] for another type, [ErrClosed] after Close of what it is
// made of.
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

// newQP makes a QP, of which create asks the kernel.
func newQP(c *Context, cfg QPConfig, parents []*object, create func(*QP) error) (*QP, error) {
	q := &QP{cfg: cfg, single: cfg.SingleGoroutine, psn: randomPSN()}
	q.object = object{ctx: c, kind: "QP", rank: rankQP}
	q.under(parents...)
	q.destroy, q.retire = q.tearDown, q.retireRings
	q.id = c.id(q)
	send, recv := q.gatesOf(StateReset)
	q.sendGate.set(c, send)
	q.recvGate.set(c, recv)
	if err := q.make(func() error { return create(q) }); err != nil {
		c.forget(q.id)
		return nil, err
	}
	return q, nil
}

func (q *QP) create() error {
	impl, reply, err := q.ctx.impl.CreateQP(q, &q.cfg, func(uhwIn, uhwOut []byte) (ProviderReply, error) {
		return q.made(q.command(uhwIn, uhwOut))
	})
	if err != nil {
		q.unmake(q.destroyKernel)
		return q.ctx.explainCreateQP(err, &q.cfg)
	}
	if impl == nil {
		impl = noQueues{}
	}
	q.impl, q.handle, q.number, q.cap = impl, reply.Handle, reply.Number, reply.Cap
	return nil
}

func (q *QP) command(uhwIn, uhwOut []byte) (ProviderReply, error) {
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
		return ProviderReply{}, err
	}
	copy(uhwOut, reply)
	return ProviderReply{Handle: cmd.Made(uapi.UVERBS_ATTR_CREATE_QP_HANDLE), Number: *qpn, Cap: QPCap{
		MaxSendWR: int(capOut.MaxSendWr), MaxRecvWR: int(capOut.MaxRecvWr),
		MaxSendSGE: int(capOut.MaxSendSge), MaxRecvSGE: int(capOut.MaxRecvSge), MaxInline: int(capOut.MaxInlineData)}}, nil
}

// nameParents adds what the QP is made of.
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

// Context returns the context that q was made from.
func (q *QP) Context() *Context { return q.ctx }

// PD returns the domain that q was made by: nil for an XRCRecv QP.
func (q *QP) PD() *PD { return q.pd }

// SRQ returns the queue that q takes its receives from, or nil.
func (q *QP) SRQ() *SRQ { return q.cfg.SRQ }

// QPN is the QP's number, by which peers address it.
func (q *QP) QPN() uint32 { return q.number }

// Cap is how large the queues came out: at least what was asked for.
func (q *QP) Cap() QPCap { return q.cap }

// SendCQ is where the completions of sends go: nil for an XRCRecv QP.
func (q *QP) SendCQ() *CQ { return q.cfg.SendCQ }

// RecvCQ is where the completions of receives go: nil for an XRC QP.
func (q *QP) RecvCQ() *CQ { return q.cfg.RecvCQ }

// PostSend posts work requests to the send queue, in order: ibv_post_send(3).
// On an error n is the index of the request that was refused; those before it
// are posted and stay so, of it and those after it nothing is.
//
// It allocates nothing, and literals at the call site stay on the stack. In a
// loop, keep the []SGE out of a slice of requests that outlives it.
//
// A doorbell that the kernel refuses is another matter: all of wrs is in the
// queue then, n is their number, and they go out with the next doorbell.
//
// The errors: [ErrQueueFull], [ErrRange], [ErrTooManySGEs], [ErrInlineTooLong],
// [ErrOpcode], [ErrAtomicSize], [ErrNoMW], [ErrForeignMW], [ErrState], [ErrNoQueue], [ErrClosed], or what the kernel said to the
// doorbell.
//
//go:nosplit
func (q *QP) PostSend(wrs ...SendWR) (n int, err error) {
	if !q.single {
		q.sq.Lock()
	}
	if g := q.sendGate.Load(); g != gateOpen {
		err = gateErrors[g]
	} else if n, err = q.impl.PostSend(noescape.Slice(wrs)); err != nil {
		err = q.orClosed(&q.sendGate, err)
	}
	if !q.single {
		q.sq.Unlock()
	}
	return n, err
}

// PostRecv posts work requests to the receive queue, in order:
// ibv_post_recv(3). Errors and n are as for [QP.PostSend].
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

// postRecvGated is PostRecv where the gate is not open.
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

// SendsOutstanding returns how many requests occupy the send queue: posted, and
// not yet given back. rxe gives a request back as it completes, other devices
// once its completion, or that of a later request, has been polled. It is 0 for
// a closed QP.
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

// RecvsOutstanding is [QP.SendsOutstanding] of the receive queue. It is 0 for a
// QP with an SRQ.
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

// flushRecv has receives flushed that were posted in the state ERR, where a
// provider has to see to it.
func (q *QP) flushRecv() error {
	f, ok := q.impl.(ProviderFlusher)
	if !ok {
		return nil
	}
	if err := f.FlushRecv(); err != nil {
		return q.orClosed(&q.recvGate, q.ctx.wrap("flush receives of", q.String(), err, ""))
	}
	return nil
}

// orClosed is err, or ErrClosed when a single-goroutine queue was closed under
// the post.
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

// tearDown destroys the kernel's QP. Modify, Query and posts under way end
// first: the kernel gives the handle to the next object that it makes.
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
	if err != nil { // the QP lives on
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
	q.ctx.forget(q.id)
	if !q.ctx.ending.Load() { // or else its CQs go too, and their owners may be polling
		q.purgeCQs()
	}
	return q.impl.Retire()
}

// Close destroys the QP: ibv_destroy_qp(3). Requests still in its queues are
// gone without completion. Type 2 memory windows that were ever bound on it are
// closed with it. It is idempotent. Calling it between StartSend and
// Submit of the same goroutine deadlocks. The error is what the kernel says
// when it refuses; the QP lives on then.
func (q *QP) Close() error { return q.close() }
