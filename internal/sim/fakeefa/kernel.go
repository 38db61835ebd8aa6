package fakeefa

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A kernel is the driver of one open file.
type kernel struct {
	*fakedev.Kernel
	dev *Device
	cqs map[uint32]*cq // by handle
	qps map[uint32]*qp
}

// remote is what an rkey has in addition to the lkey, so that a program that confuses them fails.
const remote = 1 << 30

func (f *Fabric) open(base *fakedev.Kernel) fakedev.Driver {
	k := &kernel{base, f.devices[base.Dev.Index], map[uint32]*cq{}, map[uint32]*qp{}}
	base.DriverQP = driverQP
	access := uint32(uapi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	if f.cfg.Caps&uapi.EFA_QUERY_DEVICE_CAPS_RDMA_READ != 0 {
		access |= uapi.IB_UVERBS_ACCESS_REMOTE_READ
	}
	if f.cfg.Caps&uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE != 0 {
		access |= uapi.IB_UVERBS_ACCESS_REMOTE_WRITE
	}
	return fakedev.Driver{
		Commands: map[string]func(ioctl.Call) error{"DEVICE.GET_CONTEXT": k.getContext, "CQ.CREATE": k.createCQ,
			"QP.CREATE": k.createQP, "ALLOC_PD": k.allocPD, "CREATE_AH": k.createAH, "QUERY_DEVICE": k.queryDevice,
			"QUERY_DEVICE_EX": k.queryDeviceEx},
		Lacks: []string{"SRQ.CREATE", "RESIZE_CQ", "REREG_MR", "ALLOC_MW", "ATTACH_MCAST", "OPEN_XRCD", "REQ_NOTIFY_CQ",
			"POST_SEND"},
		Kinds:  []fakedev.Kind{fakedev.KindOf("QP", k.qps, k.destroyQP), fakedev.KindOf("CQ", k.cqs, k.destroyCQ)},
		Keys:   func(n uint32) (lkey, rkey uint32) { return n, n | remote },
		Access: access, Modify: k.modifyQP, Mapped: k.mapped,
		Query: func(h uint32, r *uapi.IbUverbsQueryQpResp) { k.qps[h].Query(r) },
	}
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

// mapped notes where the program of this process sees the entries of a CQ.
func (k *kernel) mapped(key uint64, mem []byte) {
	for _, q := range k.cqs {
		if q.ring.Key == key && len(mem) == len(q.ring.Bytes) {
			q.seen = mem
		}
	}
}

// getContext replies as efa_alloc_ucontext, which refuses programs that do not know the limits of the device.
func (k *kernel) getContext(c ioctl.Call) error {
	cfg := &k.dev.fabric.cfg
	in := call.In[uapi.EfaIbvAllocUcontextCmd](c, uapi.UVERBS_ATTR_UHW_IN)
	need := uint32(0)
	if cfg.MaxBatch != 0 {
		need |= uapi.EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH
	}
	if cfg.MinSQ != 0 {
		need |= uapi.EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR
	}
	if need&^in.SupportedCaps != 0 {
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

func (k *kernel) allocPD(c ioctl.Call) error {
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.EfaIbvAllocPdResp{Pdn: uint16(k.AllocPD(c))})
	return nil
}

func (k *kernel) createAH(c ioctl.Call) error {
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.EfaIbvCreateAhResp{EfaAddressHandle: uint16(k.CreateAH(c).Number)})
	return nil
}

func (k *kernel) queryDevice(c ioctl.Call) error {
	r := call.Out[uapi.IbUverbsQueryDeviceResp](c, uapi.UVERBS_ATTR_CORE_OUT)
	r.MaxSge = maxSendSGE
	call.Reply(c, uapi.UVERBS_ATTR_CORE_OUT, r)
	return nil
}

func (k *kernel) queryDeviceEx(c ioctl.Call) error {
	r := call.Out[uapi.IbUverbsExQueryDeviceResp](c, uapi.UVERBS_ATTR_CORE_OUT)
	r.Base.MaxSge = maxSendSGE // the smaller one of the two limits
	call.Reply(c, uapi.UVERBS_ATTR_CORE_OUT, r)
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.EfaIbvExQueryDeviceResp{MaxSqWr: maxWR, MaxRqWr: maxWR,
		MaxSqSge: maxSendSGE, MaxRqSge: maxRecvSGE, MaxRdmaSize: maxRDMA, DeviceCaps: k.dev.fabric.cfg.Caps})
	return nil
}
