package ioctl

import (
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Relay runs a command of another process on a fake kernel. data[i] is a copy of the memory that attribute i refers
// to, or nil if the attribute is inline; outputs are written to it. Handles that the command returns are written to
// attrs.
func (d *Device) Relay(object, method uint16, attrs []uapi.IbUverbsAttr, data [][]byte) error {
	if len(attrs) > maxAttrs || len(data) != len(attrs) {
		return unix.EINVAL
	}
	c := Get()
	defer c.Put()
	c.Start(object, method)
	c.n = len(attrs)
	for i, a := range attrs {
		c.attrs[i], c.classes[i] = a, classNumber
		if data[i] != nil {
			c.refs = append(c.refs, data[i])
			c.attrs[i].Data, c.classes[i] = address(data[i]), classIn
		}
	}
	err := d.Do(c)
	for i := range attrs {
		attrs[i].Flags = c.attrs[i].Flags
		if data[i] == nil {
			attrs[i].Data = c.attrs[i].Data
		}
	}
	return err
}

// Buffer returns n bytes that are aligned as the structs of commands are. It is not nil if n is 0.
func Buffer(n int) []byte { return wordBytes(make([]uint64, n/8+1))[:n:n] }
