package uverbs

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An ECE is a set of vendor-specific options of a connection: enhanced connection
// establishment, struct ibv_ece. Two peers exchange the options that they support, and enable
// those that both support.
type ECE struct {
	VendorID uint32
	Options  uint32
}

// QueryECE returns the options that the QP supports, or, after [QP.SetECE] and [QP.Modify],
// those that are enabled: ibv_query_ece(3). It returns [ErrNotSupported] if the driver has no
// options, and [ErrClosed] after Close.
func (q *QP) QueryECE() (e ECE, err error) {
	err = q.ece("query options", func(p driver.ECE) error {
		e.VendorID, e.Options = p.QueryECE()
		return nil
	})
	return e, err
}

// SetECE sets the options that the QP requests: ibv_set_ece(3). Call it before Modify moves the
// QP out of INIT: Modify requests the options from the device, and QueryECE then returns those
// that were granted. SetECE returns [ErrNotSupported] if the device has no options,
// [ErrInvalid] for options of another vendor, and [ErrClosed] after Close.
func (q *QP) SetECE(e ECE) error {
	return q.ece("set options", func(p driver.ECE) error { return p.SetECE(e.VendorID, e.Options) })
}

func (q *QP) ece(op string, f func(driver.ECE) error) error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return named(op, q.String(), ErrClosed)
	}
	p, ok := q.impl.(driver.ECE)
	if !ok {
		return &Error{Op: op, Object: q.String(), Kind: ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the driver has no options of enhanced connection establishment: connect without"}
	}
	return q.ctx.wrap(op, q.String(), f(p), "")
}

// modifyCommand issues MODIFY_QP. It uses the write form of the command unless options or a
// rate limit require the extended form.
func (q *QP) modifyCommand(req *uapi.IbUverbsModifyQp, rate uint32) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	var in []byte
	var n int
	p, ok := q.impl.(driver.ECE)
	if ok {
		in, n = p.ModifyECE(QPMask(req.AttrMask)&MaskState != 0 && QPState(req.QpState) == StateInit)
	}
	if in == nil && QPMask(req.AttrMask)&MaskRateLimit == 0 {
		ioctl.Write[ioctl.Void](cmd, uapi.IB_USER_VERBS_CMD_MODIFY_QP, req)
		return q.ctx.dev.Do(cmd)
	}
	ioctl.WriteEx[uapi.IbUverbsExModifyQpResp](cmd, uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP,
		&uapi.IbUverbsExModifyQp{Base: *req, RateLimit: rate})
	out := cmd.UHW(in, n)
	err := q.ctx.dev.Do(cmd)
	if err == nil && in != nil {
		p.ModifiedECE(out)
	}
	return err
}
