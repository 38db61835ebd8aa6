package uverbs

import (
	"errors"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// CreateQP creates the receiving QP of an extended reliable connection, of type
// [XRCRecv], in state RESET. It has no queues and no CQs: its messages use the SRQs
// that the peer specifies, and the completions go to the CQs of these SRQs. Only
// the fields Access, GID and Path of cfg are used. Type may be 0. [QP.Connect]
// connects the QP to an [XRCSend] QP of a peer.
//
// CreateQP returns [ErrInvalid] if cfg has other fields set, [ErrNotSupported] if
// the device has no such QPs, and [ErrClosed] after Close of the domain.
func (x *XRCD) CreateQP(cfg QPConfig) (*QP, error) {
	const op = "create QP"
	if cfg.Type != 0 && cfg.Type != XRCRecv {
		return nil, invalid(op, x.String(),
			"a QP of a domain is of type XRCRecv, not "+cfg.Type.String()+": create others on a PD")
	}
	if cfg.SendCQ != nil || cfg.RecvCQ != nil || cfg.SRQ != nil ||
		cfg.MaxSendWR|cfg.MaxRecvWR|cfg.MaxSendSGE|cfg.MaxRecvSGE|cfg.MaxInline != 0 {
		return nil, invalid(op, x.String(), "an XRCRecv QP has no queues: leave CQs, SRQ and the Max fields out")
	}
	if err := cfg.checkDCFields(op, &x.object); err != nil {
		return nil, err
	}
	if err := checkGID(op, &x.object, cfg.GID); err != nil {
		return nil, err
	}
	if err := cfg.Path.check(op, x.String); err != nil {
		return nil, err
	}
	cfg.Type = XRCRecv
	return newQP(x.ctx, cfg, []*object{&x.object}, func(q *QP) error {
		q.xrcd = x
		return q.create()
	})
}

// OpenQP opens an XRCRecv QP of the domain that another process, or another context
// of this process, has created: ibv_open_qp(3). The QP exists until every process that
// created or opened it has closed it. Each of them may change its state. [QP.State]
// returns the state that the QP had when it was opened, or that Modify of this QP
// set last. [QP.Query] returns the current state.
//
// OpenQP returns [ErrInvalid] if the domain has no such QP, and [ErrClosed] after
// Close of the domain.
func (x *XRCD) OpenQP(qpn uint32) (*QP, error) {
	return newQP(x.ctx, QPConfig{Type: XRCRecv}, []*object{&x.object}, func(q *QP) error {
		q.xrcd = x
		return q.open(qpn)
	})
}

func (q *QP) open(qpn uint32) error {
	const op = "open QP"
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsCreateQpResp](cmd, uapi.IB_USER_VERBS_CMD_OPEN_QP,
		&uapi.IbUverbsOpenQp{UserHandle: q.id, PdHandle: q.xrcd.handle, Qpn: qpn, QpType: uint8(XRCRecv)})
	if err := q.ctx.dev.Do(cmd); err != nil {
		detail := ""
		if errors.Is(err, unix.EINVAL) {
			detail = "the domain has no XRCRecv QP of number " + itoa(uint64(qpn))
		}
		return q.ctx.wrap(op, q.xrcd.String(), err, detail)
	}
	q.handle, q.number = resp.QpHandle, resp.Qpn
	q.impl, q.poster = queueless{}, queueless{}
	a, err := q.query(MaskState)
	if err != nil {
		q.exists = true
		q.destroyIfExists(q.destroyKernel)
		return err
	}
	return q.enter(a.State)
}
