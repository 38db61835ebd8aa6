package devx

import (
	"context"
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A Replies is a queue of replies to asynchronous commands: struct mlx5dv_devx_cmd_comp.
type Replies struct{ *file }

// CreateReplies creates a queue of replies: mlx5dv_devx_create_cmd_comp(3). It returns [uverbs.ErrNotSupported] if the
// device or the context has no DevX, and [uverbs.ErrClosed] after Close of ctx.
func CreateReplies(ctx *uverbs.Context) (*Replies, error) {
	const id = uapi.MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE
	f, err := openFile(ctx, "queue of replies", "create a queue of replies", id, func(c *ioctl.Cmd) {
		c.Start(uapi.MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, uapi.MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC)
		c.NewHandle(id)
	})
	if err != nil {
		return nil, err
	}
	return &Replies{f}, nil
}

// QueryAsync starts a query of an object, whose reply has n bytes: mlx5dv_devx_obj_query_async(3).
// [Replies.Next] returns the reply with wrID. QueryAsync returns the errors of [Obj.Query], and EAGAIN
// while replies of 1 MiB are in r.
func (o *Obj) QueryAsync(in []byte, n int, wrID uint64, r *Replies) error {
	const op = "query an object of DevX asynchronously"
	if r == nil {
		return invalid(op, "the queue of replies is nil")
	}
	if len(in) < headerSize || len(in) > maxSize || n < headerSize || n > maxSize {
		return invalid(op, "%d bytes and a reply of %d: both have %d to %d", len(in), n, headerSize, maxSize)
	}
	if o.dev != r.dev {
		return invalid(op, "the queue of replies belongs to another context than the object")
	}
	return o.life.With(op, func() error {
		return r.with(op, func(fd int) error {
			c := ioctl.Get()
			defer c.Put()
			c.Start(uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY)
			c.Handle(uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, o.handle)
			c.InRef(uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, in)
			c.FD(uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, fd)
			c.Uint64(uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, wrID)
			c.Uint64(uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, uint64(n))
			return o.dev.Do(c)
		})
	})
}

// Next waits for the next reply: mlx5dv_devx_get_async_cmd_comp(3). The device may have refused the command: the reply
// begins with its status. Next returns context.Cause(ctx) after the end of ctx, [uverbs.ErrClosed] after Close, and
// [uverbs.ErrDeviceGone] after the removal of the device.
func (r *Replies) Next(ctx context.Context) (wrID uint64, reply []byte, err error) {
	b, err := r.next(ctx, hdrSize+maxSize)
	if err != nil {
		return 0, nil, err
	}
	wrID, reply, err = split(b)
	return wrID, reply, err
}

// hdrSize is the size of the number in front of a reply or an event.
const hdrSize = 8

func split(b []byte) (number uint64, data []byte, err error) {
	if len(b) < hdrSize {
		return 0, nil, &uverbs.Error{Op: "read from the kernel", Kind: uverbs.ErrABI, Detail: "a message without a number"}
	}
	return binary.NativeEndian.Uint64(b), b[hdrSize:], nil
}

// Close closes the queue: mlx5dv_devx_destroy_cmd_comp(3). It waits for commands that the device is executing. It is
// idempotent.
func (r *Replies) Close() error { return r.life.Close() }
