package devx

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/firmware"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// cmdCreateMKey is the opcode of CREATE_MKEY: MLX5_CMD_OP_CREATE_MKEY.
const cmdCreateMKey = 0x200

// An Obj is an object that was created by a command: struct mlx5dv_devx_obj.
type Obj struct{ object }

// Create executes a command that creates an object, such as CREATE_QP: mlx5dv_devx_obj_create(3). The reply, with the
// number of the object, is written to out. The kernel knows the command that destroys the object.
//
// Create keys of memory (CREATE_MKEY) before the queue pairs of uverbs that receive or read into it, also if a raw
// request fills in the key later. While such a key exists, new queue pairs leave short messages to the device. Earlier
// ones complete a short message into this memory with [uverbs.WCLocProtErr], unless they were created with
// mlx5.ScatterDisabled: see "Short messages" of package mlx5.
//
// Create returns [uverbs.ErrNotSupported] if the device or the context has no DevX, [uverbs.ErrInvalid] if
// the sizes are wrong, the kernel does not permit the command or the device refuses it, and
// [uverbs.ErrClosed] after Close of ctx.
func Create(ctx *uverbs.Context, in, out []byte) (*Obj, error) {
	o := &Obj{}
	err := o.create(ctx, "create an object of DevX", driver.ExtensionConfig{Kind: "DevX object",
		Memory: len(in) >= headerSize && binary.BigEndian.Uint16(in) == cmdCreateMKey,
		Create: func(driver.Extension) (uint32, error) {
			err := execute(in, out, func() (err error) {
				o.handle, err = firmware.Create(o.dev, opCommand, in, out)
				return err
			})
			return o.handle, err
		},
		Destroy: func() error { return firmware.Destroy(o.dev, o.handle) }})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Query executes a command that queries the object: mlx5dv_devx_obj_query(3). The command must name the object. The
// errors are those of [Create].
func (o *Obj) Query(in, out []byte) error {
	return o.life.With("query an object of DevX", func() error { return query(o.dev, o.handle, in, out) })
}

func query(dev *ioctl.Device, handle uint32, in, out []byte) error {
	return execute(in, out, func() error { return firmware.Query(dev, opCommand, handle, in, out) })
}

// Modify executes a command that changes the object, such as RST2INIT_QP: mlx5dv_devx_obj_modify(3). The command must
// name the object. The errors are those of [Create].
func (o *Obj) Modify(in, out []byte) error {
	return o.life.With("modify an object of DevX", func() error { return modify(o.dev, o.handle, in, out) })
}

func modify(dev *ioctl.Device, handle uint32, in, out []byte) error {
	return execute(in, out, func() error { return firmware.Modify(dev, opCommand, handle, in, out) })
}

// Close destroys the object: mlx5dv_devx_obj_destroy(3). If the device refuses, because another object uses it, the
// object stays open. Close is idempotent.
func (o *Obj) Close() error { return o.life.Close() }

// QueryQP executes a command that queries a QP of the verbs, such as QUERY_QP: mlx5dv_devx_qp_query(3). The command
// must name the QP. The errors are those of [Create].
func QueryQP(qp *uverbs.QP, in, out []byte) error {
	return withQP(qp, "query a QP by DevX", func(r driver.QPRef) error { return query(r.Device, r.Handle, in, out) })
}

// ModifyQP executes a command that changes a QP of the verbs: mlx5dv_devx_qp_modify(3). The command must name the QP. A
// transition to another state is not known to the library, whose posts and Modify then fail or are refused. The errors
// are those of [Create].
func ModifyQP(qp *uverbs.QP, in, out []byte) error {
	return withQP(qp, "modify a QP by DevX", func(r driver.QPRef) error { return modify(r.Device, r.Handle, in, out) })
}

func withQP(qp *uverbs.QP, op string, f func(driver.QPRef) error) error {
	if qp == nil {
		return invalid(op, "the QP is nil")
	}
	return driver.WithQP(qp, op, func(r driver.QPRef) error {
		if r.Device.Driver() != uapi.RDMA_DRIVER_MLX5 {
			return notMlx5(op, r.Device)
		}
		return f(r)
	})
}
