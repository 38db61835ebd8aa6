package uverbs

import (
	"math/rand/v2"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// CreateQP creates a queue pair in state RESET: ibv_create_qp(3). It returns
// [ErrInvalid] if the configuration contradicts itself or exceeds the limits of the
// device, [ErrNotSupported] if the type is not supported, and [ErrClosed] after
// Close of the PD or of another object in cfg.
func (p *PD) CreateQP(cfg QPConfig) (*QP, error) {
	if cfg.RecvCQ == nil && cfg.Type != XRCSend {
		cfg.RecvCQ = cfg.SendCQ
	}
	if cfg.SendCQ == nil && cfg.Type == DCT {
		cfg.SendCQ = cfg.RecvCQ // the kernel wants one
	}
	if err := p.checkQP(&cfg); err != nil {
		return nil, err
	}
	cfg.SingleGoroutine = cfg.SingleGoroutine || p.single()
	var room [5]*object
	parents := append(room[:0], &p.object)
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

// createRSS creates a raw packet QP that distributes packets over the WQs of a table. It has no
// queues.
func (p *PD) createRSS(cfg *driver.RSSConfig) (*QP, error) {
	parents := []*object{&p.object, cfg.Table.(hasObject).asObject()}
	return newQP(p.ctx, QPConfig{Type: RawPacket}, parents, func(q *QP) error {
		q.pd, q.rss = p, cfg
		return q.create()
	})
}

// newQP creates a QP. create issues the kernel's command.
func newQP(c *Context, cfg QPConfig, parents []*object, create func(*QP) error) (*QP, error) {
	cfg.own()
	q := &QP{cfg: cfg, single: cfg.SingleGoroutine, psn: randomPSN()}
	q.object = object{ctx: c, life: q, kind: "QP", rank: rankQP}
	q.addParents(parents...)
	q.id = c.id(q)
	send, recv := q.gatesOf(StateReset)
	q.sendGate.set(c, send)
	q.recvGate.set(c, recv)
	if err := q.createWith(func() error { return create(q) }); err != nil {
		return nil, err
	}
	return q, nil
}

// randomPSN returns the first packet sequence number of a QP. It is random so that it does not
// continue the sequence of an earlier QP with the same number.
func randomPSN() uint32 {
	return rand.Uint32() & 0xffffff
}

func (q *QP) create() error {
	impl, reply, err := q.ctx.impl.CreateQP(&q.cfg, q.env(), func(uhwIn, uhwOut []byte) (driver.Reply, error) {
		return q.setHandle(q.command(uhwIn, uhwOut))
	})
	if err != nil {
		err = q.undo(err, q.destroyKernel, impl)
		if q.rss != nil {
			return q.ctx.wrap("create QP", q.ctx.name, err, "")
		}
		return q.ctx.explainCreateQP(err, &q.cfg)
	}
	if impl == nil {
		impl = queueless{}
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
	cmd.Uint64(uapi.UVERBS_ATTR_CREATE_QP_TYPE, cfg.Type.kernel())
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
	if q.rss != nil {
		cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, q.rss.Handle)
		return
	}
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cfg.SendCQ.handle)
	if cfg.RecvCQ != nil {
		cmd.Handle(uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cfg.RecvCQ.handle)
	}
}

// env returns what the provider's part of q uses of other objects.
func (q *QP) env() providerQPEnv {
	e := providerQPEnv{Owner: (*qpOwner)(q), RSS: q.rss}
	if s := q.cfg.SRQ; s != nil {
		e.SRQ = s.impl
	}
	if cq := q.cfg.SendCQ; cq != nil {
		e.SendCQ = cq.impl
	}
	if cq := q.cfg.RecvCQ; cq != nil {
		e.RecvCQ = cq.impl
	}
	if q.pd == nil { // of an XRCD
		return e
	}
	e.PD, e.Memory = q.pd.shared(), q.pd.memory()
	if q.pd.single() {
		e.TD = q.pd.td.impl
	}
	return e
}

// A qpOwner is a QP as its provider sees it: it implements driver.QPOwner.
type qpOwner QP

func (o *qpOwner) Bind(wr *SendWR) (driver.Bind, error) { return (*QP)(o).bind(wr) }

// MTU queries the longest message that a UD QP can send now, in bytes. It returns
// [MaxMessage] if the query fails.
func (o *qpOwner) MTU() uint64 {
	q := (*QP)(o)
	a, err := q.ctx.QueryPort(int(q.port.Load()))
	if err != nil || a.ActiveMTU.Bytes() == 0 {
		return MaxMessage
	}
	return uint64(a.ActiveMTU.Bytes())
}

// Checksums reports whether the device fills in checksums of raw packets.
func (o *qpOwner) Checksums() bool {
	a, err := o.ctx.limits()
	return err == nil && a.CapFlags&DeviceRawIPCsum != 0
}

func (o *qpOwner) DoorbellError(err error) error { return (*QP)(o).doorbellError(err) }
