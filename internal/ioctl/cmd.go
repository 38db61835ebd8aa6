package ioctl

import (
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/internal/uapi"
)

const (
	// maxAttrs is more than any method has.
	maxAttrs = 24
	// arenaSize is enough for the data of one command, including the reply, with each piece
	// aligned to 8 bytes.
	arenaSize = 2048
)

// A Cmd is one command under construction. [Cmd.Start] or [Write] it, add attributes, run it with
// [Device.Do], read its outputs, and return it with [Cmd.Put].
//
// Outputs lie inside the Cmd: copy what outlives the Put. A Cmd may be run
// again without changes. It is not safe for concurrent use.
type Cmd struct {
	// The kernel reads header and attributes as one array.
	hdr   uapi.IbUverbsIoctlHdr
	attrs [maxAttrs]uapi.IbUverbsAttr
	arena [arenaSize / 8]uint64

	classes [maxAttrs]class // of attrs, for the trace

	n    int      // attributes in use
	used int      // arena words in use
	refs [][]byte // buffers outside the arena, kept alive until Put
	err  error    // the first error while building
}

var pool = sync.Pool{New: func() any { return new(Cmd) }}

// Get returns an empty Cmd.
func Get() *Cmd { return pool.Get().(*Cmd) }

// Put returns the Cmd to the pool. Its outputs are no longer valid.
func (c *Cmd) Put() {
	clear(c.refs)
	pool.Put(c)
}

// Start makes the Cmd an empty command of the given method.
func (c *Cmd) Start(object, method uint16) {
	c.hdr = uapi.IbUverbsIoctlHdr{ObjectId: object, MethodId: method}
	clear(c.arena[:c.used])
	clear(c.refs)
	c.n, c.used, c.refs, c.err = 0, 0, c.refs[:0], nil
}

// add appends an attribute and returns it. If there is no room, it returns an attribute that is
// not sent, and Do reports the error.
func (c *Cmd) add(as class, id uint16, n int) *uapi.IbUverbsAttr {
	if c.n == maxAttrs || n > 0xffff {
		c.fail(fmt.Errorf("ioctl: no room for attribute %#x of %d bytes", id, n))
		return new(uapi.IbUverbsAttr)
	}
	a := &c.attrs[c.n]
	c.classes[c.n] = as
	c.n++
	*a = uapi.IbUverbsAttr{AttrId: id, Len: uint16(n), Flags: uapi.UVERBS_ATTR_F_MANDATORY}
	return a
}

// fail records the first error.
func (c *Cmd) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// take returns n zero bytes of the arena, 8-byte aligned.
func (c *Cmd) take(n int) []byte {
	words := (n + 7) / 8
	if c.used+words > len(c.arena) {
		c.fail(fmt.Errorf("ioctl: %d bytes do not fit the command", n))
		return wordBytes(make([]uint64, words))[:n:n]
	}
	b := wordBytes(c.arena[c.used : c.used+words])[:n:n]
	c.used += words
	return b
}

// In adds an input. b is copied, inline if it has up to 8 bytes.
func (c *Cmd) In(id uint16, b []byte) {
	a := c.add(classIn, id, len(b))
	if len(b) <= 8 {
		copy(dataBytes(a), b)
		return
	}
	data := c.take(len(b))
	copy(data, b)
	a.Data = address(data)
}

// Uint64 adds an 8-byte input: a constant or a set of flags.
func (c *Cmd) Uint64(id uint16, v uint64) { c.add(classNumber, id, 8).Data = v }

// Uint32 adds a 4-byte input.
func (c *Cmd) Uint32(id uint16, v uint32) { c.add(classNumber, id, 4).Data = uint64(v) }

// Out adds an output of n bytes and returns its memory.
func (c *Cmd) Out(id uint16, n int) []byte {
	b := c.take(n)
	c.add(classOut, id, n).Data = address(b)
	return b
}

// InRef adds an input of more than 8 bytes in the caller's memory, for tables that do not fit
// into the Cmd. The Cmd keeps b, so b cannot be on a stack.
func (c *Cmd) InRef(id uint16, b []byte) { c.ref(classIn, id, b) }

// OutRef adds an output in the caller's memory, as InRef an input.
func (c *Cmd) OutRef(id uint16, b []byte) { c.ref(classOut, id, b) }

func (c *Cmd) ref(as class, id uint16, b []byte) {
	c.refs = append(c.refs, b)
	c.add(as, id, len(b)).Data = address(b)
}

// Handle adds the handle of an existing object.
func (c *Cmd) Handle(id uint16, handle uint32) { c.add(classNumber, id, 0).Data = uint64(handle) }

// NewHandle adds an object that the command creates. [Cmd.Made] returns its handle.
func (c *Cmd) NewHandle(id uint16) { c.add(classNew, id, 0) }

// FD adds a descriptor, for objects that are descriptors.
func (c *Cmd) FD(id uint16, fd int) { c.add(classFD, id, 0).Data = uint64(int64(fd)) }

// UHW adds the driver's part of the command. It returns the memory of the reply. Either part may
// be empty.
func (c *Cmd) UHW(in []byte, outLen int) (out []byte) {
	return c.data(uapi.UVERBS_ATTR_UHW_IN, in, uapi.UVERBS_ATTR_UHW_OUT, outLen)
}

// data adds an input and an output, unless they are empty, and returns the memory of the output.
func (c *Cmd) data(inID uint16, in []byte, outID uint16, outLen int) (out []byte) {
	if len(in) > 0 {
		c.In(inID, in)
	}
	if outLen > 0 {
		out = c.Out(outID, outLen)
	}
	return out
}

// Made returns the handle or descriptor that the kernel wrote to attribute id.
func (c *Cmd) Made(id uint16) uint32 {
	for i := range c.attrs[:c.n] {
		if c.attrs[i].AttrId == id {
			return uint32(c.attrs[i].Data)
		}
	}
	return 0
}

// write makes the Cmd a legacy command. in includes the leading response field, whose value is
// not used: the reply goes to the output attribute.
func (c *Cmd) write(cmd uint64, in []byte, outLen int) (out []byte) {
	c.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE)
	c.Uint64(uapi.UVERBS_ATTR_WRITE_CMD, cmd)
	return c.data(uapi.UVERBS_ATTR_CORE_IN, in, uapi.UVERBS_ATTR_CORE_OUT, outLen)
}

// Void stands for an empty request or reply.
type Void struct{}

// Write makes the Cmd the legacy command number cmd, carried by INVOKE_WRITE, and returns the
// memory of its reply. Req and Resp are structs of the kernel, or [Void].
func Write[Resp, Req any](c *Cmd, cmd uint64, req *Req) *Resp {
	return at[Resp](c.write(cmd, BytesOf(req), SizeOf[Resp]()))
}

// WriteEx is [Write] for an extended command.
func WriteEx[Resp, Req any](c *Cmd, cmd uint64, req *Req) *Resp {
	return Write[Resp](c, cmd|uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED, req)
}

// Destroy runs a method whose only attribute is the handle of an object.
func (d *Device) Destroy(object, method, id uint16, handle uint32) error {
	c := Get()
	defer c.Put()
	c.Start(object, method)
	c.Handle(id, handle)
	return d.Do(c)
}

// InOf adds a struct as an input.
func InOf[T any](c *Cmd, id uint16, v *T) { c.In(id, BytesOf(v)) }

// OutOf adds a struct as an output and returns its memory.
func OutOf[T any](c *Cmd, id uint16) *T { return at[T](c.Out(id, SizeOf[T]())) }

// WriteExTable is [WriteEx] for a request whose struct is followed by a table of any length. The
// Cmd keeps req, so req cannot be on a stack.
func WriteExTable[Resp any](c *Cmd, cmd uint64, req []byte) *Resp {
	c.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE)
	c.Uint64(uapi.UVERBS_ATTR_WRITE_CMD, cmd|uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED)
	c.InRef(uapi.UVERBS_ATTR_CORE_IN, req)
	return OutOf[Resp](c, uapi.UVERBS_ATTR_CORE_OUT)
}
