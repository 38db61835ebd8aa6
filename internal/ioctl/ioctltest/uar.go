package ioctltest

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// UARPages is how many register pages mlx5_ib makes, and FirstUAR the number of
// the first. A page is mapped at its number times its size.
const (
	UARPages = 64
	FirstUAR = 16
)

// allocUAR makes a register page. Where Kernel.NoBursts is set there are none
// that are mapped write-combining.
func (k *Kernel) allocUAR(m *Msg) error {
	kind := m.Uint(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE)
	if kind > uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC || kind == uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && k.NoBursts {
		return unix.EOPNOTSUPP
	}
	taken := map[uint32]bool{}
	for _, o := range k.objects {
		if o.kind == "UAR" {
			taken[o.qpn] = true
		}
	}
	page := uint32(FirstUAR)
	for taken[page] {
		page++
	}
	if page == FirstUAR+UARPages {
		return unix.ENOMEM
	}
	offset, length := uint64(page)*uint64(unix.Getpagesize()), uint32(unix.Getpagesize())
	m.Made(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, int(k.make(&object{kind: "UAR", qpn: page})))
	m.Answer(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, ioctl.BytesOf(&offset))
	m.Answer(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, ioctl.BytesOf(&length))
	m.Answer(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, ioctl.BytesOf(&page))
	return nil
}
