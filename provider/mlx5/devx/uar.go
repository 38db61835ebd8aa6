package devx

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A UARType is how the CPU stores to a page of doorbell registers.
type UARType uint32

// The types of pages: MLX5_IB_UAPI_UAR_ALLOC_TYPE_*.
const (
	BlueFlame UARType = 0 // write-combining, for WQEs
	NonCached UARType = 1 // for doorbells
)

// A UAR is a page of doorbell registers: struct mlx5dv_devx_uar.
type UAR struct {
	object
	page uint32
	mem  *provider.Mapping
}

// uarSize is the size of a page of registers.
const uarSize = 4096

// SendRegister is the offset of the doorbell register for send queues: a store of the first eight bytes of a
// WQE rings it.
const SendRegister = 0x800

// ArmRegister is the offset of the doorbell register for completion queues.
const ArmRegister = 0x20

// AllocUAR allocates a page: mlx5dv_devx_alloc_uar(3). It returns [uverbs.ErrNotSupported] if the device, the kernel or
// the CPU does not have the type, and [uverbs.ErrClosed] after Close of ctx.
func AllocUAR(ctx *uverbs.Context, kind UARType) (*UAR, error) {
	u := &UAR{}
	err := u.create(ctx, "allocate a page of doorbell registers", driver.ExtensionConfig{Kind: "UAR",
		Create:  func(driver.Extension) (uint32, error) { return u.alloc(kind) },
		Destroy: u.free,
		Retire:  func() error { return u.mem.Retire() }})
	if err != nil {
		return nil, err
	}
	return u, nil
}

func (u *UAR) alloc(kind UARType) (uint32, error) {
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_ALLOC)
	c.NewHandle(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
	c.Uint64(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, uint64(kind))
	offset := ioctl.OutOf[uint64](c, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET)
	length := ioctl.OutOf[uint32](c, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH)
	page := ioctl.OutOf[uint32](c, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID)
	if err := u.dev.Do(c); err != nil {
		return 0, err
	}
	u.page, u.handle = *page, c.Made(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
	if *length < uarSize {
		return 0, errors.Join(&uverbs.Error{Op: "map a page of doorbell registers", Kind: uverbs.ErrABI,
			Detail: fmt.Sprintf("it has %d bytes", *length)}, u.free())
	}
	mem, err := provider.Map(u.dev, int64(*offset), int(*length))
	if err != nil {
		return 0, errors.Join(err, u.free())
	}
	u.mem = mem
	return u.handle, nil
}

func (u *UAR) free() error {
	return u.dev.Destroy(uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_DESTROY,
		uapi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, u.handle)
}

// Page returns the number of the page, uar_page in commands.
func (u *UAR) Page() uint32 { return u.page }

// Ring stores v, in big-endian order, to the register at offset off, such as [SendRegister] or [ArmRegister], with one
// store. The stores of the program before it are visible to the device then. Ring returns [uverbs.ErrInvalid] if off
// is not a multiple of 8 within the page, and [uverbs.ErrClosed] after Close.
func (u *UAR) Ring(off int, v uint64) error {
	const op = "ring a doorbell"
	return u.life.With(op, func() error {
		if off < 0 || off > uarSize-8 || off%8 != 0 {
			return invalid(op, "offset %d: it is a multiple of 8 below %d", off, uarSize)
		}
		mmio.ToDevice()
		mmio.Store64BE(registerOf(u.mem.Bytes()[off:]), v)
		mmio.FlushWrites()
		runtime.KeepAlive(u)
		return nil
	})
}

// Close unmaps and releases the page: mlx5dv_devx_free_uar(3). It is idempotent.
func (u *UAR) Close() error { return u.life.Close() }
