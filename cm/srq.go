package cm

import (
	"errors"

	"github.com/goverbs/goverbs/uverbs"
)

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
		return invalid(op, id.describe(),
			"the id has a QP, which would not use its receives: call CreateSRQ before CreateQP")
	}
	if id.qpType == uverbs.XRCRecv {
		if err := id.prepareXRCSRQ(pd, &cfg); err != nil {
			return err
		}
	}
	srq, err := pd.CreateSRQ(cfg)
	if err != nil {
		return errors.Join(err, id.releaseXRCSRQ())
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
	return id.releaseXRCSRQ()
}

// prepareXRCSRQ sets the XRC domain and the CQ of an XRC SRQ. The caller holds id.mu.
func (id *ID) prepareXRCSRQ(pd *uverbs.PD, cfg *uverbs.SRQConfig) (err error) {
	if cfg.XRCD == nil {
		if cfg.XRCD, err = id.joinDomain(); err != nil {
			return err
		}
	}
	if cfg.CQ == nil {
		if cfg.CQ, err = pd.Context().CreateCQ(uverbs.CQConfig{Entries: max(cfg.MaxWR, 1)}); err != nil {
			return errors.Join(err, id.leaveDomain())
		}
		id.ownRecvCQ.Store(cfg.CQ)
	}
	return nil
}

// releaseXRCSRQ releases what prepareXRCSRQ has created. The caller holds id.mu.
func (id *ID) releaseXRCSRQ() error {
	if id.qpType != uverbs.XRCRecv {
		return nil
	}
	id.recvCQ.Store(nil)
	return errors.Join(id.destroyCQs(), id.leaveDomain())
}
