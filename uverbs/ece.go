package uverbs

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An ECE is what a connection does beyond the standard, in the vendor's own
// terms: enhanced connection establishment, struct ibv_ece. Two peers tell each
// other what they have by it, and set what both have.
type ECE struct {
	VendorID uint32
	Options  uint32
}

// A ProviderECE is a [ProviderQP] that has vendor's options.
type ProviderECE interface {
	// QueryECE is what the device has, or what was agreed on.
	QueryECE() ECE
	// SetECE notes what MODIFY_QP is to ask for.
	SetECE(ECE) error
	// ModifyECE is the vendor's part of the next MODIFY_QP and the length of its
	// reply; nil when there is nothing to ask for.
	ModifyECE() (uhwIn []byte, replyLen int)
	// ModifiedECE takes the reply.
	ModifiedECE(uhwOut []byte)
}

// QueryECE tells the options that the QP can have, or those that it has got after
// [QP.SetECE] and [QP.Modify]: ibv_query_ece(3). [ErrNotSupported] where the driver
// has none, [ErrClosed] after Close.
func (q *QP) QueryECE() (e ECE, err error) {
	err = q.ece(func(p ProviderECE) error {
		e = p.QueryECE()
		return nil
	})
	return e, err
}

// SetECE says which options the QP is to have: ibv_set_ece(3). Call it before
// Modify moves the QP on from INIT: Modify asks the device for them, and QueryECE
// then tells which were granted. [ErrNotSupported] where the device has none,
// [ErrInvalid] for those of another vendor, [ErrClosed] after Close.
func (q *QP) SetECE(e ECE) error { return q.ece(func(p ProviderECE) error { return p.SetECE(e) }) }

func (q *QP) ece(f func(ProviderECE) error) error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return ErrClosed
	}
	p, ok := q.impl.(ProviderECE)
	if !ok {
		return &Error{Op: "ask for options of", Object: q.String(), Kind: ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the driver has no options of enhanced connection establishment: connect without"}
	}
	return q.ctx.wrap("set options of", q.String(), f(p), "")
}

// modifyCommand issues MODIFY_QP, in the first form of the command where that has
// room for all.
func (q *QP) modifyCommand(req *uapi.IbUverbsModifyQp, rate uint32) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	var in []byte
	var n int
	p, ok := q.impl.(ProviderECE)
	if ok {
		in, n = p.ModifyECE()
	}
	if in == nil && QPMask(req.AttrMask)&MaskRateLimit == 0 {
		ioctl.Write[ioctl.Void](cmd, uapi.IB_USER_VERBS_CMD_MODIFY_QP, req)
		return q.ctx.dev.Do(cmd)
	}
	ioctl.WriteEx[uapi.IbUverbsExModifyQpResp](cmd, uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP, &uapi.IbUverbsExModifyQp{Base: *req, RateLimit: rate})
	out := cmd.UHW(in, n)
	err := q.ctx.dev.Do(cmd)
	if err == nil && in != nil {
		p.ModifiedECE(out)
	}
	return err
}
