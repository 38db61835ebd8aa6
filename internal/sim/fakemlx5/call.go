package fakemlx5

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// attr returns an attribute of a command, or nil.
func attr(c ioctl.Call, id uint16) *uapi.IbUverbsAttr {
	for i := range c.Attrs() {
		if a := &c.Attrs()[i]; a.AttrId == id {
			return a
		}
	}
	return nil
}

// Num returns an attribute that is a number or a handle, or 0.
func Num(c ioctl.Call, id uint16) uint64 {
	if a := attr(c, id); a != nil {
		return a.Data
	}
	return 0
}

// handle returns an attribute that is a handle.
func handle(c ioctl.Call, id uint16) uint32 { return uint32(Num(c, id)) }

// Input returns the request of a command: its driver's part, or CORE_IN.
func Input[T any](c ioctl.Call, id uint16) *T {
	v := new(T)
	if a := attr(c, id); a != nil && a.Len > 8 {
		copy(ioctl.BytesOf(v), c.Memory(a.Data, int(a.Len)))
	} else if a != nil {
		copy(ioctl.BytesOf(v), binary.LittleEndian.AppendUint64(nil, a.Data)[:a.Len])
	}
	return v
}

// output returns the reply that the fake kernel has written.
func output[T any](c ioctl.Call, id uint16) *T {
	v := new(T)
	if a := attr(c, id); a != nil {
		copy(ioctl.BytesOf(v), c.Memory(a.Data, int(a.Len)))
	}
	return v
}

// reply writes an output, truncated to its size.
func reply[T any](c ioctl.Call, id uint16, v *T) {
	if a := attr(c, id); a != nil {
		copy(c.Memory(a.Data, int(a.Len)), ioctl.BytesOf(v))
	}
}
