package devx

import (
	"fmt"
	"os"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A Umem is memory that commands refer to by a number, for the rings and doorbell records of objects: struct
// mlx5dv_devx_umem. The device reads and writes it.
type Umem struct {
	object
	id  uint32
	mem *provider.Mapping
	n   int
}

// AllocUmem allocates n zero bytes outside the Go heap, at the beginning of a page, and registers them:
// mlx5dv_devx_umem_reg(3). access may have LocalWrite, RemoteWrite and RemoteRead.
//
// AllocUmem returns [uverbs.ErrNotSupported] if the device or the context has no DevX, [uverbs.ErrInvalid] if n is
// less than 1 or the access flags are not permitted, ENOMEM if the limit on locked memory is reached, and
// [uverbs.ErrClosed] after Close of ctx.
func AllocUmem(ctx *uverbs.Context, n int, access uverbs.Access) (*Umem, error) {
	const op = "register a umem"
	if n < 1 {
		return nil, invalid(op, "%d bytes: the size must be positive", n)
	}
	u := &Umem{n: n}
	err := with(ctx, op, func(dev *ioctl.Device) (err error) {
		u.dev = dev
		page := os.Getpagesize()
		if u.mem, err = provider.Anon((n + page - 1) / page * page); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		u.life, err = driver.Extend(ctx, op, driver.ExtensionConfig{Kind: "umem",
			Create: func(driver.Extension) (uint32, error) { return u.register(access) },
			Destroy: func() error {
				return u.dev.Destroy(uapi.MLX5_IB_OBJECT_DEVX_UMEM, uapi.MLX5_IB_METHOD_DEVX_UMEM_DEREG,
					uapi.MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, u.handle)
			},
			Retire: func() error { return u.mem.Retire() }})
		if err != nil {
			_ = u.mem.Unmap() // the first error says more
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return u, nil
}

func (u *Umem) register(access uverbs.Access) (uint32, error) {
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.MLX5_IB_OBJECT_DEVX_UMEM, uapi.MLX5_IB_METHOD_DEVX_UMEM_REG)
	c.NewHandle(uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
	c.Uint64(uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, addressOf(u.mem.Bytes()))
	c.Uint64(uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, uint64(u.n))
	c.Uint32(uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, uint32(access))
	id := ioctl.OutOf[uint32](c, uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID)
	if err := u.dev.Do(c); err != nil {
		return 0, err
	}
	u.id, u.handle = *id, c.Made(uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
	return u.handle, nil
}

// ID returns the number by which commands refer to the memory.
func (u *Umem) ID() uint32 { return u.id }

// Bytes returns the memory. After Close it reads as zeros, and it is valid as long as u is reachable.
func (u *Umem) Bytes() []byte { return u.mem.Bytes()[:u.n:u.n] }

// Close deregisters the memory: mlx5dv_devx_umem_dereg(3). If an object uses it, it stays registered. Close is
// idempotent.
func (u *Umem) Close() error { return u.life.Close() }
