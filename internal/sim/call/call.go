// Package call reads the attributes of commands and writes replies, for the drivers of the fake
// kernel of ioctltest.
package call

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// Attr returns an attribute of a command, or nil.
func Attr(c ioctl.Call, id uint16) *uapi.IbUverbsAttr {
	for i := range c.Attrs() {
		if a := &c.Attrs()[i]; a.AttrId == id {
			return a
		}
	}
	return nil
}

// Num returns an attribute that is a number or a handle, or 0.
func Num(c ioctl.Call, id uint16) uint64 {
	if a := Attr(c, id); a != nil {
		return a.Data
	}
	return 0
}

// Handle returns an attribute that is a handle.
func Handle(c ioctl.Call, id uint16) uint32 { return uint32(Num(c, id)) }

// In returns the request of a command: its driver's part, or CORE_IN.
func In[T any](c ioctl.Call, id uint16) *T {
	v := new(T)
	if a := Attr(c, id); a != nil && a.Len > 8 {
		copy(ioctl.BytesOf(v), c.Memory(a.Data, int(a.Len)))
	} else if a != nil {
		copy(ioctl.BytesOf(v), binary.LittleEndian.AppendUint64(nil, a.Data)[:a.Len])
	}
	return v
}

// Out returns the reply that the fake kernel has written.
func Out[T any](c ioctl.Call, id uint16) *T {
	v := new(T)
	if a := Attr(c, id); a != nil {
		copy(ioctl.BytesOf(v), c.Memory(a.Data, int(a.Len)))
	}
	return v
}

// Reply writes an output, truncated to its size.
func Reply[T any](c ioctl.Call, id uint16, v *T) {
	if a := Attr(c, id); a != nil {
		copy(c.Memory(a.Data, int(a.Len)), ioctl.BytesOf(v))
	}
}
