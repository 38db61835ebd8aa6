package foreign

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
)

const (
	headerSize = 24
	attrSize   = 16
	maxCommand = 4096
	// maxData bounds the memory that the attributes of a command refer to. An attribute has at most 64 KiB.
	maxData = 1 << 20
	// maxNames bounds the numbers of event descriptors that are remembered.
	maxNames = 1024
	// maxPages bounds the register pages that are remembered.
	maxPages = 4096
	// registerPage is the size of a register page of the device.
	registerPage = 4096
)

// A node is an open node of a program.
type node struct {
	*process
	dev    *ioctl.Device
	kernel kernel
	names  map[int32]int   // keys of event descriptors, by the program's numbers
	pages  map[uint64]page // that were allocated, by their offset
	events events
}

// A page is a mapping of register pages.
type page struct {
	number uint32
	length uint64
}

func (n *node) close() error { return errors.Join(n.dev.Close(), n.process.close()) }

func (n *node) execute(r request) reply {
	switch r.op {
	case opIoctl:
		return n.ioctl(r.a)
	case opMmap:
		return n.mmap(r.a, r.b)
	case opStore:
		return n.store(r)
	case opName:
		if len(n.names) == maxNames {
			clear(n.names)
		}
		n.names[int32(r.b)] = int(r.a)
		return reply{fd: -1}
	case opEvent:
		return n.events.read(r.a, r.b != 0)
	}
	return reply{errno: unix.ENOSYS, fd: -1}
}

// What is at an offset of a node.
const (
	zeros     = 0 // the clock
	registers = 1
	inFile    = 2 // device memory, in the file that is passed
)

// mmapShift is the position of the command in the offset of a mapping, in pages.
const (
	mmapShift = 8
)

// mmap returns what is at an offset of the node.
func (n *node) mmap(offset, length uint64) reply {
	if m, ok := n.kernel.(mapper); ok {
		return n.mapOf(m, offset, length)
	}
	p, ok := n.pages[offset]
	command := offset / uint64(os.Getpagesize()) >> mmapShift
	switch {
	case ok && length == p.length:
		return reply{kind: registers, a: uint64(p.number), fd: -1}
	case ok:
		return reply{errno: unix.EINVAL, fd: -1}
	case command == uapi.MLX5_IB_MMAP_CLOCK_INFO && length == uint64(os.Getpagesize()):
		return reply{kind: zeros, fd: -1}
	case command == uapi.MLX5_IB_MMAP_DEVICE_MEM:
		fd, err := n.dev.Dup()
		return reply{errno: errnoOf(err, unix.EIO), kind: inFile, fd: fd}
	}
	return reply{errno: unix.EOPNOTSUPP, fd: -1}
}

// A mapper is the kernel of a driver that knows what is at the offsets of the file: rings and register pages.
type mapper interface {
	Mapping(offset, length uint64) (page uint32, register bool, errno unix.Errno)
}

// mapOf is mmap with such a kernel. Its register pages are remembered until the node is closed.
func (n *node) mapOf(m mapper, offset, length uint64) reply {
	number, register, errno := m.Mapping(offset, length)
	switch {
	case errno != 0:
		return reply{errno: errno, fd: -1}
	case register:
		if len(n.pages) == maxPages {
			clear(n.pages)
		}
		n.pages[uint64(number)] = page{number, length}
		return reply{kind: registers, a: uint64(number), fd: -1}
	}
	fd, err := n.dev.Dup()
	return reply{errno: errnoOf(err, unix.EIO), kind: inFile, fd: fd}
}

// store executes a store to a register page that the program has allocated.
func (n *node) store(r request) reply {
	for _, p := range n.pages {
		if uint64(p.number) != r.a {
			continue
		}
		if len(r.data) == 0 || r.b >= registerPage || int(r.b)+len(r.data) > registerPage {
			break
		}
		n.kernel.Doorbell(uint32(r.a), uint32(r.b), r.data)
		return reply{fd: -1}
	}
	return reply{errno: unix.EINVAL, fd: -1}
}

// A command is an ioctl of the program.
type command struct {
	at     uint64 // the address
	object uint16
	method uint16
	attrs  []uapi.IbUverbsAttr
	class  []ioctltest.Class
	addrs  []uint64 // of the data
	data   [][]byte // nil if it is inline
}

func (n *node) ioctl(addr uint64) reply {
	c, errno := n.load(addr)
	if errno == 0 {
		errno = n.loadData(c)
	}
	if errno != 0 {
		return reply{errno: errno, fd: -1}
	}
	err := n.dev.Relay(c.object, c.method, c.attrs, c.data)
	if err == nil {
		n.events.executed(c)
	}
	r := n.result(c, err)
	if e := n.storeData(c, err); e != 0 && r.errno == 0 {
		if r.fd >= 0 {
			_ = unix.Close(r.fd) // a socket
		}
		return reply{errno: e, fd: -1}
	}
	return r
}

// load reads the header and the attributes.
func (n *node) load(addr uint64) (*command, unix.Errno) {
	var h uapi.IbUverbsIoctlHdr
	if n.read(addr, ioctl.BytesOf(&h)) != nil {
		return nil, unix.EFAULT
	}
	switch {
	case h.Length > maxCommand || int(h.Length) != headerSize+attrSize*int(h.NumAttrs):
		return nil, unix.EINVAL
	case h.Reserved1 != 0 || h.Reserved2 != 0:
		return nil, unix.EPROTONOSUPPORT
	case h.DriverId != n.dev.Driver():
		return nil, unix.EINVAL
	}
	c := &command{at: addr + headerSize, object: h.ObjectId, method: h.MethodId,
		attrs: make([]uapi.IbUverbsAttr, h.NumAttrs), class: make([]ioctltest.Class, h.NumAttrs),
		addrs: make([]uint64, h.NumAttrs), data: make([][]byte, h.NumAttrs)}
	for i := range c.attrs {
		if n.read(c.at+uint64(attrSize*i), ioctl.BytesOf(&c.attrs[i])) != nil {
			return nil, unix.EFAULT
		}
	}
	return c, ioctltest.Check(n.dev.Driver(), c.object, c.method, c.attrs)
}

// loadData copies what the attributes refer to.
func (n *node) loadData(c *command) unix.Errno {
	total := 0
	for i := range c.attrs {
		a := &c.attrs[i]
		var known bool
		c.class[i], known = ioctltest.ClassOf(n.dev.Driver(), c.object, c.method, a.AttrId)
		switch {
		case !known:
		case c.class[i] == ioctltest.FD:
			key, ok := n.names[int32(a.Data)]
			if int32(a.Data) != -1 && !ok {
				return unix.EBADF
			}
			if ok {
				a.Data = uint64(key)
			}
		case c.class[i] == ioctltest.Out, c.class[i] == ioctltest.In && a.Len > 8:
			if total += int(a.Len); total > maxData {
				return unix.ENOMEM
			}
			c.addrs[i] = a.Data
			c.data[i] = ioctl.Buffer(int(a.Len))
			if c.class[i] == ioctltest.In && n.read(a.Data, c.data[i]) != nil {
				return unix.EFAULT
			}
		}
	}
	return 0
}

// storeData writes the outputs and the handles.
func (n *node) storeData(c *command, err error) unix.Errno {
	for i := range c.attrs {
		a := c.attrs[i]
		// A command of DevX that the firmware has refused has a reply.
		if c.class[i] == ioctltest.Out && c.data[i] != nil && (err == nil || err == unix.EREMOTEIO) {
			if n.write(c.addrs[i], c.data[i]) != nil {
				return unix.EFAULT
			}
		}
		if err != nil {
			continue
		}
		at := c.at + uint64(attrSize*i)
		if n.write(at+4, binary.NativeEndian.AppendUint16(nil, a.Flags)) != nil {
			return unix.EFAULT
		}
		if c.class[i] == ioctltest.New && n.write(at+8, binary.NativeEndian.AppendUint64(nil, a.Data)) != nil {
			return unix.EFAULT
		}
	}
	return 0
}

// result returns the reply to a command. It notes register pages, and returns event descriptors.
func (n *node) result(c *command, err error) reply {
	r := reply{fd: -1}
	if err != nil {
		r.errno = errnoOf(err, unix.EIO)
		return r
	}
	switch [2]uint16{c.object, c.method} {
	case [2]uint16{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_ALLOC}:
		offset := c.output(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET)
		n.pages[offset] = page{uint32(c.output(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID)),
			c.output(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH)}
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}:
		i := c.index(uapi.UVERBS_ATTR_CORE_OUT)
		if c.input(uapi.UVERBS_ATTR_WRITE_CMD) == uapi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL && i >= 0 {
			n.descriptor(&r, int(int32(c.output(uapi.UVERBS_ATTR_CORE_OUT))), c.addrs[i], completionEvents)
		}
	}
	for i := range c.attrs {
		if c.class[i] == ioctltest.NewFD {
			n.descriptor(&r, int(c.attrs[i].Data), c.at+uint64(attrSize*i)+8, otherEvents)
		}
	}
	return r
}

// The sizes of the number of a descriptor, which differ by kind of events.
const (
	completionEvents = 4
	otherEvents      = 8
)

// descriptor adds the event descriptor with a key to a reply. The program stores its number at an address.
func (n *node) descriptor(r *reply, key int, addr uint64, size uint32) {
	if fd, ok := n.kernel.TakeDescriptor(key); ok {
		r.fd, r.kind, r.a, r.b = fd, size, addr, uint64(key)
	}
}

func (c *command) index(id uint16) int {
	for i := range c.attrs {
		if c.attrs[i].AttrId == id {
			return i
		}
	}
	return -1
}

func (c *command) input(id uint16) uint64 {
	if i := c.index(id); i >= 0 {
		return c.attrs[i].Data
	}
	return 0
}

// output returns an output of up to 8 bytes.
func (c *command) output(id uint16) uint64 {
	var b [8]byte
	if i := c.index(id); i >= 0 {
		copy(b[:], c.data[i])
	}
	return binary.NativeEndian.Uint64(b[:])
}
