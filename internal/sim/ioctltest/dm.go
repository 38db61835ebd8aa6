package ioctltest

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// This file has the commands of device memory. The device has Extended.MaxDmSize bytes, and the
// kernel maps whole pages of the CPU.

// dmMaxAlignment is the largest alignment of mlx5_ib, as a logarithm.
const dmMaxAlignment = 12

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
	index, ok := k.freeDMPages(n)
	if !ok {
		return unix.ENOMEM
	}
	o := &object{kind: "DM", qpn: index, mr: memory{length: n}}
	m.Made(uapi.UVERBS_ATTR_ALLOC_DM_HANDLE, int(k.make(o)))
	offset, page := uint64(0), uint16(index)
	m.Answer(uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, ioctl.BytesOf(&offset))
	m.Answer(uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, ioctl.BytesOf(&page))
	return nil
}

// freeDMPages returns the first page of n bytes that no DM of the file has, if the device has as many
// free bytes.
func (k *Kernel) freeDMPages(n uint64) (index uint32, ok bool) {
	total := k.Extended.MaxDmSize / dmPage()
	taken := make([]bool, total)
	free := total
	if k.DMElsewhere != nil {
		free -= dmPages(k.DMElsewhere())
	}
	for _, o := range k.objects {
		if o.kind == "DM" {
			for i := range dmPages(o.mr.length) {
				taken[uint64(o.qpn)+i] = true
				free--
			}
		}
	}
	need := dmPages(n)
	for first := uint64(0); need <= free && first <= total-need; first++ {
		if !slices.Contains(taken[first:first+need], true) {
			return uint32(first), true
		}
	}
	return 0, false
}

func dmPage() uint64 { return uint64(unix.Getpagesize()) }

// dmPages returns the number of pages of n bytes.
func dmPages(n uint64) uint64 { return n/dmPage() + min(n%dmPage(), 1) }

// dmOps are the operations that the device has.
const dmOps = 2

// mapDMOp is a method of mlx5_ib. What is mapped is the memory itself: no operation is executed.
func (k *Kernel) mapDMOp(m *Msg) error {
	h, _ := m.Ref(uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE)
	dm, err := k.get("DM", h)
	if err != nil {
		return err
	}
	if m.Uint(uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP) >= dmOps {
		return unix.EOPNOTSUPP
	}
	offset, page := uint64(0), uint16(dm.qpn)
	m.Answer(uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, ioctl.BytesOf(&offset))
	m.Answer(uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, ioctl.BytesOf(&page))
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
