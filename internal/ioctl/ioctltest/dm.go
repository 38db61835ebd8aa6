package ioctltest

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// This file has the commands of device memory. The device has Extended.MaxDmSize bytes, and the
// kernel maps whole pages.

// The units of mlx5_ib: sizes are rounded up to the first, and the second is the largest
// alignment, as logarithms.
const (
	dmUnit         = 6
	dmMaxAlignment = 12
)

// allocDM is UVERBS_METHOD_DM_ALLOC with mlx5_ib.
func (k *Kernel) allocDM(m *Msg) error {
	n, align := m.Uint(uapi.UVERBS_ATTR_ALLOC_DM_LENGTH), m.Uint(uapi.UVERBS_ATTR_ALLOC_DM_ALIGNMENT)
	most := k.Extended.MaxDmSize
	switch {
	case most == 0:
		return unix.EOPNOTSUPP
	case n == 0 || align > dmMaxAlignment:
		return unix.EINVAL
	}
	pages := func(n uint64) uint64 { return (n + pageSize - 1) / pageSize }
	var taken []uint32
	used := uint64(0)
	for _, o := range k.objects {
		if o.kind == "DM" {
			taken = append(taken, o.qpn)
			used += pages(o.mr.length)
		}
	}
	if used+pages(n) > most/pageSize {
		return unix.ENOMEM
	}
	index := uint32(0)
	for slices.Contains(taken, index) {
		index++
	}
	o := &object{kind: "DM", qpn: index, mr: memory{length: n}}
	m.Made(uapi.UVERBS_ATTR_ALLOC_DM_HANDLE, int(k.make(o)))
	offset, page := uint64(0), uint16(index)
	m.Answer(uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, ioctl.BytesOf(&offset))
	m.Answer(uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, ioctl.BytesOf(&page))
	return nil
}

// regDM is UVERBS_METHOD_DM_MR_REG with mlx5_ib.
func (k *Kernel) regDM(m *Msg) error {
	h, _ := m.Ref(uapi.UVERBS_ATTR_REG_DM_MR_PD_HANDLE)
	pd, err := k.get("PD", h)
	if err != nil {
		return err
	}
	h, _ = m.Ref(uapi.UVERBS_ATTR_REG_DM_MR_DM_HANDLE)
	dm, err := k.get("DM", h)
	if err != nil {
		return err
	}
	const permitted = uapi.IB_UVERBS_ACCESS_LOCAL_WRITE | uapi.IB_UVERBS_ACCESS_REMOTE_WRITE |
		uapi.IB_UVERBS_ACCESS_REMOTE_READ | uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC | uapi.IB_UVERBS_ACCESS_ZERO_BASED
	off, n := m.Uint(uapi.UVERBS_ATTR_REG_DM_MR_OFFSET), m.Uint(uapi.UVERBS_ATTR_REG_DM_MR_LENGTH)
	access := uint32(m.Uint(uapi.UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS))
	if err := k.checkAccess(access); err != nil {
		return err
	}
	if access&uapi.IB_UVERBS_ACCESS_ZERO_BASED == 0 || access&^permitted != 0 || off > dm.mr.length ||
		n > dm.mr.length-off {
		return unix.EINVAL
	}
	o := &object{kind: "MR", parents: []*object{pd, dm}}
	h = k.make(o)
	o.mr = memory{lkey: 0x1000 + h, access: access, length: n}
	rkey := 0x2000 + h
	m.Made(uapi.UVERBS_ATTR_REG_DM_MR_HANDLE, int(h))
	m.Answer(uapi.UVERBS_ATTR_REG_DM_MR_RESP_LKEY, ioctl.BytesOf(&o.mr.lkey))
	m.Answer(uapi.UVERBS_ATTR_REG_DM_MR_RESP_RKEY, ioctl.BytesOf(&rkey))
	return nil
}
