package devx

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/firmware"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	_ "github.com/goverbs/goverbs/provider/mlx5" // opens the devices
	"github.com/goverbs/goverbs/uverbs"
)

// headerSize is the size of the shortest command and of the shortest reply.
const headerSize = 16

// maxSize is the size of the longest command and of the longest reply in an ioctl.
const maxSize = 0xffff

const opCommand = "execute a command of DevX"

// Command executes a command that is not about an object, such as QUERY_HCA_CAP: mlx5dv_devx_general_cmd(3).
// The reply is written to out. Both have 16 bytes or more.
//
// Command returns [uverbs.ErrNotSupported] if the device or the context has no DevX, [uverbs.ErrInvalid] if the
// sizes are wrong or the kernel does not permit the command, and [uverbs.ErrClosed] after Close of ctx.
func Command(ctx *uverbs.Context, in, out []byte) error {
	return with(ctx, opCommand, func(dev *ioctl.Device) error {
		return execute(in, out, func() error { return firmware.Execute(dev, opCommand, in, out) })
	})
}

// QueryEQN returns the number of the event queue of a completion vector, for CREATE_CQ:
// mlx5dv_devx_query_eqn(3). It returns [uverbs.ErrNotSupported] if the device has no DevX, and
// [uverbs.ErrInvalid] if there is no such vector.
func QueryEQN(ctx *uverbs.Context, vector int) (uint32, error) {
	const op = "query the event queue of a completion vector"
	var eqn uint32
	err := with(ctx, op, func(dev *ioctl.Device) error {
		if vector < 0 || vector >= ctx.CompVectors() {
			return invalid(op, "vector %d: the device has %d", vector, ctx.CompVectors())
		}
		c := ioctl.Get()
		defer c.Put()
		c.Start(uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_QUERY_EQN)
		c.Uint32(uapi.MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, uint32(vector))
		out := ioctl.OutOf[uint32](c, uapi.MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN)
		err := dev.Do(c)
		eqn = *out
		return err
	})
	return eqn, err
}

// with calls f with the device of a context of mlx5.
func with(ctx *uverbs.Context, op string, f func(*ioctl.Device) error) error {
	if ctx == nil {
		return invalid(op, "the Context is nil")
	}
	return driver.WithContext(ctx, op, func(dev *ioctl.Device, _ any) error {
		if dev.Driver() != uapi.RDMA_DRIVER_MLX5 {
			return notMlx5(op, dev)
		}
		return f(dev)
	})
}

// An object is an object of the kernel on the device of a context.
type object struct {
	dev    *ioctl.Device
	handle uint32
	life   driver.Extension
}

// create creates the object that cfg describes. cfg.Create sets o.handle.
func (o *object) create(ctx *uverbs.Context, op string, cfg driver.ExtensionConfig) error {
	return with(ctx, op, func(dev *ioctl.Device) (err error) {
		o.dev = dev
		o.life, err = driver.Extend(ctx, op, cfg)
		return err
	})
}

func notMlx5(op string, dev *ioctl.Device) error {
	return &uverbs.Error{Op: op, Object: dev.Name(), Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP,
		Detail: "DevX is for devices of mlx5"}
}

// execute calls f, which executes a command, and makes the error one that programs know.
func execute(in, out []byte, f func() error) error {
	if min(len(in), len(out)) < headerSize || max(len(in), len(out)) > maxSize {
		return invalid(opCommand, "%d bytes and a reply of %d: both have %d to %d", len(in), len(out), headerSize, maxSize)
	}
	return explain(f())
}

func invalid(op, format string, args ...any) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrInvalid, Errno: unix.EINVAL, Detail: fmt.Sprintf(format, args...)}
}
