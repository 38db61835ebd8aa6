package ioctltest

import (
	"slices"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// This file has the commands that not every driver supports.

func (k *Kernel) queryGID(m *Msg) error {
	port, index := m.Uint(uapi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT), m.Uint(uapi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)
	if port < 1 || port > uint64(len(k.Ports)) || index >= uint64(k.Ports[port-1].GidTblLen) {
		return unix.EINVAL
	}
	i := slices.IndexFunc(k.GIDs, func(e uapi.IbUverbsGidEntry) bool {
		return uint64(e.PortNum) == port && uint64(e.GidIndex) == index
	})
	if i < 0 {
		return unix.ENODATA
	}
	m.Answer(uapi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, ioctl.BytesOf(&k.GIDs[i]))
	return nil
}

func (k *Kernel) queryPortSpeed(m *Msg) error {
	if k.Speed == 0 {
		return unix.EOPNOTSUPP
	}
	m.Answer(uapi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP, ioctl.BytesOf(&k.Speed))
	return nil
}

func (k *Kernel) modifyCQ(m *Msg) error {
	r := request[uapi.IbUverbsExModifyCq](m)
	caps := &k.Extended.CqModerationCaps
	if r.AttrMask == 0 || r.Reserved != 0 {
		return refuse(unix.EINVAL, "the mask is %#x", r.AttrMask)
	}
	if r.AttrMask != 1 || caps.MaxCqModerationCount == 0 {
		return unix.EOPNOTSUPP
	}
	if _, err := k.get("CQ", r.CqHandle); err != nil {
		return err
	}
	if r.Attr.CqCount > caps.MaxCqModerationCount || r.Attr.CqPeriod > caps.MaxCqModerationPeriod {
		return unix.EINVAL
	}
	return nil
}

// rateLimit is IB_QP_RATE_LIMIT.
const rateLimit = 1 << 25

func (k *Kernel) modifyQPEx(m *Msg) error {
	r := request[uapi.IbUverbsExModifyQp](m)
	if r.Base.AttrMask&rateLimit != 0 && k.RateMax == 0 {
		return unix.EOPNOTSUPP
	}
	if r.RateLimit > k.RateMax {
		return unix.EINVAL
	}
	base := r.Base
	base.AttrMask &^= rateLimit
	if err := k.changeQP(&base); err != nil {
		return err
	}
	reply(m, uapi.IbUverbsExModifyQpResp{ResponseLength: 8})
	return nil
}

func (k *Kernel) regDMABuf(m *Msg) error {
	h, _ := m.Ref(uapi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE)
	pd, err := k.get("PD", h)
	if err != nil {
		return err
	}
	off, n, iova :=
		m.Uint(uapi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET), m.Uint(uapi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH),
		m.Uint(uapi.UVERBS_ATTR_REG_DMABUF_MR_IOVA)
	access := uint32(m.Uint(uapi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS))
	if k.DMABuf == 0 {
		return unix.EOPNOTSUPP
	}
	if off%pageSize != iova%pageSize {
		return unix.EINVAL
	}
	const accepted = uapi.IB_UVERBS_ACCESS_LOCAL_WRITE | uapi.IB_UVERBS_ACCESS_REMOTE_READ |
		uapi.IB_UVERBS_ACCESS_REMOTE_WRITE | uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC | uapi.IB_UVERBS_ACCESS_RELAXED_ORDERING
	if access&^accepted != 0 {
		return unix.EINVAL
	}
	if err := k.checkAccess(access); err != nil {
		return err
	}
	if int(m.Uint(uapi.UVERBS_ATTR_REG_DMABUF_MR_FD)) != k.DMABuf || off+n > pageSize {
		return unix.EINVAL
	}
	o := &object{kind: "MR", parents: []*object{pd}}
	h = k.make(o)
	o.mr = memory{lkey: 0x1000 + h, access: access}
	rkey := 0x2000 + h
	m.Made(uapi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE, int(h))
	m.Answer(uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, ioctl.BytesOf(&o.mr.lkey))
	m.Answer(uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, ioctl.BytesOf(&rkey))
	return nil
}
