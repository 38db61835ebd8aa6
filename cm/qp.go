package cm

import (
	"errors"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// CreateQP makes the id's QP: rdma_create_qp(3). The id must be bound to a
// device: after Bind to a device's address, after the address is resolved, or
// on a connection request.
//
// A nil pd stands for the one that ids of the device share. A pd of a Context
// of the caller's own is as good, as long as it is of the same device. A cfg
// without Type gets the id's. Queues that cfg leaves nil are made, one for each
// direction, as large as the queue that they serve; SendComp and RecvComp wait
// on those. An SRQ that CreateSRQ made is used, and cfg cannot name another then.
//
// An [uverbs.XRCRecv] QP has no queues: cfg has nothing but Access then. It is in
// the XRC domain that such ids of the device share, and takes messages for the
// SRQs there, which CreateSRQ makes. A QP in a domain of the program's own goes
// with an id that has none: ConnParam names it.
//
// The QP is in INIT then, a UD QP in RTS. The library moves it on as the
// connection goes: [uverbs.QP.Modify] is for the states that it leaves alone.
//
// The errors: [uverbs.ErrInvalid] for an id that is not bound or has a QP, and
// for a type, PD or SRQ that is not the id's; [uverbs.ErrClosed] after Close;
// else those of [uverbs.PD.CreateQP], [uverbs.XRCD.CreateQP],
// [uverbs.Context.OpenXRCD] and [uverbs.Context.CreateCQ].
func (i *ID) CreateQP(pd *uverbs.PD, cfg uverbs.QPConfig) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	const op = "create QP of"
	pd, err := i.checkPD(op, pd)
	if err != nil {
		return err
	}
	if i.qp.Load() != nil {
		return invalid(op, i.describe(), "the id has a QP")
	}
	if cfg.Type == 0 {
		cfg.Type = i.qpType
	}
	if cfg.Type != i.qpType {
		return invalid(op, i.describe(), "Type is "+cfg.Type.String()+", the id is for "+i.qpType.String())
	}
	if own := i.srq.Load(); cfg.SRQ == nil && cfg.Type != uverbs.XRCRecv {
		cfg.SRQ = own
	} else if own != nil && cfg.SRQ != own {
		return invalid(op, i.describe(), "the id has an SRQ of its own, which PostRecv posts to: leave SRQ nil, or call DestroySRQ before")
	}
	if cfg.Type == uverbs.XRCRecv {
		return i.createTarget(cfg)
	}
	// Of an earlier QP there may be a queue that could not be closed then.
	if err := i.destroyCQs(); err != nil {
		return err
	}
	if err := i.createCQs(pd, &cfg); err != nil {
		return errors.Join(err, i.destroyCQs())
	}
	qp, err := pd.CreateQP(cfg)
	if err != nil {
		return errors.Join(err, i.destroyCQs())
	}
	i.qp.Store(qp)
	i.pd, i.usesSRQ, i.single = pd, cfg.SRQ != nil, cfg.SingleGoroutine
	i.sendCQ.Store(cfg.SendCQ)
	i.recvCQ.Store(cfg.RecvCQ)
	err = i.fitCQs(qp.Cap())
	if err == nil {
		err = i.initQP()
	}
	if err != nil {
		return errors.Join(err, i.destroyQP())
	}
	return nil
}

// checkPD finds the PD to use. The caller holds i.mu.
func (i *ID) checkPD(op string, pd *uverbs.PD) (*uverbs.PD, error) {
	switch {
	case i.closed:
		return nil, closed(op, i.describe())
	case i.dev == nil:
		return nil, invalid(op, i.describe(), "the id is not bound to a device: Bind it to a device's address, or resolve the peer's first")
	case pd == nil:
		return i.dev.pd, nil
	case pd.Context() == i.dev.ctx:
		return pd, nil
	}
	own, other := i.dev.ctx.Device(), pd.Context().Device()
	if own.Index != other.Index || own.NodeGUID != other.NodeGUID {
		return nil, invalid(op, i.describe(), "the PD belongs to "+other.Name+", the id is bound to "+own.Name)
	}
	return pd, nil
}

// createCQs makes the queues that cfg leaves open.
func (i *ID) createCQs(pd *uverbs.PD, cfg *uverbs.QPConfig) (err error) {
	if cfg.SendCQ == nil {
		if cfg.SendCQ, err = pd.Context().CreateCQ(uverbs.CQConfig{Entries: max(cfg.MaxSendWR, 1)}); err != nil {
			return err
		}
		i.ownSendCQ.Store(cfg.SendCQ)
	}
	if cfg.RecvCQ == nil && cfg.Type != uverbs.XRCSend {
		entries := cfg.MaxRecvWR
		if cfg.SRQ != nil {
			entries = cfg.SRQ.MaxWR()
		}
		if cfg.RecvCQ, err = pd.Context().CreateCQ(uverbs.CQConfig{Entries: max(entries, 1)}); err != nil {
			return err
		}
		i.ownRecvCQ.Store(cfg.RecvCQ)
	}
	return nil
}

// fitCQs makes the id's own queues as large as the QP came out.
func (i *ID) fitCQs(c uverbs.QPCap) error {
	for _, q := range []struct {
		cq *uverbs.CQ
		wr int
	}{{i.ownSendCQ.Load(), c.MaxSendWR}, {i.ownRecvCQ.Load(), c.MaxRecvWR}} {
		if q.cq == nil || q.cq.Entries() >= q.wr {
			continue
		}
		if err := q.cq.Resize(q.wr); err != nil {
			return err
		}
	}
	return nil
}

// initQP takes a new QP to where the program may post receives: INIT, or RTS
// for UD.
func (i *ID) initQP() error {
	if err := i.advance(uverbs.StateInit, 0); err != nil || i.qpType != uverbs.UD {
		return err
	}
	if err := i.modifyQP(uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.MaskState); err != nil {
		return err
	}
	return i.modifyQP(uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.MaskState|uverbs.MaskSQPSN)
}

// advance moves the QP to a state with the attributes that the connection manager
// gives; depth replaces what it says of READs and atomics, unless it is the
// maximum.
func (i *ID) advance(s uverbs.QPState, depth uint8) error {
	if i.qp.Load() == nil {
		return nil
	}
	a, m, err := i.initQPAttr(s)
	if err != nil {
		return err
	}
	switch {
	case s == uverbs.StateRTR && depth != MaxRespRes:
		a.MaxDestRdAtomic = depth
	case s == uverbs.StateRTS && depth != MaxInitDepth:
		a.MaxRdAtomic = depth
	}
	return i.modifyQP(a, m)
}

func (i *ID) toRTR(resources uint8) error {
	// Since CreateQP the connection manager has learnt which accesses the peer
	// needs.
	if err := i.advance(uverbs.StateInit, 0); err != nil {
		return err
	}
	return i.advance(uverbs.StateRTR, resources)
}

func (i *ID) toRTS(depth uint8) error { return i.advance(uverbs.StateRTS, depth) }

// modifyQP changes the QP, if the id has one that is open.
func (i *ID) modifyQP(a uverbs.QPAttr, m uverbs.QPMask) error {
	qp := i.qp.Load()
	if qp == nil {
		return nil
	}
	err := qp.Modify(a, m)
	if a.State == uverbs.StateErr && errors.Is(err, uverbs.ErrClosed) {
		return nil // the program has closed it
	}
	return err
}

// InitQPAttr returns what to give [uverbs.QP.Modify] to take a QP of the
// program's own to a state: rdma_init_qp_attr(3). State INIT is known once the
// id is bound to a device, RTR and RTS with the connection request or response.
// [uverbs.ErrInvalid] before that, [ErrDisconnected] when the peer has taken
// its request back, [uverbs.ErrClosed] after Close.
func (i *ID) InitQPAttr(s uverbs.QPState) (uverbs.QPAttr, uverbs.QPMask, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return uverbs.QPAttr{}, 0, closed("init QP attributes of", i.describe())
	}
	return i.initQPAttr(s)
}

// knownMask is what the verbs know. Kernels have set bits beyond it that their
// own verbs refuse.
const knownMask = uverbs.MaskDestQPN<<1 - 1

func (i *ID) initQPAttr(s uverbs.QPState) (uverbs.QPAttr, uverbs.QPMask, error) {
	k, err := i.node.file.InitQPAttr(i.kernel, uint32(s))
	if err != nil {
		return uverbs.QPAttr{}, 0, i.explainInit(err, s)
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

func (i *ID) explainInit(err error, s uverbs.QPState) error {
	const op = "init QP attributes of"
	if i.requested {
		return i.withdrawn(op, wrap(op, i.describe(), err, ""))
	}
	detail := ""
	if errors.Is(err, unix.EINVAL) {
		detail = s.String() + " is not known yet: INIT needs a device, RTR and RTS the connection request or response"
	}
	return wrap(op, i.describe(), err, detail)
}

// DestroyQP closes the QP and the queues that CreateQP made:
// rdma_destroy_qp(3). [ID.Close] does it too. [uverbs.ErrBusy] while another QP
// uses the queues, or what the kernel says.
func (i *ID) DestroyQP() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.detachAll(); err != nil {
		return err
	}
	return i.destroyQP()
}

func (i *ID) destroyQP() error {
	if qp := i.qp.Load(); qp != nil {
		if err := qp.Close(); err != nil {
			return err
		}
		i.qp.Store(nil)
		i.sendCQ.Store(nil)
		if i.qpType != uverbs.XRCRecv {
			i.recvCQ.Store(nil)
		}
		if i.dev != nil {
			i.pd = i.dev.pd
		}
	}
	return errors.Join(i.destroyCQs(), i.leaveDomain())
}

func (i *ID) destroyCQs() error {
	if i.qpType == uverbs.XRCRecv && i.srq.Load() != nil {
		return nil // the queue is the SRQ's
	}
	for _, p := range []interface {
		Load() *uverbs.CQ
		Store(*uverbs.CQ)
	}{&i.ownSendCQ, &i.ownRecvCQ} {
		if cq := p.Load(); cq != nil {
			if err := cq.Close(); err != nil {
				return err
			}
			p.Store(nil)
		}
	}
	return nil
}

// CreateSRQ makes a shared receive queue, which PostRecv uses from then on, and
// the id's QP, which must not be there yet: rdma_create_srq(3). A nil pd stands
// for the device's.
//
// On an id of [uverbs.XRCRecv] it is an XRC SRQ, which the peer names by its SRQN,
// and the QP may be there already. An XRCD that cfg leaves nil is the one that such
// ids of the device share; a CQ that it leaves nil is made, and RecvComp waits on
// it.
//
// [uverbs.ErrInvalid] for an id that is not bound, or has an SRQ or a QP, and for
// a PD of another device; [uverbs.ErrClosed] after Close; else the errors are those
// of [uverbs.PD.CreateSRQ], [uverbs.Context.OpenXRCD] and
// [uverbs.Context.CreateCQ].
func (i *ID) CreateSRQ(pd *uverbs.PD, cfg uverbs.SRQConfig) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	const op = "create SRQ of"
	pd, err := i.checkPD(op, pd)
	if err != nil {
		return err
	}
	switch {
	case i.srq.Load() != nil:
		return invalid(op, i.describe(), "the id has an SRQ")
	case i.qp.Load() != nil && i.qpType != uverbs.XRCRecv:
		return invalid(op, i.describe(), "the id has a QP, which would not take receives from it: call CreateSRQ before CreateQP")
	}
	if i.qpType == uverbs.XRCRecv {
		if err := i.xrcSRQ(pd, &cfg); err != nil {
			return err
		}
	}
	srq, err := pd.CreateSRQ(cfg)
	if err != nil {
		return errors.Join(err, i.freeSRQ())
	}
	i.srq.Store(srq)
	if i.qpType == uverbs.XRCRecv {
		i.recvCQ.Store(cfg.CQ)
	}
	return nil
}

// DestroySRQ closes what CreateSRQ made: rdma_destroy_srq(3). [ID.Close] does
// it too. [uverbs.ErrBusy] while a QP uses it.
func (i *ID) DestroySRQ() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.destroySRQ()
}

func (i *ID) destroySRQ() error {
	srq := i.srq.Load()
	if srq == nil {
		return nil
	}
	if err := srq.Close(); err != nil {
		return err
	}
	i.srq.Store(nil)
	return i.freeSRQ()
}
