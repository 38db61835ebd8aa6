package rdmacm

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Relay runs a command of another process on a fake kernel. data is a copy of the memory whose address is at an offset
// of the frame, or nil if the command has none. A reply is written to it.
func Relay(k Kernel, frame []byte, at int, data []byte) unix.Errno {
	if len(frame) < headerSize || len(frame) > frameWords*8 || data != nil && (at < 0 || at+8 > len(frame)) {
		return unix.EINVAL
	}
	c := start(0, 0)
	defer c.put()
	b := wordBytes(c.frame[:])
	copy(b, frame)
	c.n = len(frame) - headerSize
	if data != nil {
		c.more, c.out = data, len(data)
		binary.NativeEndian.PutUint64(b[at:], address(data))
	}
	return k.Command(Call{c})
}
