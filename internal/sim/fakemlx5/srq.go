package fakemlx5

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
)

// An SRQ is a shared receive queue.
type SRQ struct {
	*engine.SRQ
	spans []span
}

func (k *Kernel) createSRQ(c ioctl.Call) error {
	u := call.In[uapi.Mlx5IbCreateSrq](c, uapi.UVERBS_ATTR_UHW_IN)
	slots := powerOfTwo(int(call.Num(c, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR)) + 1)
	size := max(powerOfTwo(16+16*int(call.Num(c, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE))), 32)
	n := uint64(slots * size)
	k.locate(&u.BufAddr, &u.DbAddr)
	a := engine.SRQAttr{PD: k.PDs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE)],
		LogSize: log2(uint32(slots)), LogStride: log2(uint32(size)), Buffer: pagesOf(u.BufAddr, n), Record: u.DbAddr,
		Limit: uint16(call.Num(c, uapi.UVERBS_ATTR_CREATE_SRQ_LIMIT))}
	if call.Num(c, uapi.UVERBS_ATTR_CREATE_SRQ_TYPE) == uapi.IB_UVERBS_SRQT_XRC {
		a.XRC, a.UserIndex = true, u.Uidx
		a.XRCD = k.XRCDs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE)]
		a.CQ = k.CQs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE)].Number
	}
	spans, err := k.pin(pages(u.BufAddr, n), record(u.DbAddr))
	if err != nil {
		return err
	}
	q, err := k.adapter.HCA.CreateSRQ(a)
	if err != nil {
		k.unpin(spans)
		return refused
	}
	k.SRQs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE)] = &SRQ{q, spans}
	k.queues[u.DbAddr] = q
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &q.Number)
	receives := uint32(slots - 1)
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &receives)
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbCreateSrqResp{Srqn: q.Number})
	return nil
}

// querySRQ sets the limit, which is 0 after its event.
func (k *Kernel) querySRQ(c ioctl.Call) {
	const in, out = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT
	resp := call.Out[uapi.IbUverbsQuerySrqResp](c, out)
	resp.SrqLimit = uint32(k.SRQs[call.In[uapi.IbUverbsQuerySrq](c, in).SrqHandle].Limit)
	call.Reply(c, out, resp)
}

func (k *Kernel) destroySRQ(h uint32) error {
	s := k.SRQs[h]
	delete(k.SRQs, h)
	delete(k.queues, s.Record)
	k.unpin(s.spans)
	return k.adapter.HCA.DestroySRQ(s.Number)
}
