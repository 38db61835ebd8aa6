package fakemlx5

import (
	"bytes"
	"fmt"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// ECEOptions are the options of an enhanced connection establishment that the device supports.
const ECEOptions = 0x14

// A Kernel handles the commands of one open file. It implements ioctl.Kernel and
// ioctl.Doorbells.
type Kernel struct {
	*ioctltest.Kernel
	// Reply is the driver's reply when the context is opened. TotBfregs is the number of registers
	// that the kernel allocates with the context, as Linux before 5.7 does, or 0.
	Reply uapi.Mlx5IbAllocUcontextResp
	// OnCommand, if not nil, is called with each command before it runs.
	OnCommand func(ioctl.Call)
	// NoOutOfOrder is set for a kernel or a device without out-of-order QPs.
	NoOutOfOrder bool
	// NoReservedQPNs is set for a device without reserved QP numbers.
	NoReservedQPNs bool
	// NoDevX is set for a kernel or a device without DevX.
	NoDevX bool
	// NoLAG is set for a device whose ports are not aggregated. LAGPortDown is a port that is down, or 0.
	NoLAG       bool
	LAGPortDown uint8
	// TSOTypes has the types of QP that can post TSOs, as bits, on a device that has raw packets.
	TSOTypes uint32
	// DeviceMemory is what programs map at the offset of device memory: as many pages as the core's
	// Extended.MaxDmSize has. All files of the adapter together use as much.
	DeviceMemory []byte
	// Stores and Bursts count the stores to registers, and those of more than 8 bytes.
	Stores, Bursts int

	adapter *Adapter
	queues  map[uint64]receiver // by the address of the doorbell record
	call    ioctl.Call          // the command that runs
	opened  bool                // the context
	lagPort uint8               // of the newest QP
	full    func(command string) unix.Errno
	records map[uint64]int // doorbell records by page
	space   space          // of the program's memory
	pinned  uint64         // bytes

	// The device's parts of the objects, by handle.
	PDs   map[uint32]uint32
	XRCDs map[uint32]uint32
	CQs   map[uint32]*CQ
	SRQs  map[uint32]*SRQ
	QPs   map[uint32]*QP
	dcts  map[uint32]*dct
	mrs   map[uint32]*mr
	mws   map[uint32]*engine.MKey
	dms   map[uint32]*dm
	objs  map[uint32]bool // of DevX: blocks of reserved QP numbers
	raw   rawObjects
}

// NewKernel returns the part of the kernel for a new file of the adapter. core handles what does
// not depend on the driver. Its description of the device must fit the adapter.
func (a *Adapter) NewKernel(core *ioctltest.Kernel) *Kernel {
	k := &Kernel{Kernel: core, adapter: a, TSOTypes: 1 << uapi.IB_UVERBS_QPT_RAW_PACKET,
		PDs: map[uint32]uint32{}, XRCDs: map[uint32]uint32{}, CQs: map[uint32]*CQ{}, SRQs: map[uint32]*SRQ{},
		QPs: map[uint32]*QP{}, dcts: map[uint32]*dct{}, mrs: map[uint32]*mr{}, mws: map[uint32]*engine.MKey{},
		dms: map[uint32]*dm{}, objs: map[uint32]bool{},
		records: map[uint64]int{}, queues: map[uint64]receiver{}}
	k.Reply = uapi.Mlx5IbAllocUcontextResp{QpTabSize: 1 << 17, CacheLineSize: 64, MaxSqDescSz: 1024, MaxRqDescSz: 512,
		MaxSendWqebb: 1 << 15, MaxRecvWr: 1 << 15, MaxSrqRecvWr: 1 << 15, NumPorts: 1, CqeVersion: a.cfg.CQEVersion,
		CmdsSuppUhw: 3, LogUarSize: 12, NumUarsPerPage: 1, BfRegSize: 512}
	if core.NoBursts {
		k.Reply.BfRegSize = 0
	}
	core.OnModifyQP, core.OnQueryQP, core.OnResizeCQ = k.modifyQP, k.queryQP, k.resizeCQ
	core.DMElsewhere, core.DriverQP = k.dmElsewhere, driverQP
	k.limit()
	a.loop.Run(func() { a.kernels[k] = true })
	return k
}

// Removed is called when the device is removed. The adapter reports no further events to the file. Its queue pairs
// leave their multicast groups: the verbs core does so when it destroys them without the program.
func (k *Kernel) Removed() {
	k.adapter.loop.Run(func() {
		for _, q := range k.QPs {
			k.adapter.HCA.LeaveGroups(q.Number)
		}
		delete(k.adapter.kernels, k)
		maps.DeleteFunc(k.adapter.cqs, func(_ uint32, o cqOwner) bool { return o.k == k })
	})
}

// Closed implements ioctl.Closer. The adapter reports no further events to the file.
func (k *Kernel) Closed() {
	k.adapter.loop.Run(func() {
		delete(k.adapter.kernels, k)
		if k.space != 0 {
			k.abandon()
		}
	})
}

// Doorbell implements ioctl.Doorbells. To the race detector, the device is a separate thread: what
// it does happens after the post, and before the completion is polled. Commands run in the caller:
// after a command, the device has done what it did before.
func (k *Kernel) Doorbell(page, offset uint32, b []byte) {
	at := k.adapter.origin()
	if race.Enabled {
		b = bytes.Clone(b) // the caller may reuse it
		race.Apart(func() { k.store(at, page, offset, b) })
		return
	}
	k.store(at, page, offset, b)
}

func (k *Kernel) store(at engine.Origin, page, offset uint32, b []byte) {
	k.adapter.loop.Run(func() {
		k.Stores++
		if len(b) > 8 {
			k.Bursts++
		}
		k.adapter.HCA.From(at, func() { k.adapter.HCA.Store(page, offset, b) })
	})
}

// Write implements ioctl.Kernel. Commands are not written.
func (k *Kernel) Write([]byte) error { return unix.EACCES }

// Ioctl implements ioctl.Kernel. The device executes the commands that the fake kernel accepts, in
// the same way as with mlx5_ib.
func (k *Kernel) Ioctl(c ioctl.Call) (err error) {
	if k.OnCommand != nil {
		k.OnCommand(c)
	}
	at := k.adapter.origin()
	k.adapter.loop.Run(func() { k.adapter.HCA.From(at, func() { err = k.ioctl(c) }) })
	return err
}

func (k *Kernel) ioctl(c ioctl.Call) error {
	k.call = c
	destroy := k.destroyer(c)
	k.full = k.adapter.full()
	switch h := c.Header(); [2]uint16{h.ObjectId, h.MethodId} { // which the core does not know
	case [2]uint16{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_OTHER}:
		return k.devxOther(c)
	case [2]uint16{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_MODIFY}:
		return k.devxModify(c)
	case [2]uint16{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_QUERY}:
		return k.devxQuery(c)
	case [2]uint16{uapi.MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, uapi.MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC}:
		return k.devxEvents(c)
	case [2]uint16{uapi.MLX5_IB_OBJECT_PP, uapi.MLX5_IB_METHOD_PP_OBJ_ALLOC}:
		return unix.EPROTONOSUPPORT // the device has no packet pacing
	case [2]uint16{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_CREATE}:
		return k.devxCreate(c)
	case [2]uint16{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_DESTROY}:
		return k.devxDestroy(c)
	case [2]uint16{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY}:
		if k.bound(c) {
			return unix.EINVAL
		}
	}
	if err := k.Kernel.Ioctl(c); err != nil {
		return err
	}
	if destroy != nil {
		k.check(destroy())
	}
	switch h := c.Header(); [2]uint16{h.ObjectId, h.MethodId} {
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT}:
		k.opened = true
		call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &k.Reply)
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_CONTEXT}:
		call.Reply(c, uapi.MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, &k.Reply)
	case [2]uint16{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_QUERY_MR}:
		k.queryMR(c)
	case [2]uint16{uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_ALLOC}:
		k.allocDM(c)
	case [2]uint16{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_DM_MR_REG}:
		return k.created(c, uapi.UVERBS_ATTR_REG_DM_MR_HANDLE, k.regDM(c))
	case [2]uint16{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE}:
		return k.created(c, uapi.UVERBS_ATTR_CREATE_CQ_HANDLE, k.createCQ(c))
	case [2]uint16{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE}:
		return k.created(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE, k.createQP(c))
	case [2]uint16{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_CREATE}:
		return k.created(c, uapi.UVERBS_ATTR_CREATE_WQ_HANDLE, k.createWQ(c))
	case [2]uint16{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_CREATE}:
		return k.created(c, uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE, k.createSRQ(c))
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}:
		return k.invokeWrite(c)
	}
	return nil
}

// refused is the error of a command that the firmware refuses.
var refused error = unix.EINVAL

// created removes the kernel's object if the device has refused to create its part.
func (k *Kernel) created(c ioctl.Call, id uint16, err error) error {
	if err != nil {
		k.Forget(call.Handle(c, id))
	}
	return err
}

// invokeWrite executes the commands that INVOKE_WRITE carries.
func (k *Kernel) invokeWrite(c ioctl.Call) error {
	const in, out = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT
	switch call.Num(c, uapi.UVERBS_ATTR_WRITE_CMD) {
	case uapi.IB_USER_VERBS_CMD_ALLOC_PD:
		pd, err := k.adapter.HCA.CreatePD()
		k.check(err)
		k.PDs[call.Out[uapi.IbUverbsAllocPdResp](c, out).PdHandle] = pd
		call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbAllocPdResp{Pdn: pd})
	case uapi.IB_USER_VERBS_CMD_OPEN_XRCD:
		x, err := k.adapter.HCA.CreateXRCD()
		k.check(err)
		k.XRCDs[call.Out[uapi.IbUverbsOpenXrcdResp](c, out).XrcdHandle] = x
	case uapi.IB_USER_VERBS_CMD_REG_MR:
		return k.regMR(c)
	case uapi.IB_USER_VERBS_CMD_REREG_MR:
		return k.reregMR(c)
	case uapi.IB_USER_VERBS_CMD_QUERY_SRQ:
		k.querySRQ(c)
	case uapi.IB_USER_VERBS_CMD_ALLOC_MW:
		return k.allocMW(c)
	case uapi.IB_USER_VERBS_CMD_RESIZE_CQ:
		entries := powerOfTwo(int(call.In[uapi.IbUverbsResizeCq](c, in).Cqe) + 1)
		call.Reply(c, out, &uapi.IbUverbsResizeCqResp{Cqe: uint32(entries - 1)})
	case uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED:
		resp := uapi.Mlx5IbModifyQpResp{EceOptions: call.In[uapi.Mlx5IbModifyQp](c, uapi.UVERBS_ATTR_UHW_IN).EceOptions &
			ECEOptions}
		if d := k.dcts[call.In[uapi.IbUverbsExModifyQp](c, in).Base.QpHandle]; d != nil {
			resp.Dctn, resp.ResponseLength = d.number, uint32(ioctl.SizeOf[uapi.Mlx5IbModifyQpResp]())
		}
		call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &resp)
	case uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED:
		k.queryDevice(c)
	case uapi.IB_USER_VERBS_CMD_MODIFY_SRQ:
		r := call.In[uapi.IbUverbsModifySrq](c, in)
		k.check(k.adapter.HCA.ArmSRQ(k.SRQs[r.SrqHandle].Number, uint16(r.SrqLimit)))
	case uapi.IB_USER_VERBS_CMD_CREATE_AH:
		call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbCreateAhResp{ResponseLength: 10,
			Dmac: k.adapter.macOf(call.In[uapi.IbUverbsCreateAh](c, in).Attr.Grh.Dgid)})
	case uapi.IB_USER_VERBS_CMD_ATTACH_MCAST:
		r := call.In[uapi.IbUverbsAttachMcast](c, in)
		k.check(k.adapter.HCA.AttachMulticast(k.QPs[r.QpHandle].Number, r.Gid))
	case uapi.IB_USER_VERBS_CMD_DETACH_MCAST:
		r := call.In[uapi.IbUverbsDetachMcast](c, in)
		k.check(k.adapter.HCA.DetachMulticast(k.QPs[r.QpHandle].Number, r.Gid))
	case uapi.IB_USER_VERBS_EX_CMD_MODIFY_WQ | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED:
		k.modifyWQ(call.In[uapi.IbUverbsExModifyWq](c, in))
	case uapi.IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED:
		k.createTable(c)
	case uapi.IB_USER_VERBS_EX_CMD_CREATE_FLOW | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED:
		a := call.Attr(c, in)
		k.createFlow(c.Memory(a.Data, int(a.Len)), call.Out[uapi.IbUverbsCreateFlowResp](c, out).FlowHandle)
	}
	return nil
}

// check reports that the device has refused what the kernel accepted.
func (k *Kernel) check(err error) {
	if err != nil {
		k.adapter.check(fmt.Errorf("the device refuses: %w", err))
	}
}

// problem reports a mistake of the provider.
func (k *Kernel) problem(format string, args ...any) { k.adapter.check(fmt.Errorf(format, args...)) }

// share permits the device to use the spans.
func (k *Kernel) share(spans ...span) []span {
	for _, s := range spans {
		k.adapter.memory.share(s.addr, s.n)
		if f := k.adapter.cfg.Shared; f != nil {
			f(s.addr, s.n)
		}
	}
	return spans
}

func (k *Kernel) unshare(spans []span) {
	for _, s := range spans {
		k.adapter.memory.unshare(s.addr, s.n)
	}
}

// destroyer returns the function that executes a destroy command on the device once the kernel has
// accepted the command, or nil.
func (k *Kernel) destroyer(c ioctl.Call) func() error {
	switch h := c.Header(); [2]uint16{h.ObjectId, h.MethodId} {
	case [2]uint16{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY}:
		return func() error { return k.destroyCQ(call.Handle(c, uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE)) }
	case [2]uint16{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY}:
		return func() error { return k.destroyQP(call.Handle(c, uapi.UVERBS_ATTR_DESTROY_QP_HANDLE)) }
	case [2]uint16{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_DESTROY}:
		return func() error { return k.destroySRQ(call.Handle(c, uapi.UVERBS_ATTR_DESTROY_SRQ_HANDLE)) }
	case [2]uint16{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_DESTROY}:
		return func() error { return k.destroyWQ(call.Handle(c, uapi.UVERBS_ATTR_DESTROY_WQ_HANDLE)) }
	case [2]uint16{uapi.UVERBS_OBJECT_RWQ_IND_TBL, uapi.UVERBS_METHOD_RWQ_IND_TBL_DESTROY}:
		return func() error { return k.destroyTable(call.Handle(c, uapi.UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE)) }
	case [2]uint16{uapi.UVERBS_OBJECT_FLOW, uapi.UVERBS_METHOD_FLOW_DESTROY}:
		return func() error { return k.destroyFlow(call.Handle(c, uapi.UVERBS_ATTR_DESTROY_FLOW_HANDLE)) }
	case [2]uint16{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY}:
		return func() error { return k.deregMR(call.Handle(c, uapi.UVERBS_ATTR_DESTROY_MR_HANDLE)) }
	case [2]uint16{uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_FREE}:
		return func() error { return k.freeDM(call.Handle(c, uapi.UVERBS_ATTR_FREE_DM_HANDLE)) }
	case [2]uint16{uapi.UVERBS_OBJECT_MW, uapi.UVERBS_METHOD_MW_DESTROY}:
		return func() error { return k.deallocMW(call.Handle(c, uapi.UVERBS_ATTR_DESTROY_MW_HANDLE)) }
	case [2]uint16{uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY}:
		return func() error {
			return destroyDomain(k.PDs, call.Handle(c, uapi.UVERBS_ATTR_DESTROY_PD_HANDLE), k.adapter.HCA.DestroyPD)
		}
	case [2]uint16{uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_METHOD_XRCD_DESTROY}:
		return func() error {
			return destroyDomain(k.XRCDs, call.Handle(c, uapi.UVERBS_ATTR_DESTROY_XRCD_HANDLE), k.adapter.HCA.DestroyXRCD)
		}
	}
	return nil
}

// destroyDomain destroys a PD or an XRCD.
func destroyDomain(all map[uint32]uint32, h uint32, destroy func(uint32) error) error {
	number := all[h]
	delete(all, h)
	return destroy(number)
}

// handlesOf returns the handles of the object that an event is about.
func (k *Kernel) handlesOf(e engine.AsyncEvent) (all []uint32) {
	switch e.Type {
	case engine.EventCQError:
		if o, ok := k.adapter.cqs[e.Number]; ok && o.k == k {
			all = append(all, o.handle)
		}
	case engine.EventSRQCatastrophic, engine.EventSRQLimit:
		for h, s := range k.SRQs {
			if s.Number == e.Number {
				all = append(all, h)
			}
		}
	default:
		for h, q := range k.QPs {
			if q.Number == e.Number {
				all = append(all, h)
			}
		}
	}
	return all
}
