package ioctltest

import (
	"net/netip"
	"slices"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A group is a multicast group that a QP is attached to.
type group struct {
	gid [16]byte
	lid uint16
}

func (k *Kernel) createAH(m *Msg) error {
	r := request[uapi.IbUverbsCreateAh](m)
	if r.Attr.PortNum < 1 || int(r.Attr.PortNum) > len(k.Ports) {
		return unix.EINVAL
	}
	pd, err := k.get("PD", r.PdHandle)
	if err != nil {
		return err
	}
	if r.Attr.IsGlobal == 0 && k.needsGRH(r.Attr.PortNum) || r.Attr.IsGlobal != 0 &&
		!k.hasGID(r.Attr.PortNum, r.Attr.Grh.SgidIndex) {
		return unix.EINVAL
	}
	h := k.make(&object{kind: "AH", parents: []*object{pd}})
	reply(m, uapi.IbUverbsCreateAhResp{AhHandle: h})
	k.driver(m, h, 0)
	return nil
}

func (k *Kernel) hasGID(port, index uint8) bool {
	return slices.ContainsFunc(k.GIDs, func(e uapi.IbUverbsGidEntry) bool {
		return e.GidIndex == uint32(index) && e.PortNum == uint32(port)
	})
}

// attachMcast is ib_uverbs_attach_mcast: attaching a second time is not an error.
func (k *Kernel) attachMcast(m *Msg) error {
	r := request[uapi.IbUverbsAttachMcast](m)
	o, err := k.get("QP", r.QpHandle)
	if err != nil {
		return err
	}
	if o.qpType != uapi.IB_UVERBS_QPT_UD || !netip.AddrFrom16(r.Gid).Unmap().IsMulticast() {
		return unix.EINVAL
	}
	o.groups[group{r.Gid, r.Mlid}] = true
	return nil
}

func (k *Kernel) detachMcast(m *Msg) error {
	r := request[uapi.IbUverbsDetachMcast](m)
	o, err := k.get("QP", r.QpHandle)
	if err != nil {
		return err
	}
	g := group{r.Gid, r.Mlid}
	if !o.groups[g] {
		return unix.EINVAL
	}
	delete(o.groups, g)
	return nil
}

func (k *Kernel) createSRQ(m *Msg) error {
	h, _ := m.Ref(uapi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE)
	pd, err := k.get("PD", h)
	if err != nil {
		return err
	}
	parents, srqn, err := k.xrcParents(m)
	if err != nil {
		return err
	}
	o := &object{kind: "SRQ", parents: append(parents, pd), srqn: srqn,
		user: m.Uint(uapi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE)}
	o.srq = uapi.IbUverbsQuerySrqResp{MaxWr: uint32(m.Uint(uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR)),
		MaxSge:   uint32(m.Uint(uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE)),
		SrqLimit: uint32(m.Uint(uapi.UVERBS_ATTR_CREATE_SRQ_LIMIT))}
	if o.srq.MaxWr == 0 || o.srq.MaxWr > k.Device.MaxSrqWr || o.srq.MaxSge > k.Device.MaxSrqSge ||
		o.srq.SrqLimit > o.srq.MaxWr {
		return unix.EINVAL
	}
	h = k.make(o)
	m.Made(uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE, int(h))
	m.Answer(uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, ioctl.BytesOf(&o.srq.MaxWr))
	m.Answer(uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, ioctl.BytesOf(&o.srq.MaxSge))
	if srqn != 0 {
		m.Answer(uapi.UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, ioctl.BytesOf(&srqn))
	}
	k.driver(m, h, 0)
	return nil
}

// The bits of enum ib_srq_attr_mask.
const srqMaxWR, srqLimit = 1 << 0, 1 << 1

func (k *Kernel) modifySRQ(m *Msg) error {
	r := request[uapi.IbUverbsModifySrq](m)
	o, err := k.get("SRQ", r.SrqHandle)
	if err != nil {
		return err
	}
	next := o.srq
	if r.AttrMask&srqMaxWR != 0 {
		next.MaxWr = r.MaxWr
	}
	if r.AttrMask&srqLimit != 0 {
		next.SrqLimit = r.SrqLimit
	}
	if next.MaxWr == 0 || next.MaxWr > k.Device.MaxSrqWr || next.SrqLimit > next.MaxWr {
		return unix.EINVAL
	}
	o.srq = next
	return nil
}

func (k *Kernel) querySRQ(m *Msg) error {
	r := request[uapi.IbUverbsQuerySrq](m)
	o, err := k.get("SRQ", r.SrqHandle)
	if err != nil {
		return err
	}
	reply(m, o.srq)
	return nil
}
