package fakemlx5

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A dct is a QP of type DCT. mlx5_ib records its attributes, and the device creates the DCT when the QP moves to
// RTR.
type dct struct {
	attr     engine.QPAttr
	creation creation
	state    uverbs.QPState
	number   uint32 // of the device's DCT; 0 before RTR
}

// driverQP returns the type of a QP of type IB_QPT_DRIVER: set_mlx_qp_type.
func driverQP(uhwIn []byte) uint8 {
	var u uapi.Mlx5IbCreateQp
	if copy(ioctl.BytesOf(&u), uhwIn) < ioctl.SizeOf[uapi.Mlx5IbCreateQp]() {
		return 0
	}
	switch u.Flags & (uapi.MLX5_QP_FLAG_TYPE_DCT | uapi.MLX5_QP_FLAG_TYPE_DCI) {
	case uapi.MLX5_QP_FLAG_TYPE_DCT:
		return ioctltest.DCT
	case uapi.MLX5_QP_FLAG_TYPE_DCI:
		return ioctltest.DCI
	}
	return 0
}

// The device's limits of streams, as logarithms.
const logStreams, logErroredStreams = 6, 6

// setDCI sets what a DCI has beyond other QPs.
func setDCI(a *engine.QPAttr, u *uapi.Mlx5IbCreateQp) error {
	a.Service, a.Source = engine.ServiceDCI, engine.FromNone
	s := u.DciStreams
	if s.LogNumConcurent > logStreams || s.LogNumErrored > logErroredStreams {
		return unix.EINVAL
	}
	a.LogStreams, a.LogErrored = s.LogNumConcurent, s.LogNumErrored
	return nil
}

// createDCT records the attributes of a DCT.
func (k *Kernel) createDCT(c ioctl.Call, u *uapi.Mlx5IbCreateQp) {
	d := &dct{creation: creationOf(c), attr: engine.QPAttr{
		PD: k.PDs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE)], UserIndex: u.Uidx, DCKey: u.SqBufAddr,
		SRQ:    k.SRQs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)].Number,
		RecvCQ: k.CQs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)].Number}}
	k.dcts[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE)] = d
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbCreateQpResp{EceOptions: ECEOptions * (u.EceOptions >> 28)})
}

// modifyDCT records attributes, and creates the device's DCT: mlx5_ib_modify_dct.
func (k *Kernel) modifyDCT(d *dct, r *uapi.IbUverbsModifyQp, to uverbs.QPState) error {
	if err := k.order(&d.attr.OutOfOrder); err != nil {
		return err
	}
	k.setAttr(&d.attr, uverbs.QPMask(r.AttrMask), r)
	if to == uverbs.StateRTR {
		q, err := k.adapter.HCA.CreateDCT(d.attr)
		if err != nil {
			return unix.EINVAL
		}
		d.number = q.Number
	}
	d.state = to
	d.creation.modified(uverbs.QPMask(r.AttrMask), r)
	return nil
}

// destroyDCT destroys a DCT. mlx5_ib waits until the device has drained it; here messages in progress end at once.
func (k *Kernel) destroyDCT(h uint32) error {
	d := k.dcts[h]
	delete(k.dcts, h)
	if d.number == 0 {
		return nil
	}
	return k.adapter.HCA.DestroyDCT(d.number)
}

// query completes a reply to QUERY_QP: mlx5_ib_dct_query_qp.
func (d *dct) query(r *uapi.IbUverbsQueryQpResp) {
	d.creation.query(r)
	r.QpState, r.CurQpState = uint8(d.state), uint8(d.state)
	r.PathMtu, r.MinRnrTimer, r.PkeyIndex = mtuCode(d.attr.MTU), d.attr.MinRNRTimer, d.attr.Primary.PKeyIndex
}
