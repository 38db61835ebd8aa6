package cm

import (
	"errors"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// CreateQP creates the id's QP: rdma_create_qp(3). The id must be bound to a device,
// which it is after Bind to a device's address, after the address is resolved, and
// on a connection request.
//
// A nil pd stands for the PD that the ids of the device share. pd may also belong to
// a Context that the caller has opened, if it is of the same device. If cfg.Type is
// 0, it is the id's type. For queues that are nil in cfg, CreateQP creates
// completion queues, one for each direction and as large as the work queue. SendComp
// and RecvComp wait on those. If CreateSRQ has created an SRQ, the QP uses it, and
// cfg must not have another one.
//
// An [uverbs.XRCRecv] QP has no queues, so cfg may only set Access. It is in the XRC
// domain that such ids of the device share, and receives messages for the SRQs in
// that domain, which CreateSRQ creates. To use a QP in another domain, create it
// without the id and pass its number in ConnParam.
//
// If cfg.Path is set, it replaces the headers that the connection manager has chosen
// for the packets of a connected QP. If the QP has options of enhanced connection
// establishment, they are negotiated with the peer: see [ID.SetLocalECE].
//
// The new QP is in state INIT, a UD QP in RTS. The library changes its state with
// that of the connection. Use [uverbs.QP.Modify] only for other states.
//
// CreateQP returns [uverbs.ErrInvalid] if the id is not bound or has a QP, and for a
// type, PD or SRQ that does not fit the id. It returns [uverbs.ErrClosed] after
// Close. Otherwise the errors are those of [uverbs.PD.CreateQP],
// [uverbs.XRCD.CreateQP], [uverbs.Context.OpenXRCD] and [uverbs.Context.CreateCQ].
func (id *ID) CreateQP(pd *uverbs.PD, cfg uverbs.QPConfig) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	const op = "create QP of"
	pd, err := id.checkPD(op, pd)
	if err != nil {
		return err
	}
	if id.qp.Load() != nil {
		return invalid(op, id.describe(), "the id has a QP")
	}
	if cfg.Type == 0 {
		cfg.Type = id.qpType
	}
	if cfg.Type != id.qpType {
		return invalid(op, id.describe(), "Type is "+cfg.Type.String()+", the id is for "+id.qpType.String())
	}
	if own := id.srq.Load(); cfg.SRQ == nil && cfg.Type != uverbs.XRCRecv {
		cfg.SRQ = own
	} else if own != nil && cfg.SRQ != own {
		return invalid(op, id.describe(), "the id has an SRQ of its own, which PostRecv posts to: leave SRQ nil, or call DestroySRQ before")
	}
	if cfg.Type == uverbs.XRCRecv {
		return id.createTarget(cfg)
	}
	// A queue of an earlier QP may remain that could not be closed.
	if err := id.destroyCQs(); err != nil {
		return err
	}
	if err := id.createCQs(pd, &cfg); err != nil {
		return errors.Join(err, id.destroyCQs())
	}
	qp, err := pd.CreateQP(cfg)
	if err != nil {
		return errors.Join(err, id.destroyCQs())
	}
	id.qp.Store(qp)
	id.sendQP.Store(qp)
	id.setAttrs(func() { id.pd = pd })
	id.usesSRQ, id.single, id.path = cfg.SRQ != nil, cfg.SingleGoroutine, cfg.Path
	id.sendCQ.Store(cfg.SendCQ)
	id.recvCQ.Store(cfg.RecvCQ)
	err = id.fitCQs(qp.Cap())
	if err == nil {
		err = id.offerECE(qp)
	}
	if err == nil {
		err = id.initQP()
	}
	if err != nil {
		return errors.Join(err, id.destroyQP())
	}
	if s := id.syncID(); s != nil {
		s.stopWaits()
	}
	return nil
}

// checkPD returns the PD to use. The caller holds id.mu.
func (id *ID) checkPD(op string, pd *uverbs.PD) (*uverbs.PD, error) {
	switch {
	case id.isClosed():
		return nil, closed(op, id.describe())
	case id.dev == nil:
		return nil, invalid(op, id.describe(), "the id is not bound to a device: Bind it to a device's address, or resolve the peer's first")
	case pd == nil:
		return id.dev.pd, nil
	case pd.Context() == id.dev.ctx:
		return pd, nil
	}
	own, other := id.dev.ctx.Device(), pd.Context().Device()
	if own.Index != other.Index || own.NodeGUID != other.NodeGUID {
		return nil, invalid(op, id.describe(), "the PD belongs to "+other.Name+", the id is bound to "+own.Name)
	}
	return pd, nil
}

// createCQs creates the completion queues that are nil in cfg.
func (id *ID) createCQs(pd *uverbs.PD, cfg *uverbs.QPConfig) (err error) {
	if cfg.SendCQ == nil {
		if cfg.SendCQ, err = pd.Context().CreateCQ(uverbs.CQConfig{Entries: max(cfg.MaxSendWR, 1)}); err != nil {
			return err
		}
		id.ownSendCQ.Store(cfg.SendCQ)
	}
	if cfg.RecvCQ == nil && cfg.Type != uverbs.XRCSend {
		entries := cfg.MaxRecvWR
		if cfg.SRQ != nil {
			entries = cfg.SRQ.MaxWR()
		}
		if cfg.RecvCQ, err = pd.Context().CreateCQ(uverbs.CQConfig{Entries: max(entries, 1)}); err != nil {
			return err
		}
		id.ownRecvCQ.Store(cfg.RecvCQ)
	}
	return nil
}

// fitCQs resizes the id's own completion queues to the actual sizes of the QP.
func (id *ID) fitCQs(c uverbs.QPCap) error {
	for _, q := range []struct {
		cq *uverbs.CQ
		wr int
	}{{id.ownSendCQ.Load(), c.MaxSendWR}, {id.ownRecvCQ.Load(), c.MaxRecvWR}} {
		if q.cq == nil || q.cq.Entries() >= q.wr {
			continue
		}
		if err := q.cq.Resize(q.wr); err != nil {
			return err
		}
	}
	return nil
}

// initQP moves a new QP to a state in which receives can be posted: INIT, or RTS for
// UD.
func (id *ID) initQP() error {
	if err := id.advance(uverbs.StateInit, 0); err != nil || id.qpType != uverbs.UD {
		return err
	}
	if err := id.modifyQP(uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.MaskState); err != nil {
		return err
	}
	return id.modifyQP(uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.MaskState|uverbs.MaskSQPSN)
}

// advance moves the QP to a state with the attributes of the connection manager.
// Unless it is the maximum, depth replaces the number of READs and atomics.
func (id *ID) advance(s uverbs.QPState, depth uint8) error {
	if id.qp.Load() == nil {
		return nil
	}
	a, m, err := id.initQPAttr(s)
	if err != nil {
		return err
	}
	switch {
	case s == uverbs.StateRTR && depth != MaxRespRes:
		a.MaxDestRdAtomic = depth
	case s == uverbs.StateRTS && depth != MaxInitDepth:
		a.MaxRdAtomic = depth
	}
	if s == uverbs.StateRTR {
		id.path.Apply(&a.AV)
	}
	return id.modifyQP(a, m)
}

func (id *ID) toRTR(resources uint8) error {
	// Repeat INIT: after CreateQP, the connection manager may have learned of more
	// access rights that the peer needs.
	if err := id.advance(uverbs.StateInit, 0); err != nil {
		return err
	}
	if err := id.setECE(); err != nil {
		return err
	}
	if err := id.advance(uverbs.StateRTR, resources); err != nil {
		return err
	}
	return id.grantedECE()
}

func (id *ID) toRTS(depth uint8) error { return id.advance(uverbs.StateRTS, depth) }

// modifyQP modifies the id's QP, if there is one.
func (id *ID) modifyQP(a uverbs.QPAttr, m uverbs.QPMask) error {
	qp := id.qp.Load()
	if qp == nil {
		return nil
	}
	err := qp.Modify(a, m)
	if a.State == uverbs.StateErr && errors.Is(err, uverbs.ErrClosed) {
		return nil // by the program
	}
	return err
}

// InitQPAttr returns the attributes for [uverbs.QP.Modify] that move a QP of the
// caller to a state: rdma_init_qp_attr(3). Those of INIT are available once the id
// is bound to a device, those of RTR and RTS with the connection request or
// response. InitQPAttr returns [uverbs.ErrInvalid] before that, [ErrDisconnected] if
// the peer has withdrawn its request, and [uverbs.ErrClosed] after Close.
func (id *ID) InitQPAttr(s uverbs.QPState) (uverbs.QPAttr, uverbs.QPMask, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.isClosed() {
		return uverbs.QPAttr{}, 0, closed("init QP attributes of", id.describe())
	}
	return id.initQPAttr(s)
}

// knownMask has the bits that uverbs knows. Some kernels also set bits that their own
// verbs refuse.
const knownMask = uverbs.MaskDestQPN<<1 - 1

func (id *ID) initQPAttr(s uverbs.QPState) (uverbs.QPAttr, uverbs.QPMask, error) {
	k, err := id.node.file.InitQPAttr(id.kernel, uint32(s))
	if err != nil {
		return uverbs.QPAttr{}, 0, id.explainInit(err, s)
	}
	return uverbs.QPAttr{State: uverbs.QPState(k.QpState), CurState: uverbs.QPState(k.CurQpState), PathMTU: uverbs.MTU(k.PathMtu),
		PathMigState: uint8(k.PathMigState), QKey: k.Qkey, RQPSN: k.RqPsn, SQPSN: k.SqPsn, DestQPN: k.DestQpNum,
		Access: uverbs.Access(k.QpAccessFlags), AV: ahAttr(&k.AhAttr), AltAV: ahAttr(&k.AltAhAttr),
		Cap: uverbs.QPCap{MaxSendWR: int(k.MaxSendWr), MaxRecvWR: int(k.MaxRecvWr), MaxSendSGE: int(k.MaxSendSge),
			MaxRecvSGE: int(k.MaxRecvSge), MaxInline: int(k.MaxInlineData)},
		PKeyIndex: k.PkeyIndex, AltPKeyIndex: k.AltPkeyIndex, EnSQDAsyncNotify: k.EnSqdAsyncNotify != 0,
		SQDraining: k.SqDraining != 0, MaxRdAtomic: k.MaxRdAtomic, MaxDestRdAtomic: k.MaxDestRdAtomic,
		MinRNRTimer: k.MinRnrTimer, Port: k.PortNum, Timeout: k.Timeout, RetryCnt: k.RetryCnt, RNRRetry: k.RnrRetry,
		AltPort: k.AltPortNum, AltTimeout: k.AltTimeout}, uverbs.QPMask(k.QpAttrMask) & knownMask, nil
}

func (id *ID) explainInit(err error, s uverbs.QPState) error {
	const op = "init QP attributes of"
	if id.requested {
		return id.withdrawnError(op, id.wrap(op, id.describe(), err, ""))
	}
	detail := ""
	if errors.Is(err, unix.EINVAL) {
		detail = s.String() + " is not known yet: INIT needs a device, RTR and RTS the connection request or response"
	}
	return id.wrap(op, id.describe(), err, detail)
}

// DestroyQP closes the QP and the queues that CreateQP has created:
// rdma_destroy_qp(3). [ID.Close] calls it too. It returns [uverbs.ErrBusy] while
// another QP uses the queues, or what the kernel says.
func (id *ID) DestroyQP() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.detachAll(); err != nil {
		return err
	}
	return id.destroyQP()
}

func (id *ID) destroyQP() error {
	if qp := id.qp.Load(); qp != nil {
		if err := qp.Close(); err != nil {
			return err
		}
		id.qp.Store(nil)
		id.sendQP.Store(nil)
		id.sendCQ.Store(nil)
		if id.qpType != uverbs.XRCRecv {
			id.recvCQ.Store(nil)
		}
		if id.dev != nil {
			id.setAttrs(func() { id.pd = id.dev.pd })
		}
	}
	return errors.Join(id.destroyCQs(), id.leaveDomain())
}

func (id *ID) destroyCQs() error {
	if id.qpType == uverbs.XRCRecv && id.srq.Load() != nil {
		return nil // the queue belongs to the SRQ
	}
	for _, p := range []interface {
		Load() *uverbs.CQ
		Store(*uverbs.CQ)
	}{&id.ownSendCQ, &id.ownRecvCQ} {
		if cq := p.Load(); cq != nil {
			if err := cq.Close(); err != nil {
				return err
			}
			p.Store(nil)
		}
	}
	return nil
}

// CreateSRQ creates a shared receive queue: rdma_create_srq(3). PostRecv and the
// id's QP then use it. The QP must not exist yet. A nil pd stands for the PD that
// the ids of the device share.
//
// For an id of type [uverbs.XRCRecv], it is an XRC SRQ, which the peer addresses by
// its SRQN, and the QP may already exist. If cfg.XRCD is nil, it is the one that
// such ids of the device share. If cfg.CQ is nil, CreateSRQ creates a completion
// queue, and RecvComp waits on it.
//
// CreateSRQ returns [uverbs.ErrInvalid] if the id is not bound or has an SRQ or a
// QP, and for a PD of another device. It returns [uverbs.ErrClosed] after Close.
// Otherwise the errors are those of [uverbs.PD.CreateSRQ], [uverbs.Context.OpenXRCD]
// and [uverbs.Context.CreateCQ].
func (id *ID) CreateSRQ(pd *uverbs.PD, cfg uverbs.SRQConfig) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	const op = "create SRQ of"
	pd, err := id.checkPD(op, pd)
	if err != nil {
		return err
	}
	switch {
	case id.srq.Load() != nil:
		return invalid(op, id.describe(), "the id has an SRQ")
	case id.qp.Load() != nil && id.qpType != uverbs.XRCRecv:
		return invalid(op, id.describe(), "the id has a QP, which would not take receives from it: call CreateSRQ before CreateQP")
	}
	if id.qpType == uverbs.XRCRecv {
		if err := id.xrcSRQ(pd, &cfg); err != nil {
			return err
		}
	}
	srq, err := pd.CreateSRQ(cfg)
	if err != nil {
		return errors.Join(err, id.freeSRQ())
	}
	id.srq.Store(srq)
	if id.qpType == uverbs.XRCRecv {
		id.recvCQ.Store(cfg.CQ)
	}
	return nil
}

// DestroySRQ closes the SRQ that CreateSRQ has created: rdma_destroy_srq(3).
// [ID.Close] calls it too. It returns [uverbs.ErrBusy] while a QP uses the SRQ.
func (id *ID) DestroySRQ() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.destroySRQ()
}

func (id *ID) destroySRQ() error {
	srq := id.srq.Load()
	if srq == nil {
		return nil
	}
	if err := srq.Close(); err != nil {
		return err
	}
	id.srq.Store(nil)
	return id.freeSRQ()
}
