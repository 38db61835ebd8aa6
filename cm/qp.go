package cm

import (
	"errors"

	"github.com/goverbs/goverbs/uverbs"
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
// the state of the connection. Use [uverbs.QP.Modify] only for other states.
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
		return invalid(op, id.describe(),
			"the id has an SRQ, which PostRecv posts to: leave SRQ nil, or call DestroySRQ before")
	}
	if cfg.Type == uverbs.XRCRecv {
		return id.createXRCRecvQP(cfg)
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
	id.usesSRQ, id.singleGoroutine, id.path = cfg.SRQ != nil, cfg.SingleGoroutine, cfg.Path
	id.sendCQ.Store(cfg.SendCQ)
	id.recvCQ.Store(cfg.RecvCQ)
	err = id.resizeCQs(qp.Cap())
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
		return nil, invalid(op, id.describe(), notBound)
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

// resizeCQs resizes the id's own completion queues to the actual sizes of the QP.
func (id *ID) resizeCQs(c uverbs.QPCap) error {
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

// createXRCRecvQP is CreateQP for an id that receives with XRC. Such a QP has no queues.
// The caller holds id.mu.
func (id *ID) createXRCRecvQP(cfg uverbs.QPConfig) error {
	x, err := id.joinDomain()
	if err != nil {
		return err
	}
	qp, err := x.CreateQP(cfg)
	if err != nil {
		return errors.Join(err, id.leaveDomain())
	}
	id.qp.Store(qp)
	id.sendQP.Store(qp)
	if err := id.initQP(); err != nil {
		return errors.Join(err, id.destroyQP())
	}
	return nil
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
