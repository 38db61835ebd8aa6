package devx

import (
	"context"
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// An EventChannel receives events of objects and of the device: struct mlx5dv_devx_event_channel.
type EventChannel struct {
	*file
}

// An EventType is a type of events, with its number in the PRM.
type EventType uint16

// Types of events of objects, and PortChange, which is the device's.
const (
	Completion EventType = 0x00 // of a completion queue that was armed
	CQError    EventType = 0x04
	PortChange EventType = 0x09
)

// An Event is an event of the device.
type Event struct {
	Cookie uint64 // of the subscription
	Data   []byte // as the device has written it to its event queue (EQE)
}

// eqeSize is the size of an event of the device.
const eqeSize = 64

// CreateEventChannel creates a channel: mlx5dv_devx_create_event_channel(3). It returns [uverbs.ErrNotSupported] if the
// device or the context has no DevX, and [uverbs.ErrClosed] after Close of ctx.
func CreateEventChannel(ctx *uverbs.Context) (*EventChannel, error) {
	const id = uapi.MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE
	f, err := openFile(ctx, "channel of events", "create a channel of events", id, func(c *ioctl.Cmd) {
		c.Start(uapi.MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, uapi.MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC)
		c.NewHandle(id)
		c.Uint32(uapi.MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, 0)
	})
	if err != nil {
		return nil, err
	}
	return &EventChannel{f}, nil
}

// Subscribe requests events of an object, or of the device if obj is nil: mlx5dv_devx_subscribe_devx_event(3). Events
// have the cookie. Subscribe returns [uverbs.ErrInvalid] if there are no types or more than 16, the object belongs to
// another context, or the object or the device does not have one of the types, and [uverbs.ErrClosed] after Close.
func (e *EventChannel) Subscribe(obj *Obj, cookie uint64, types ...EventType) error {
	const op, most = "subscribe to events", 16
	if len(types) == 0 || len(types) > most {
		return invalid(op, "%d types: 1 to %d are possible", len(types), most)
	}
	if obj != nil && obj.dev != e.dev {
		return invalid(op, "the object belongs to another context than the channel")
	}
	var list []byte
	for _, t := range types {
		list = binary.NativeEndian.AppendUint16(list, uint16(t))
	}
	subscribe := func() error {
		return e.with(op, func(fd int) error {
			c := ioctl.Get()
			defer c.Put()
			c.Start(uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT)
			c.FD(uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, fd)
			if obj != nil {
				c.Handle(uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, obj.handle)
			}
			c.In(uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, list)
			c.Uint64(uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, cookie)
			return e.dev.Do(c)
		})
	}
	if obj == nil {
		return subscribe()
	}
	return obj.life.With(op, subscribe)
}

// Next waits for the next event: mlx5dv_devx_get_event(3). It returns context.Cause(ctx) after the end of ctx,
// EOVERFLOW if the kernel has dropped events, [uverbs.ErrClosed] after Close, and [uverbs.ErrDeviceGone]
// after the removal of the device.
func (e *EventChannel) Next(ctx context.Context) (Event, error) {
	b, err := e.next(ctx, hdrSize+eqeSize)
	if err != nil {
		return Event{}, err
	}
	cookie, data, err := split(b)
	return Event{Cookie: cookie, Data: data}, err
}

// Close closes the channel: mlx5dv_devx_destroy_event_channel(3). It is idempotent.
func (e *EventChannel) Close() error { return e.life.Close() }
