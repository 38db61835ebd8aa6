package ioctltest

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// This file has the commands for processes that share a context.

func (k *Kernel) queryContext(m *Msg) error {
	if !k.context {
		return refuse(unix.EINVAL, "there is no context")
	}
	one := uint64(1)
	m.Answer(uapi.UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, ioctl.BytesOf(&k.Vectors))
	m.Answer(uapi.UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, ioctl.BytesOf(&one))
	return nil
}

// queryPD is a method of mlx5_ib. A PD that does not exist is not a violation by the library,
// because a program may name any PD.
func (k *Kernel) queryPD(m *Msg) error {
	h, _ := m.Ref(uapi.MLX5_IB_ATTR_QUERY_PD_HANDLE)
	if o := k.objects[h]; o == nil || o.kind != "PD" {
		return unix.ENOENT
	}
	pdn := h + 1
	m.Answer(uapi.MLX5_IB_ATTR_QUERY_PD_RESP_PDN, ioctl.BytesOf(&pdn))
	return nil
}

// queryDM is a method of mlx5_ib. As with queryPD, a program may name any DM.
func (k *Kernel) queryDM(m *Msg) error {
	h, _ := m.Ref(uapi.MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE)
	o := k.objects[h]
	if o == nil || o.kind != "DM" {
		return unix.ENOENT
	}
	offset, page := uint64(0), uint16(o.qpn)
	m.Answer(uapi.MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, ioctl.BytesOf(&offset))
	m.Answer(uapi.MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, ioctl.BytesOf(&page))
	m.Answer(uapi.MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, ioctl.BytesOf(&o.mr.length))
	return nil
}

func (k *Kernel) queryMR(m *Msg) error {
	h, _ := m.Ref(uapi.UVERBS_ATTR_QUERY_MR_HANDLE)
	o := k.objects[h]
	if o == nil || o.kind != "MR" {
		return unix.ENOENT
	}
	rkey := 0x2000 + h
	m.Answer(uapi.UVERBS_ATTR_QUERY_MR_RESP_LKEY, ioctl.BytesOf(&o.mr.lkey))
	m.Answer(uapi.UVERBS_ATTR_QUERY_MR_RESP_RKEY, ioctl.BytesOf(&rkey))
	m.Answer(uapi.UVERBS_ATTR_QUERY_MR_RESP_LENGTH, ioctl.BytesOf(&o.mr.length))
	m.Answer(uapi.UVERBS_ATTR_QUERY_MR_RESP_IOVA, ioctl.BytesOf(&o.mr.iova))
	return nil
}
