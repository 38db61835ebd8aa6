package fakebnxt

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A kernel is the driver of one open file.
type kernel struct {
	*fakedev.Kernel
	dev    *Device
	shared devfile.Ring
	pacing [2]devfile.Ring // what the driver says, and the register
	bell   uint64          // the offset of the doorbell page, from the first PD on
	// variable and pow2 are what the program and the driver have agreed on.
	variable, pow2 bool

	cqs  map[uint32]*cq // by handle, as are the maps below
	qps  map[uint32]*qp
	srqs map[uint32]*srq
}

func (f *Fabric) open(base *fakedev.Kernel) fakedev.Driver {
	k := &kernel{Kernel: base, dev: f.devices[base.Dev.Index], cqs: map[uint32]*cq{}, qps: map[uint32]*qp{},
		srqs: map[uint32]*srq{}}
	k.dev.files = append(k.dev.files, k)
	return fakedev.Driver{
		Commands: map[string]func(ioctl.Call) error{"DEVICE.GET_CONTEXT": k.getContext, "CQ.CREATE": k.createCQ,
			"QP.CREATE": k.createQP, "SRQ.CREATE": k.createSRQ, "ALLOC_PD": k.allocPD, "CREATE_AH": k.createAH,
			"RESIZE_CQ": k.resizeCQ, "POLL_CQ": k.pollCQ, "MODIFY_SRQ": k.modifySRQ, "PAGE.ALLOC": k.allocPage,
			"PACING.NOTIFY": k.notified, "TOGGLE_MEM.GET": k.getToggle},
		Lacks: []string{"REREG_MR", "OPEN_XRCD", "ATTACH_MCAST", "ALLOC_MW"},
		Kinds: []fakedev.Kind{fakedev.KindOf("QP", k.qps, k.destroyQP), fakedev.KindOf("SRQ", k.srqs, k.destroySRQ),
			fakedev.KindOf("CQ", k.cqs, k.destroyCQ)},
		Keys:   func(n uint32) (lkey, rkey uint32) { return n << 8, n << 8 },
		Modify: k.modifyQP, Closed: k.closed,
		Query: func(h uint32, r *uapi.IbUverbsQueryQpResp) { k.qps[h].Query(r) },
	}
}

// closed frees the pages of the file.
func (k *kernel) closed() {
	k.Check(errors.Join(k.File.FreeRing(k.shared), k.File.FreeRing(k.pacing[0]), k.File.FreeRing(k.pacing[1])))
}

// getContext replies as bnxt_re_alloc_ucontext.
func (k *kernel) getContext(c ioctl.Call) error {
	cfg := &k.dev.fabric.cfg
	in := call.In[uapi.BnxtReUctxReq](c, uapi.UVERBS_ATTR_UHW_IN)
	r := uapi.BnxtReUctxResp{MaxQp: maxQPs, PgSize: uint32(unix.Getpagesize()), CqeSz: entrySize, MaxCqd: maxCQE - 1,
		CompMask: uapi.BNXT_RE_UCNTX_CMASK_HAVE_CCTX | uapi.BNXT_RE_UCNTX_CMASK_HAVE_MODE, ChipId0: cfg.Chip}
	k.pow2 = cfg.Pow2 || in.CompMask&uapi.BNXT_RE_COMP_MASK_REQ_UCNTX_POW2_SUPPORT == 0
	if !k.pow2 {
		r.CompMask |= uapi.BNXT_RE_UCNTX_CMASK_POW2_DISABLED
	}
	k.variable = cfg.Variable && in.CompMask&uapi.BNXT_RE_COMP_MASK_REQ_UCNTX_VAR_WQE_SUPPORT != 0
	if k.variable {
		r.Mode = uapi.BNXT_QPLIB_WQE_MODE_VARIABLE
	}
	if cfg.Pacing {
		r.CompMask |= uapi.BNXT_RE_UCNTX_CMASK_DBR_PACING_ENABLED
	}
	if cfg.MSN {
		r.CompMask |= uapi.BNXT_RE_UCNTX_CMASK_MSN_TABLE_ENABLED
	}
	var err error
	if k.shared.Bytes == nil {
		k.shared, err = k.File.NewRingAt(0, uint64(unix.Getpagesize()))
	}
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &r)
	return err
}

// modifySRQ is bnxt_re_modify_srq.
func (k *kernel) modifySRQ(c ioctl.Call) error {
	r := call.In[uapi.IbUverbsModifySrq](c, uapi.UVERBS_ATTR_CORE_IN)
	if s := k.srqs[r.SrqHandle]; s != nil && r.AttrMask&uint32(uverbs.SRQMaskLimit) != 0 {
		s.setLimit(r.SrqLimit)
	}
	return nil
}

// allocPD replies as bnxt_re_alloc_pd. The first PD of a file allocates the doorbell page.
func (k *kernel) allocPD(c ioctl.Call) error {
	if k.bell == 0 {
		k.bell = k.File.NewBell(k.ring)
	}
	r := uapi.BnxtRePdResp{Pdid: k.AllocPD(c), Dpi: 1, Dbr: k.bell}
	if k.dev.fabric.cfg.NoBell {
		r.Dbr = 0
	}
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &r)
	return nil
}

// Types of doorbells.
const (
	bellSQ     = 0x0
	bellRQ     = 0x1
	bellSRQ    = 0x2
	bellSRQArm = 0x3
	bellCQ     = 0x4
	bellCQArm  = 0x6
	bellCQArmS = 0x5 // for solicited completions only
	bellCutAck = 0x9
)

// A doorbell is what is stored to the register.
type doorbell struct {
	index  uint32
	epoch  uint32
	toggle uint32
	number uint32
	kind   uint32
}

// ring is called with a store to the doorbell page. Its only register has eight bytes.
func (k *kernel) ring(offset uint32, b []byte) bool {
	if offset != 0 || len(b) != 8 {
		return false
	}
	v := binary.LittleEndian.Uint64(b)
	d := doorbell{index: uint32(v) & (1<<24 - 1), epoch: uint32(v) >> 24 & 1, toggle: uint32(v) >> 25 & 3,
		number: uint32(v>>32) & (1<<20 - 1), kind: uint32(v >> 60)}
	if v>>58&1 == 0 {
		k.Problem("the doorbell %#x is not valid", v)
		return true
	}
	k.dev.Record("doorbell %#016x", v)
	q, s, c := k.dev.qps[d.number], k.dev.srqs[d.number], k.dev.cqs[d.number]
	switch {
	case d.kind == bellSQ && q != nil && q.kernel == k:
		q.sendBell(d)
	case d.kind == bellRQ && q != nil && q.kernel == k && q.srq == nil:
		q.recvBell(d)
	case d.kind == bellSRQ && s != nil && s.kernel == k:
		s.bell(d)
	case d.kind == bellSRQArm && s != nil && s.kernel == k:
		s.arm(d)
	case (d.kind >= bellCQ && d.kind <= bellCQArm || d.kind == bellCutAck) && c != nil && c.kernel == k:
		c.bell(d)
	default:
		k.Problem("the doorbell %#x is of no object", v)
	}
	return true
}
