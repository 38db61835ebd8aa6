package fakebnxt

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A Kernel handles the commands of one open file. It implements ioctl.Kernel and ioctl.Doorbells.
type Kernel struct {
	*ioctltest.Kernel

	dev    *Device
	file   *devfile.File
	memory devfile.Memory
	pinned uint64 // bytes
	shared devfile.Ring
	pacing [2]devfile.Ring // what the driver says, and the register
	bell   uint64          // the offset of the doorbell page, from the first PD on
	// variable and pow2 are what the program and the driver have agreed on.
	variable, pow2 bool
	modified       func() // what remains of a MODIFY_QP

	pds  map[uint32]uint32 // numbers by handle, as are the maps below
	cqs  map[uint32]*cq
	qps  map[uint32]*qp
	srqs map[uint32]*srq
	ahs  map[uint32]*ah
	mrs  map[uint32]*mr
}

func (d *Device) newKernel(file *devfile.File) *Kernel {
	core := ioctltest.NewKernel(uapi.RDMA_DRIVER_BNXT_RE)
	d.describe(core)
	k := &Kernel{Kernel: core, dev: d, file: file, pds: map[uint32]uint32{}, cqs: map[uint32]*cq{}, qps: map[uint32]*qp{},
		srqs: map[uint32]*srq{}, ahs: map[uint32]*ah{}, mrs: map[uint32]*mr{}}
	core.Name = "fakebnxt: " + d.Name() + ": "
	core.OnModifyQP = k.modifyQP
	core.OnQueryQP = k.queryQP
	return k
}

// UseProcess makes the file that of a program in another process.
func (k *Kernel) UseProcess(p ioctltest.Process) error {
	k.dev.fabric.loop.Run(func() { k.memory.Process = p })
	k.Kernel.Set(func() { k.Foreign = true })
	return nil
}

// foreign reports whether a program of another process has the file. It may do anything.
func (k *Kernel) foreign() bool { return k.memory.Process != nil }

// problem reports a mistake of a program.
func (k *Kernel) problem(format string, args ...any) {
	if !k.foreign() || k.dev.fabric.cfg.Strict {
		k.dev.fabric.problem(format, args...)
	}
}

// check reports an error of the model.
func (k *Kernel) check(err error) {
	if err != nil {
		k.dev.fabric.problem("%v", err)
	}
}

// Closed implements ioctl.Closer.
func (k *Kernel) Closed() {
	k.dev.fabric.loop.Run(func() {
		for h := range k.qps {
			k.destroyQP(h)
		}
		for h := range k.srqs {
			k.destroySRQ(h)
		}
		for h := range k.cqs {
			k.destroyCQ(h)
		}
		for h := range k.ahs {
			k.destroyAH(h)
		}
		for h := range k.mrs {
			k.destroyMR(h)
		}
		if k.foreign() {
			k.Kernel.Abandon()
		}
		k.check(errors.Join(k.file.FreeRing(k.shared), k.file.FreeRing(k.pacing[0]), k.file.FreeRing(k.pacing[1])))
		k.check(k.file.Close())
	})
}

// Doorbell implements ioctl.Doorbells. To the race detector, the device is a separate thread.
func (k *Kernel) Doorbell(page, offset uint32, b []byte) {
	if race.Enabled {
		b = bytes.Clone(b)
	}
	race.Apart(func() {
		k.dev.fabric.loop.Run(func() {
			if err := k.file.Store(page, offset, b); err != nil {
				k.problem("%v", err)
			}
		})
	})
}

// Mapping returns what is at an offset of the file, for a program of another process.
func (k *Kernel) Mapping(offset, length uint64) (page uint32, register bool, errno unix.Errno) {
	k.dev.fabric.loop.Run(func() { page, register, errno = k.file.Mapping(offset, length) })
	return page, register, errno
}

// Write implements ioctl.Kernel. Commands are not written.
func (k *Kernel) Write([]byte) error { return unix.EACCES }

// Ioctl implements ioctl.Kernel.
func (k *Kernel) Ioctl(c ioctl.Call) (err error) {
	k.dev.fabric.loop.Run(func() { err = k.ioctl(c) })
	return err
}

func (k *Kernel) ioctl(c ioctl.Call) error {
	destroy := k.destroyer(c)
	if err := k.refuses(c); err != nil {
		return err
	}
	if err := k.Kernel.Ioctl(c); err != nil {
		return err
	}
	if destroy != nil {
		destroy()
	}
	if f := k.modified; f != nil {
		k.modified = nil
		f()
	}
	switch h := c.Header(); [2]uint16{h.ObjectId, h.MethodId} {
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT}:
		return k.getContext(c)
	case [2]uint16{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE}:
		return k.created(c, uapi.UVERBS_ATTR_CREATE_CQ_HANDLE, k.createCQ(c))
	case [2]uint16{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE}:
		return k.created(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE, k.createQP(c))
	case [2]uint16{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_CREATE}:
		return k.created(c, uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE, k.createSRQ(c))
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}:
		return k.invokeWrite(c)
	case [2]uint16{uapi.BNXT_RE_OBJECT_ALLOC_PAGE, uapi.BNXT_RE_METHOD_ALLOC_PAGE}:
		return k.created(c, uapi.BNXT_RE_ALLOC_PAGE_HANDLE, k.allocPage(c))
	case [2]uint16{uapi.BNXT_RE_OBJECT_NOTIFY_DRV, uapi.BNXT_RE_METHOD_NOTIFY_DRV}:
		k.setDoorbells(0)
	case [2]uint16{uapi.BNXT_RE_OBJECT_GET_TOGGLE_MEM, uapi.BNXT_RE_METHOD_GET_TOGGLE_MEM}:
		return k.created(c, uapi.BNXT_RE_TOGGLE_MEM_HANDLE, k.getToggle(c))
	}
	return nil
}

// refuses returns the error of a command that the driver does not have, or that the model does not.
func (k *Kernel) refuses(c ioctl.Call) error {
	h := c.Header()
	if h.ObjectId != uapi.UVERBS_OBJECT_DEVICE || h.MethodId != uapi.UVERBS_METHOD_INVOKE_WRITE {
		return nil
	}
	switch call.Num(c, uapi.UVERBS_ATTR_WRITE_CMD) {
	case uapi.IB_USER_VERBS_CMD_REREG_MR, uapi.IB_USER_VERBS_CMD_OPEN_XRCD, uapi.IB_USER_VERBS_CMD_ATTACH_MCAST,
		uapi.IB_USER_VERBS_CMD_ALLOC_MW:
		return unix.EOPNOTSUPP
	}
	return nil
}

func (k *Kernel) created(c ioctl.Call, id uint16, err error) error {
	if err != nil {
		k.Forget(call.Handle(c, id))
	}
	return err
}

// getContext replies as bnxt_re_alloc_ucontext.
func (k *Kernel) getContext(c ioctl.Call) error {
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
		k.shared, err = k.file.NewRingAt(0, uint64(unix.Getpagesize()))
	}
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &r)
	return err
}

// invokeWrite executes the commands that INVOKE_WRITE carries.
func (k *Kernel) invokeWrite(c ioctl.Call) error {
	switch call.Num(c, uapi.UVERBS_ATTR_WRITE_CMD) {
	case uapi.IB_USER_VERBS_CMD_ALLOC_PD:
		k.allocPD(c)
	case uapi.IB_USER_VERBS_CMD_REG_MR:
		return k.regMR(c)
	case uapi.IB_USER_VERBS_CMD_CREATE_AH:
		k.createAH(c)
	case uapi.IB_USER_VERBS_CMD_RESIZE_CQ:
		return k.resizeCQ(c)
	case uapi.IB_USER_VERBS_CMD_POLL_CQ:
		k.pollCQ(call.In[uapi.IbUverbsPollCq](c, uapi.UVERBS_ATTR_CORE_IN).CqHandle)
	case uapi.IB_USER_VERBS_CMD_MODIFY_SRQ:
		r := call.In[uapi.IbUverbsModifySrq](c, uapi.UVERBS_ATTR_CORE_IN)
		if s := k.srqs[r.SrqHandle]; s != nil && r.AttrMask&uint32(uverbs.SRQMaskLimit) != 0 {
			s.setLimit(r.SrqLimit)
		}
	}
	return nil
}

// allocPD replies as bnxt_re_alloc_pd. The first PD of a file allocates the doorbell page.
func (k *Kernel) allocPD(c ioctl.Call) {
	n := k.dev.number("PD")
	k.pds[call.Out[uapi.IbUverbsAllocPdResp](c, uapi.UVERBS_ATTR_CORE_OUT).PdHandle] = n
	if k.bell == 0 {
		k.bell = k.file.NewBell(k.ring)
	}
	r := uapi.BnxtRePdResp{Pdid: n, Dpi: 1, Dbr: k.bell}
	if k.dev.fabric.cfg.NoBell {
		r.Dbr = 0
	}
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &r)
}

// destroyer returns the function that destroys the device's part of an object, or nil.
func (k *Kernel) destroyer(c ioctl.Call) func() {
	var f func(uint32)
	var id uint16
	switch h := c.Header(); [2]uint16{h.ObjectId, h.MethodId} {
	case [2]uint16{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY}:
		f, id = k.destroyCQ, uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE
	case [2]uint16{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY}:
		f, id = k.destroyQP, uapi.UVERBS_ATTR_DESTROY_QP_HANDLE
	case [2]uint16{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_DESTROY}:
		f, id = k.destroySRQ, uapi.UVERBS_ATTR_DESTROY_SRQ_HANDLE
	case [2]uint16{uapi.UVERBS_OBJECT_AH, uapi.UVERBS_METHOD_AH_DESTROY}:
		f, id = k.destroyAH, uapi.UVERBS_ATTR_DESTROY_AH_HANDLE
	case [2]uint16{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY}:
		f, id = k.destroyMR, uapi.UVERBS_ATTR_DESTROY_MR_HANDLE
	default:
		return nil
	}
	return func() { f(call.Handle(c, id)) }
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
func (k *Kernel) ring(offset uint32, b []byte) bool {
	if offset != 0 || len(b) != 8 {
		return false
	}
	v := binary.LittleEndian.Uint64(b)
	d := doorbell{index: uint32(v) & (1<<24 - 1), epoch: uint32(v) >> 24 & 1, toggle: uint32(v) >> 25 & 3,
		number: uint32(v>>32) & (1<<20 - 1), kind: uint32(v >> 60)}
	if v>>58&1 == 0 {
		k.problem("the doorbell %#x is not valid", v)
		return true
	}
	k.dev.record("doorbell %#016x", v)
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
		k.problem("the doorbell %#x is of no object", v)
	}
	return true
}
