package fakemlx5

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A CQ is a completion queue.
type CQ struct {
	*engine.CQ
	Entries uint64 // the address of the entries when the CQ was created
	Log     int    // log2 of the number of entries
	Size    int    // of an entry, in bytes

	spans []span
}

func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

func log2(n uint32) uint8 { return uint8(bits.TrailingZeros32(max(n, 1))) }

func (k *Kernel) createCQ(c ioctl.Call) error {
	u := call.In[uapi.Mlx5IbCreateCq](c, uapi.UVERBS_ATTR_UHW_IN)
	entries := powerOfTwo(int(call.Num(c, uapi.UVERBS_ATTR_CREATE_CQ_CQE)) + 1)
	n := uint64(entries) * uint64(u.CqeSize)
	k.locate(&u.BufAddr, &u.DbAddr)
	if other := u.Flags &^ uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX; other != 0 { // timestamps count ticks
		k.problem("a CQ with flags %#x", other)
	}
	spans, err := k.pin(pages(u.BufAddr, n), record(u.DbAddr))
	if err != nil {
		return err
	}
	q, err := k.adapter.HCA.CreateCQ(engine.CQAttr{UAR: k.registerPage(c, u), Wide: u.CqeSize == 128,
		LogSize: log2(uint32(entries)), Buffer: pagesOf(u.BufAddr, n), Record: u.DbAddr})
	if err != nil {
		k.unpin(spans)
		return refused
	}
	h := call.Handle(c, uapi.UVERBS_ATTR_CREATE_CQ_HANDLE)
	k.CQs[h] = &CQ{q, u.BufAddr, int(log2(uint32(entries))), int(u.CqeSize), spans}
	k.adapter.cqs[q.Number] = cqOwner{k, h}
	size := uint32(entries - 1)
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, &size)
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbCreateCqResp{Cqn: q.Number})
	return nil
}

// registerPage returns the number of the register page that arms a CQ. It is in one of two places,
// or an old kernel chooses it.
func (k *Kernel) registerPage(c ioctl.Call, u *uapi.Mlx5IbCreateCq) uint32 {
	named := u.Flags&uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX != 0
	if a := call.Attr(c, uapi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX); a != nil {
		if named || a.Data>>16 == 0 {
			k.problem("the request names the register page %#x twice", a.Data)
		}
		return uint32(a.Data)
	}
	if old := k.Reply.TotBfregs > 0; named == old {
		k.problem("the request names a register page: %t, and the kernel chooses it: %t", named, old)
	}
	return uint32(u.UarPageIndex)
}

// resizeCQ resizes the device's CQ, which the device may refuse.
func (k *Kernel) resizeCQ() error {
	r := call.In[uapi.IbUverbsResizeCq](k.call, uapi.UVERBS_ATTR_CORE_IN)
	u := call.In[uapi.Mlx5IbResizeCq](k.call, uapi.UVERBS_ATTR_UHW_IN)
	q := k.CQs[r.CqHandle]
	entries := powerOfTwo(int(r.Cqe) + 1)
	n := uint64(entries) * uint64(u.CqeSize)
	k.locate(&u.BufAddr)
	spans, err := k.pin(pages(u.BufAddr, n))
	if err != nil {
		return err
	}
	if q.Resize(log2(uint32(entries)), u.CqeSize == 128, pagesOf(u.BufAddr, n)) != nil {
		k.unpin(spans)
		return refused
	}
	for i, s := range q.spans { // the device may still read the old ring
		if !s.record && !s.unpinned {
			k.uncharge(s)
			q.spans[i].unpinned = true
		}
	}
	q.spans = append(q.spans, spans...)
	return nil
}

func (k *Kernel) destroyCQ(h uint32) error {
	q := k.CQs[h]
	delete(k.CQs, h)
	delete(k.adapter.cqs, q.Number)
	k.unpin(q.spans)
	return k.adapter.HCA.DestroyCQ(q.Number)
}
