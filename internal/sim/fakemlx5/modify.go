package fakemlx5

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// transitions has the device's command for each pair of states, as mlx5_ib's optab.
var transitions = map[[2]uverbs.QPState]engine.Transition{
	{uverbs.StateReset, uverbs.StateInit}: engine.RST2INIT,
	{uverbs.StateInit, uverbs.StateInit}:  engine.INIT2INIT,
	{uverbs.StateInit, uverbs.StateRTR}:   engine.INIT2RTR,
	{uverbs.StateRTR, uverbs.StateRTS}:    engine.RTR2RTS,
	{uverbs.StateRTS, uverbs.StateRTS}:    engine.RTS2RTS,
	{uverbs.StateSQE, uverbs.StateRTS}:    engine.SQERR2RTS,
}

// modifyQP sets attributes of the device's QP and executes the transition.
func (k *Kernel) modifyQP(r *uapi.IbUverbsModifyQp, before, after uint8) error {
	m := uverbs.QPMask(r.AttrMask)
	from, to := uverbs.QPState(before), uverbs.QPState(after)
	if q := k.raw.qps[r.QpHandle]; q != nil {
		if from == uverbs.StateReset && to == uverbs.StateInit && q.tis != nil {
			q.tis.LAGPort = k.nextLAGPort()
		}
		if err := k.limitRate(q, to); err != nil {
			return err
		}
		k.modifyRawQP(q, to)
		return nil
	}
	if d := k.dcts[r.QpHandle]; d != nil {
		return k.modifyDCT(d, r, to)
	}
	t, ok := transitions[[2]uverbs.QPState{from, to}]
	switch {
	case to == uverbs.StateReset && from == uverbs.StateReset:
		return nil
	case to == uverbs.StateReset:
		t = engine.ToReset
	case to == uverbs.StateErr:
		t = engine.ToErr
	case !ok:
		return unix.EINVAL
	}
	q := k.QPs[r.QpHandle]
	if err := k.order(&q.attr.OutOfOrder); err != nil {
		return err
	}
	if t == engine.RST2INIT {
		q.attr.LAGPort = k.nextLAGPort()
	}
	params := k.setAttr(&q.attr, m, r)
	if k.adapter.HCA.ModifyQP(q.Number, t, params, q.attr) != nil {
		return unix.EINVAL // as for any command that the firmware refuses
	}
	q.creation.modified(m, r)
	return nil
}

// An attribute sets an attribute of the device's QP. param is its bit if the transition does not
// require it.
type attribute struct {
	mask  uverbs.QPMask
	param engine.Param
	set   func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp)
}

var attributes = []attribute{
	{uverbs.MaskAccess, engine.ParamRemoteRead | engine.ParamRemoteWrite | engine.ParamAtomic,
		func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) {
			x := uverbs.Access(r.QpAccessFlags)
			a.RemoteRead, a.RemoteWrite = x&uverbs.RemoteRead != 0, x&uverbs.RemoteWrite != 0
			a.RemoteAtomic = x&uverbs.RemoteAtomic != 0
		}},
	{uverbs.MaskPKeyIndex, engine.ParamPKeyIndex,
		func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.Primary.PKeyIndex = r.PkeyIndex }},
	{uverbs.MaskQKey, engine.ParamQKey, func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.QKey = r.Qkey }},
	{uverbs.MaskMinRNRTimer, engine.ParamRNRTimer,
		func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.MinRNRTimer = r.MinRnrTimer }},
	{uverbs.MaskMaxRdAtomic, engine.ParamMaxInitiate,
		func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.MaxInitiate = int(r.MaxRdAtomic) }},
	{uverbs.MaskMaxDestRdAtomic, engine.ParamMaxRespond,
		func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.MaxRespond = int(r.MaxDestRdAtomic) }},
	{uverbs.MaskPathMigState, engine.ParamMigration,
		func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) {
			a.Migration = transport.MigrationState(r.PathMigState)
		}},
	{uverbs.MaskRetryCount, engine.ParamRetryCount,
		func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.RetryCount = r.RetryCnt }},
	{uverbs.MaskRNRRetryCount, engine.ParamRNRRetry,
		func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.RNRRetry = r.RnrRetry }},
	{uverbs.MaskTimeout, engine.ParamAckTimeout,
		func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.AckTimeout = r.Timeout }},
	{uverbs.MaskPathMTU, 0, func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.MTU = 128 << r.PathMtu }},
	{uverbs.MaskDestQPN, 0, func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.RemoteQPN = r.DestQpNum }},
	{uverbs.MaskRQPSN, 0, func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.RecvPSN = r.RqPsn }},
	{uverbs.MaskSQPSN, 0, func(a *engine.QPAttr, r *uapi.IbUverbsModifyQp) { a.SendPSN = r.SqPsn }},
}

// setAttr sets the attributes that the mask names, and returns their bits.
func (k *Kernel) setAttr(a *engine.QPAttr, m uverbs.QPMask, r *uapi.IbUverbsModifyQp) (params engine.Param) {
	for _, x := range attributes {
		if m&x.mask != 0 {
			x.set(a, r)
			params |= x.param
		}
	}
	if m&uverbs.MaskAV != 0 {
		pkey := a.Primary.PKeyIndex
		a.Primary = k.adapter.path(&r.Dest)
		a.Primary.PKeyIndex = pkey
		params |= engine.ParamPrimary
	}
	if m&uverbs.MaskAltPath != 0 {
		a.Alternate = k.adapter.path(&r.AltDest)
		a.Alternate.PKeyIndex = r.AltPkeyIndex
		params |= engine.ParamAlternate
	}
	a.DrainEvent = r.EnSqdAsyncNotify != 0
	return params
}

// udpSource is the UDP source port of connections that request none.
const udpSource = 0xc123

// path returns the device's form of an address. Without a network, it is that of the adapter itself.
func (a *Adapter) path(d *uapi.IbUverbsQpDest) transport.Path {
	p := transport.Path{DLID: d.Dlid, GRH: d.IsGlobal != 0, SGIDIndex: d.SgidIndex, DGID: d.Dgid, DMAC: a.macOf(d.Dgid),
		HopLimit: d.HopLimit, UDPSport: udpSource, SL: d.Sl, FlowLabel: d.FlowLabel, TrafficClass: d.TrafficClass}
	if a.cfg.Resolve == nil {
		p.DGID = a.HCA.GID(int(d.SgidIndex)).GID
	}
	return p
}
