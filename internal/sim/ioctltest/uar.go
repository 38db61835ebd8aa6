package ioctltest

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// UARPages is the number of mappings of register pages that mlx5_ib provides, and FirstUAR the
// number of the first one. The offset of a mapping is its number times its length.
// [Kernel.UARNumber] returns the number of its first register page.
const (
	UARPages = 64
	FirstUAR = 16
)

// allocUAR allocates a register page. If Kernel.NoBursts is set, pages that are mapped
// write-combining are not available.
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
	length := uint32(k.uarLength())
	offset, number := uint64(page)*uint64(length), k.UARNumber(page)
	m.Made(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, int(k.make(&object{kind: "UAR", qpn: page})))
	m.Answer(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, ioctl.BytesOf(&offset))
	m.Answer(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, ioctl.BytesOf(&length))
	m.Answer(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, ioctl.BytesOf(&number))
	return nil
}

func (k *Kernel) uarLength() int {
	if k.UARLength != 0 {
		return k.UARLength
	}
	return unix.Getpagesize()
}

// UARNumber returns the device's number of the first register page of a mapping.
func (k *Kernel) UARNumber(mapping uint32) uint32 {
	return k.UARBase + mapping*uint32(max(k.UARLength/4096, 1))
}
