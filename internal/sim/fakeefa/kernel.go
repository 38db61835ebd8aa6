package fakeefa

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A Kernel handles the commands of one open file. It implements ioctl.Kernel and ioctl.Doorbells.
type Kernel struct {
	*ioctltest.Kernel
	// Input is what the program has said of itself when it opened the context.
	Input uapi.EfaIbvAllocUcontextCmd

	dev      *Device
	file     *devfile.File
	memory   devfile.Memory
	pinned   uint64            // bytes
	modified func()            // what remains of a MODIFY_QP
	pds      map[uint32]uint16 // by handle, as are the maps below
	cqs      map[uint32]*cq
	qps      map[uint32]*qp
	ahs      map[uint32]*ah
	mrs      map[uint32]*mr
}

func (d *Device) newKernel(file *devfile.File) *Kernel {
	core := ioctltest.NewKernel(uapi.RDMA_DRIVER_EFA)
	d.describe(core)
	k := &Kernel{Kernel: core, dev: d, file: file,
		pds: map[uint32]uint16{}, cqs: map[uint32]*cq{}, qps: map[uint32]*qp{}, ahs: map[uint32]*ah{}, mrs: map[uint32]*mr{}}
	core.Name = "fakeefa: " + d.Name() + ": "
	core.DriverQP = driverQP
	core.OnModifyQP = k.modifyQP
	core.OnQueryQP = k.queryQP
	return k
}

// driverQP returns the type of a QP of type IB_QPT_DRIVER.
func driverQP(in []byte) uint8 {
	if c := (uapi.EfaIbvCreateQp{}); len(in) >= len(ioctl.BytesOf(&c)) {
		copy(ioctl.BytesOf(&c), in)
		if c.DriverQpType == uapi.EFA_QP_DRIVER_TYPE_SRD {
			return ioctltest.SRD
		}
	}
	return 0
}

// UseProcess makes the file that of a program in another process.
func (k *Kernel) UseProcess(p ioctltest.Process) error {
	k.dev.fabric.mu.Lock()
	defer k.dev.fabric.mu.Unlock()
	k.memory.Process = p
	k.Kernel.Set(func() { k.Foreign = true })
	return nil
}

// Closed implements ioctl.Closer.
func (k *Kernel) Closed() {
	f := k.dev.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range k.qps {
		k.destroyQP(h)
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
	if k.memory.Process != nil {
		k.Kernel.Abandon()
	}
	if err := k.file.Close(); err != nil {
		f.problem("%v", err)
	}
}

// Doorbell implements ioctl.Doorbells. To the race detector, the device is a separate thread.
func (k *Kernel) Doorbell(page, offset uint32, b []byte) {
	if race.Enabled {
		b = bytes.Clone(b)
	}
	race.Apart(func() {
		k.dev.fabric.mu.Lock()
		defer k.dev.fabric.mu.Unlock()
		if err := k.file.Store(page, offset, b); err != nil && k.memory.Process == nil {
			k.dev.fabric.problem("%v", err) // a program of another process may store anything
		}
	})
}

// Mapped implements ioctl.Maps.
func (k *Kernel) Mapped(offset int64, mem []byte) {
	k.dev.fabric.mu.Lock()
	defer k.dev.fabric.mu.Unlock()
	for _, q := range k.cqs {
		if q.ring.Key == uint64(offset) && len(mem) == len(q.ring.Bytes) {
			q.seen = mem
		}
	}
}

// Mapping returns what is at an offset of the file, for a program of another process: a register page with a
// number, or bytes of the file.
func (k *Kernel) Mapping(offset, length uint64) (page uint32, register bool, errno unix.Errno) {
	k.dev.fabric.mu.Lock()
	defer k.dev.fabric.mu.Unlock()
	return k.file.Mapping(offset, length)
}

// Write implements ioctl.Kernel. Commands are not written.
func (k *Kernel) Write([]byte) error { return unix.EACCES }

// Ioctl implements ioctl.Kernel.
func (k *Kernel) Ioctl(c ioctl.Call) error {
	f := k.dev.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
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
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}:
		return k.invokeWrite(c)
	}
	return nil
}

// refuses returns the error of a command that the driver does not have.
func (k *Kernel) refuses(c ioctl.Call) error {
	h := c.Header()
	if h.ObjectId == uapi.UVERBS_OBJECT_SRQ && h.MethodId == uapi.UVERBS_METHOD_SRQ_CREATE {
		return unix.EOPNOTSUPP
	}
	if h.ObjectId != uapi.UVERBS_OBJECT_DEVICE || h.MethodId != uapi.UVERBS_METHOD_INVOKE_WRITE {
		return nil
	}
	switch call.Num(c, uapi.UVERBS_ATTR_WRITE_CMD) {
	case uapi.IB_USER_VERBS_CMD_RESIZE_CQ, uapi.IB_USER_VERBS_CMD_REREG_MR, uapi.IB_USER_VERBS_CMD_ALLOC_MW,
		uapi.IB_USER_VERBS_CMD_ATTACH_MCAST, uapi.IB_USER_VERBS_CMD_OPEN_XRCD, uapi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
		uapi.IB_USER_VERBS_CMD_POST_SEND:
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

// getContext replies as efa_alloc_ucontext, which refuses programs that do not know the limits of the device.
func (k *Kernel) getContext(c ioctl.Call) error {
	cfg := &k.dev.fabric.cfg
	k.Input = *call.In[uapi.EfaIbvAllocUcontextCmd](c, uapi.UVERBS_ATTR_UHW_IN)
	need := uint32(0)
	if cfg.MaxBatch != 0 {
		need |= uapi.EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH
	}
	if cfg.MinSQ != 0 {
		need |= uapi.EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR
	}
	if need&^k.Input.SupportedCaps != 0 {
		return unix.EOPNOTSUPP
	}
	r := uapi.EfaIbvAllocUcontextResp{SubCqsPerCq: uint16(cfg.SubCQs), InlineBufSize: maxInline, MaxLlqSize: llqSize,
		MaxTxBatch: cfg.MaxBatch, MinSqWr: cfg.MinSQ, CmdsSuppUdataMask: uapi.EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE |
			uapi.EFA_USER_CMDS_SUPP_UDATA_CREATE_AH}
	if cfg.NoAHNumber {
		r.CmdsSuppUdataMask &^= uapi.EFA_USER_CMDS_SUPP_UDATA_CREATE_AH
	}
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &r)
	return nil
}

// invokeWrite executes the commands that INVOKE_WRITE carries.
func (k *Kernel) invokeWrite(c ioctl.Call) error {
	const in, out, driver = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT, uapi.UVERBS_ATTR_UHW_OUT
	switch call.Num(c, uapi.UVERBS_ATTR_WRITE_CMD) {
	case uapi.IB_USER_VERBS_CMD_ALLOC_PD:
		k.dev.pds++
		k.pds[call.Out[uapi.IbUverbsAllocPdResp](c, out).PdHandle] = k.dev.pds
		call.Reply(c, driver, &uapi.EfaIbvAllocPdResp{Pdn: k.dev.pds})
	case uapi.IB_USER_VERBS_CMD_REG_MR:
		return k.regMR(c)
	case uapi.IB_USER_VERBS_CMD_CREATE_AH:
		return k.createAH(c)
	case uapi.IB_USER_VERBS_CMD_QUERY_DEVICE:
		r := call.Out[uapi.IbUverbsQueryDeviceResp](c, out)
		r.MaxSge = maxSendSGE
		call.Reply(c, out, r)
	case uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED:
		r := call.Out[uapi.IbUverbsExQueryDeviceResp](c, out)
		r.Base.MaxSge = maxSendSGE // the smaller one of the two limits
		call.Reply(c, out, r)
		call.Reply(c, driver, &uapi.EfaIbvExQueryDeviceResp{MaxSqWr: maxWR, MaxRqWr: maxWR, MaxSqSge: maxSendSGE,
			MaxRqSge: maxRecvSGE, MaxRdmaSize: maxRDMA, DeviceCaps: k.dev.fabric.cfg.Caps})
	}
	return nil
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
	case [2]uint16{uapi.UVERBS_OBJECT_AH, uapi.UVERBS_METHOD_AH_DESTROY}:
		f, id = k.destroyAH, uapi.UVERBS_ATTR_DESTROY_AH_HANDLE
	case [2]uint16{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY}:
		f, id = k.destroyMR, uapi.UVERBS_ATTR_DESTROY_MR_HANDLE
	default:
		return nil
	}
	return func() { f(call.Handle(c, id)) }
}

// newBell allocates a page with one register of four bytes.
func (k *Kernel) newBell(at uint32, ring func(uint32)) (key uint64) {
	return k.file.NewBell(func(offset uint32, b []byte) bool {
		if offset != at || len(b) != 4 {
			return false
		}
		ring(binary.LittleEndian.Uint32(b))
		return true
	})
}

func (k *Kernel) freeRing(r devfile.Ring) {
	if err := k.file.FreeRing(r); err != nil {
		k.dev.fabric.problem("%v", err)
	}
}

func (d *Device) record(format string, args ...any) {
	if f := d.fabric.cfg.Record; f != nil {
		f(d.Name(), fmt.Sprintf(format, args...))
	}
}
