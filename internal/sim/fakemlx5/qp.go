package fakemlx5

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

const blockSize = 64

// A QP is a queue pair, except one for raw packets.
type QP struct {
	*engine.QP
	attr     engine.QPAttr // as far as the transitions have set it
	creation creation
	spans    []span
}

// Old kernels choose registers for QPs: of each page of uarRegisters registers, uarUsable are for
// QPs.
const (
	uarUsable    = 2
	uarRegisters = 4
)

func (k *Kernel) createQP(c ioctl.Call) error {
	if uverbs.QPType(call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE)) == uverbs.RawPacket {
		return k.createRawQP(c)
	}
	u := call.In[uapi.Mlx5IbCreateQp](c, uapi.UVERBS_ATTR_UHW_IN)
	const driverTypes = uapi.MLX5_QP_FLAG_TYPE_DCT | uapi.MLX5_QP_FLAG_TYPE_DCI
	if u.Flags&driverTypes != 0 && call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE) != uapi.IB_UVERBS_QPT_DRIVER {
		return refused
	}
	if u.Flags&uapi.MLX5_QP_FLAG_TYPE_DCT != 0 {
		k.createDCT(c, u)
		return nil
	}
	n := uint64(u.RqWqeCount)<<u.RqWqeShift + uint64(u.SqWqeCount)*blockSize
	k.locate(&u.BufAddr, &u.DbAddr)
	a := engine.QPAttr{PD: k.PDs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE)], UAR: u.BfregIndex,
		UserIndex: u.Uidx, NoSQ: u.SqWqeCount == 0, LogSQSize: log2(u.SqWqeCount), LogRQSize: log2(u.RqWqeCount),
		LogRQStride: uint8(u.RqWqeShift), Buffer: pagesOf(u.BufAddr, n), Record: u.DbAddr}
	register := k.chooseRegister(&a.UAR)
	for id, number := range map[uint16]*uint32{
		uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE: &a.SendCQ,
		uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE: &a.RecvCQ,
	} {
		if cq := call.Attr(c, id); cq != nil {
			*number = k.CQs[uint32(cq.Data)].Number
		}
	}
	if err := k.setService(c, &a, u); err != nil {
		return err
	}
	k.setScatter(c, u.Flags, &a)
	spans, err := k.pin(pages(u.BufAddr, n), record(u.DbAddr))
	if err != nil {
		return err
	}
	q, err := k.adapter.HCA.CreateQP(a)
	if err != nil {
		k.unpin(spans)
		return refused
	}
	h := call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE)
	k.QPs[h] = &QP{QP: q, creation: creationOf(c), spans: spans}
	k.queues[u.DbAddr] = q
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &q.Number)
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT,
		&uapi.Mlx5IbCreateQpResp{BfregIndex: register, EceOptions: ECEOptions * (u.EceOptions >> 28)})
	return nil
}

// setService sets the type of the QP, and where its receives come from.
func (k *Kernel) setService(c ioctl.Call, a *engine.QPAttr, u *uapi.Mlx5IbCreateQp) error {
	if u.Flags&uapi.MLX5_QP_FLAG_TYPE_DCI != 0 {
		return setDCI(a, u)
	}
	switch uverbs.QPType(call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE)) {
	case uverbs.XRCSend:
		a.Service, a.Source = engine.ServiceXRC, engine.FromNone
		return nil
	case uverbs.XRCRecv:
		a.Service, a.XRCD = engine.ServiceXRC, k.XRCDs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_XRCD_HANDLE)]
		a.PD = k.adapter.kernelPD()
		a.Source = engine.FromNone
		if a.NoSQ {
			a.Source = engine.FromSRQ
		}
		return nil
	case uverbs.UC:
		a.Service = engine.ServiceUC
	case uverbs.UD:
		a.Service = engine.ServiceUD
	}
	if srq := call.Attr(c, uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE); srq != nil {
		a.Source, a.SRQ = engine.FromSRQ, k.SRQs[uint32(srq.Data)].Number
	} else if u.RqWqeCount == 0 {
		a.Source = engine.FromNone
	}
	return nil
}

// chooseRegister returns the register that an old kernel chooses for a QP, and sets its page: one
// after the other, except the first. A newer kernel uses the page in the request.
func (k *Kernel) chooseRegister(page *uint32) (register uint32) {
	if k.Reply.TotBfregs == 0 {
		return ^uint32(0)
	}
	n := 1 + uint32(len(k.QPs))%(k.Reply.TotBfregs-1)
	*page = n / uarUsable
	return *page*uarRegisters + n%uarUsable
}

// setScatter enables short messages and results in completions if the QP's flags request them.
func (k *Kernel) setScatter(c ioctl.Call, flags uint32, a *engine.QPAttr) {
	if flags&uapi.MLX5_QP_FLAG_SCATTER_CQE == 0 || a.Service != engine.ServiceRC && a.Service != engine.ServiceUC {
		return
	}
	size := func(cq uint16) uint8 {
		if k.CQs[call.Handle(c, cq)].Wide {
			return 64
		}
		return 32
	}
	a.ScatterResponse = size(uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)
	results := flags&uapi.MLX5_QP_FLAG_ALLOW_SCATTER_CQE != 0 ||
		call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_FLAGS)&uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0
	if a.Service == engine.ServiceRC && results {
		a.ScatterRequest = size(uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)
	}
}

func (k *Kernel) destroyQP(h uint32) error {
	if q := k.raw.qps[h]; q != nil {
		delete(k.raw.qps, h)
		return k.destroyRawQP(q)
	}
	if k.dcts[h] != nil {
		return k.destroyDCT(h)
	}
	q := k.QPs[h]
	delete(k.QPs, h)
	delete(k.queues, q.Record)
	k.unpin(q.spans)
	return k.adapter.HCA.DestroyQP(q.Number)
}
