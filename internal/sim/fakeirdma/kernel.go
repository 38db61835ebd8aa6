package fakeirdma

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A kernel is the driver of one open file.
type kernel struct {
	*fakedev.Kernel
	dev  *Device
	bell uint64 // the offset of the doorbell page
	raw  bool   // create commands have the sizes that the program asks for

	cqs   map[uint32]*cq // by handle, as are the maps below
	qps   map[uint32]*qp
	rings map[uint32]*ringMemory
}

// A ringMemory is memory that was registered for a ring.
type ringMemory struct {
	uapi.IrdmaMemRegReq
	start, length uint64
	used          bool // by a queue that exists
}

func (f *Fabric) open(base *fakedev.Kernel) fakedev.Driver {
	k := &kernel{Kernel: base, dev: f.devices[base.Dev.Index], cqs: map[uint32]*cq{}, qps: map[uint32]*qp{},
		rings: map[uint32]*ringMemory{}}
	return fakedev.Driver{
		Commands: map[string]func(ioctl.Call) error{"DEVICE.GET_CONTEXT": k.getContext, "CQ.CREATE": k.createCQ,
			"QP.CREATE": k.createQP, "ALLOC_PD": k.allocPD, "CREATE_AH": k.createAH, "RESIZE_CQ": k.resizeCQ,
			"REG_MR": k.regMR, "MR.DESTROY": k.deregMR, "MODIFY_QP_EX": k.flushQP},
		Lacks:    []string{"REREG_MR", "OPEN_XRCD", "ATTACH_MCAST", "ALLOC_MW", "SRQ.CREATE"},
		Kinds:    []fakedev.Kind{fakedev.KindOf("QP", k.qps, k.destroyQP), fakedev.KindOf("CQ", k.cqs, k.destroyCQ)},
		Keys:     func(n uint32) (lkey, rkey uint32) { return n<<8 | 0x5a, n<<8 | 0x5a },
		Received: k.received, Admit: k.admitState, Modify: k.modifyQP,
		Query: func(h uint32, r *uapi.IbUverbsQueryQpResp) { k.qps[h].Query(r) },
	}
}

// Features of a device.
const (
	featureRTS    = 1 << 0
	featureResize = 1 << 1
)

// getContext replies as irdma_alloc_ucontext.
func (k *kernel) getContext(c ioctl.Call) error {
	cfg := &k.dev.fabric.cfg
	in := call.In[uapi.IrdmaAllocUcontextReq](c, uapi.UVERBS_ATTR_UHW_IN)
	if in.UserspaceVer < 4 || in.UserspaceVer > uapi.IRDMA_ABI_VER {
		return unix.EINVAL
	}
	k.raw = !cfg.Old && in.CompMask&uapi.IRDMA_ALLOC_UCTX_USE_RAW_ATTR != 0
	if k.bell == 0 {
		k.bell = k.File.NewBell(k.ring)
	}
	r := uapi.IrdmaAllocUcontextResp{KernelVer: uapi.IRDMA_ABI_VER, FeatureFlags: featureRTS, DbMmapKey: k.bell,
		MaxHwWqFrags: maxSGE, MaxHwReadSges: maxSGE, MaxHwInline: maxInline, MaxHwRqQuanta: maxQuanta,
		MaxHwWqQuanta: maxQuanta, MinHwCqSize: 1, MaxHwCqSize: maxEntries, MaxHwSqChunk: chunk, HwRev: cfg.Generation}
	if cfg.Resize {
		r.FeatureFlags |= featureResize
	}
	if !cfg.Old {
		r.CompMask, r.MinHwWqSize = uapi.IRDMA_ALLOC_UCTX_MIN_HW_WQ_SIZE, minWQ
	}
	if k.raw {
		r.CompMask |= uapi.IRDMA_ALLOC_UCTX_USE_RAW_ATTR
	}
	if cfg.Limits != nil {
		cfg.Limits(&r)
	}
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &r)
	return nil
}

// allocPD replies as irdma_alloc_pd.
func (k *kernel) allocPD(c ioctl.Call) error {
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.IrdmaAllocPdResp{PdId: k.AllocPD(c)})
	return nil
}

// createAH replies as irdma_create_ah.
func (k *kernel) createAH(c ioctl.Call) error {
	reply(k, c, &uapi.IrdmaCreateAhResp{AhId: k.CreateAH(c).Number})
	return nil
}

// reply replies to a create command.
func reply[T any](k *kernel, c ioctl.Call, resp *T) {
	if change := k.dev.fabric.cfg.Reply; change != nil {
		change(resp)
	}
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, resp)
}

const pageSize = 4096

// regMR is irdma_reg_user_mr.
func (k *kernel) regMR(c ioctl.Call) error {
	req := call.In[uapi.IrdmaMemRegReq](c, uapi.UVERBS_ATTR_UHW_IN)
	if err := k.RegMR(c); err != nil {
		return err
	}
	r := call.In[uapi.IbUverbsRegMr](c, uapi.UVERBS_ATTR_CORE_IN)
	handle := call.Out[uapi.IbUverbsRegMrResp](c, uapi.UVERBS_ATTR_CORE_OUT).MrHandle
	var n uint64 // pages that the ring needs, with the shadow area
	switch req.RegType {
	case uapi.IRDMA_MEMREG_TYPE_MEM:
		return nil
	case uapi.IRDMA_MEMREG_TYPE_QP:
		n = uint64(req.SqPages) + uint64(req.RqPages) + 1
	case uapi.IRDMA_MEMREG_TYPE_CQ:
		if n = uint64(req.CqPages); !k.dev.fabric.cfg.Resize {
			n++
		}
	}
	k.dev.Record("register %+v of %d bytes", *req, r.Length)
	if n == 0 || n > (r.Start%pageSize+r.Length+pageSize-1)/pageSize {
		k.Problem("%d pages of memory for a ring in %d bytes", n, r.Length)
		k.Forget(handle)
		return unix.EINVAL
	}
	k.rings[handle] = &ringMemory{IrdmaMemRegReq: *req, start: r.Start, length: r.Length}
	return nil
}

// take returns the memory that was registered for a ring at an address.
func (k *kernel) take(addr uint64, kind uint16) *ringMemory {
	for _, m := range k.rings {
		if m.start == addr && m.RegType == kind && !m.used {
			m.used = true
			return m
		}
	}
	return nil
}

// deregMR checks that the memory is in use no more.
func (k *kernel) deregMR(c ioctl.Call) error {
	h := call.Handle(c, uapi.UVERBS_ATTR_DESTROY_MR_HANDLE)
	if m := k.rings[h]; m != nil && m.used {
		k.Problem("the memory of a queue is deregistered before the queue is destroyed: %+v", m.IrdmaMemRegReq)
	}
	delete(k.rings, h)
	return nil
}

// admitState refuses what irdma_modify_qp_roce refuses: there is no way back from ERR, which RESET leads to, too.
func (k *kernel) admitState(r *uapi.IbUverbsModifyQp, from, to uint8) error {
	back := uverbs.QPState(to) == uverbs.StateInit || uverbs.QPState(to) == uverbs.StateRTR
	if q := k.qps[r.QpHandle]; q.ended && back {
		return unix.EINVAL
	}
	return nil
}

// received is called when a program of this process has posted receives.
func (k *kernel) received(queue uint64) {
	for _, q := range k.qps {
		if q.rq.addr == queue {
			q.rq.announce()
			return
		}
	}
	k.Problem("receives were posted to a queue at %#x, where there is none", queue)
}

// flushQP is what MODIFY_QP with a part of the driver does in ERR.
func (k *kernel) flushQP(c ioctl.Call) error {
	if call.Attr(c, uapi.UVERBS_ATTR_UHW_OUT) != nil {
		call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.IrdmaModifyQpResp{}) // no push page
	}
	if call.Attr(c, uapi.UVERBS_ATTR_UHW_IN) == nil {
		return nil
	}
	r := call.In[uapi.IbUverbsExModifyQp](c, uapi.UVERBS_ATTR_CORE_IN)
	u := call.In[uapi.IrdmaModifyQpReq](c, uapi.UVERBS_ATTR_UHW_IN)
	q := k.qps[r.Base.QpHandle]
	if u.SqFlush == 0 && u.RqFlush == 0 {
		return nil
	}
	k.dev.Record("modify QP to %d, flush %d and %d", r.Base.QpState, u.SqFlush, u.RqFlush)
	switch {
	case !q.ended:
	case k.dev.Recording():
		q.asked[0], q.asked[1] = q.asked[0] || u.SqFlush != 0, q.asked[1] || u.RqFlush != 0
	default:
		q.flush(u.SqFlush != 0, u.RqFlush != 0)
	}
	return nil
}

// The registers of the doorbell page.
const (
	bellSQ = 0
	bellCQ = 64
)

// ring is called with a store to the doorbell page.
func (k *kernel) ring(offset uint32, b []byte) bool {
	if len(b) != 4 {
		return false
	}
	number := binary.LittleEndian.Uint32(b)
	q, c := k.dev.qps[number], k.dev.cqs[number]
	switch {
	case offset == bellSQ && q != nil && q.kernel == k:
		q.bell()
	case offset == bellCQ && c != nil && c.kernel == k:
		c.arm()
	case offset == bellSQ || offset == bellCQ:
		k.Problem("the doorbell %d at %d is of no object", number, offset)
	default:
		return false
	}
	return true
}
