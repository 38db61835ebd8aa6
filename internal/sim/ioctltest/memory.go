package ioctltest

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// memory describes an MR.
type memory struct {
	lkey     uint32
	access   uint32
	length   uint64
	iova     uint64
	onDemand bool // of the registered memory; a later change of access alone keeps it
}

// The flags of enum ib_mr_rereg_flags.
const reregTrans, reregPD, reregAccess = 1 << 0, 1 << 1, 1 << 2

// checkAccess is ib_check_mr_access.
func (k *Kernel) checkAccess(a uint32) error {
	const remote = uapi.IB_UVERBS_ACCESS_REMOTE_WRITE | uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC
	const known = uapi.IB_UVERBS_ACCESS_FLUSH_PERSISTENT<<1 - 1 | uapi.IB_UVERBS_ACCESS_OPTIONAL_RANGE
	switch {
	case a&remote != 0 && a&uapi.IB_UVERBS_ACCESS_LOCAL_WRITE == 0, a&^known != 0:
		return unix.EINVAL
	case a&uapi.IB_UVERBS_ACCESS_ON_DEMAND != 0 && k.Extended.OdpCaps.GeneralCaps&uapi.IB_UVERBS_ODP_SUPPORT == 0,
		a&uapi.IB_UVERBS_ACCESS_FLUSH_GLOBAL != 0 && k.Extended.DeviceCapFlagsEx&uapi.IB_UVERBS_DEVICE_FLUSH_GLOBAL == 0,
		a&uapi.IB_UVERBS_ACCESS_FLUSH_PERSISTENT != 0 &&
			k.Extended.DeviceCapFlagsEx&uapi.IB_UVERBS_DEVICE_FLUSH_PERSISTENT == 0:
		return unix.EOPNOTSUPP
	}
	return nil
}

func (k *Kernel) regMR(m *Msg) error {
	r := request[uapi.IbUverbsRegMr](m)
	pd, err := k.get("PD", r.PdHandle)
	if err != nil {
		return err
	}
	if r.Start%pageSize != r.HcaVa%pageSize {
		return unix.EINVAL
	}
	if err := k.checkAccess(r.AccessFlags); err != nil {
		return err
	}
	onDemand := r.AccessFlags&uapi.IB_UVERBS_ACCESS_ON_DEMAND != 0
	switch {
	case r.Start == 0 && r.Length == ^uint64(0):
		if !onDemand || k.Extended.OdpCaps.GeneralCaps&uapi.IB_UVERBS_ODP_SUPPORT_IMPLICIT == 0 {
			return unix.EINVAL
		}
	case k.Memlock != 0 && r.Length > k.Memlock && !onDemand:
		return unix.ENOMEM
	}
	o := &object{kind: "MR", parents: []*object{pd}}
	h := k.make(o)
	o.mr = memory{lkey: 0x1000 + h, access: r.AccessFlags, onDemand: onDemand, length: r.Length, iova: r.HcaVa}
	reply(m, uapi.IbUverbsRegMrResp{MrHandle: h, Lkey: o.mr.lkey, Rkey: 0x2000 + h})
	return nil
}

// reregMR is ib_uverbs_rereg_mr with a driver that supports the flags in k.Rereg and returns new
// keys when the memory changes.
func (k *Kernel) reregMR(m *Msg) error {
	r := request[uapi.IbUverbsReregMr](m)
	switch {
	case k.Rereg == 0:
		return unix.EOPNOTSUPP
	case r.Flags == 0, r.Flags&reregTrans != 0 && r.Start%pageSize != r.HcaVa%pageSize:
		return unix.EINVAL
	case r.Flags&^(reregTrans|reregPD|reregAccess) != 0:
		return unix.EOPNOTSUPP
	}
	o, err := k.get("MR", r.MrHandle)
	if err != nil {
		return err
	}
	if r.Flags&reregAccess != 0 {
		if err := k.checkAccess(r.AccessFlags); err != nil {
			return err
		}
	}
	pd := o.parents[0]
	if r.Flags&reregPD != 0 {
		if pd, err = k.get("PD", r.PdHandle); err != nil {
			return err
		}
	}
	if r.Flags&^k.Rereg != 0 {
		return unix.EOPNOTSUPP
	}
	o.parents[0].users--
	pd.users++
	o.parents[0] = pd
	if r.Flags&reregAccess != 0 {
		o.mr.access = r.AccessFlags
	}
	if r.Flags&reregTrans != 0 {
		o.mr.lkey += 0x10000
		o.mr.onDemand = o.mr.access&uapi.IB_UVERBS_ACCESS_ON_DEMAND != 0
	}
	reply(m, uapi.IbUverbsReregMrResp{Lkey: o.mr.lkey, Rkey: o.mr.lkey + 0x1000})
	return nil
}

// adviseMR is ADVISE_MR with a driver that supports on-demand paging.
func (k *Kernel) adviseMR(m *Msg) error {
	h, _ := m.Ref(uapi.UVERBS_ATTR_ADVISE_MR_PD_HANDLE)
	pd, err := k.get("PD", h)
	if err != nil {
		return err
	}
	if k.Extended.OdpCaps.GeneralCaps&uapi.IB_UVERBS_ODP_SUPPORT == 0 {
		return unix.EOPNOTSUPP
	}
	if m.Uint(uapi.UVERBS_ATTR_ADVISE_MR_FLAGS)&^uapi.IB_UVERBS_ADVISE_MR_FLAG_FLUSH != 0 {
		return unix.EINVAL
	}
	if m.Uint(uapi.UVERBS_ATTR_ADVISE_MR_ADVICE) > uapi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT {
		return unix.EOPNOTSUPP
	}
	list := m.data[uapi.UVERBS_ATTR_ADVISE_MR_SGE_LIST]
	for _, s := range ioctl.SliceOf[uapi.IbUverbsSge](list) {
		if o := k.onDemand(s.Lkey); o == nil || o.parents[0] != pd {
			return refuse(unix.EINVAL, "lkey %#x is of no on-demand MR of the PD", s.Lkey)
		}
	}
	return nil
}

func (k *Kernel) onDemand(lkey uint32) *object {
	for _, o := range k.objects {
		if o.kind == "MR" && o.mr.lkey == lkey && o.mr.onDemand {
			return o
		}
	}
	return nil
}

// allocMW is ib_uverbs_alloc_mw.
func (k *Kernel) allocMW(m *Msg) error {
	r := request[uapi.IbUverbsAllocMw](m)
	pd, err := k.get("PD", r.PdHandle)
	if err != nil {
		return err
	}
	if r.MwType != 1 && r.MwType != 2 {
		return unix.EINVAL
	}
	h := k.make(&object{kind: "MW", parents: []*object{pd}})
	reply(m, uapi.IbUverbsAllocMwResp{MwHandle: h, Rkey: 0x3000 + h<<8 + uint32(r.MwType)})
	return nil
}
