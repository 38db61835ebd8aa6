package ioctltest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A Msg is a decoded command.
type Msg struct {
	Name   string // DEVICE.GET_CONTEXT, ALLOC_PD, ...
	Method Method
	attrs  []uapi.IbUverbsAttr
	data   map[uint16][]byte // inputs, and the memory of outputs
	index  map[uint16]int
}

const (
	headerSize = 24
	attrSize   = 16
	pageSize   = 4096
)

// A refusal is an errno with a description of what is wrong with the command.
type refusal struct {
	errno unix.Errno
	why   string
}

func (r *refusal) Error() string { return r.why + ": " + r.errno.Error() }

func refuse(errno unix.Errno, format string, args ...any) error {
	return &refusal{errno, fmt.Sprintf(format, args...)}
}

// decode parses a command as ib_uverbs_cmd_verbs does (drivers/infiniband/core/uverbs_ioctl.c).
func decode(c ioctl.Call, driver uint32) (*Msg, error) {
	h := c.Header()
	m := &Msg{Method: MethodOf(driver, h.ObjectId, h.MethodId), attrs: c.Attrs(), data: map[uint16][]byte{},
		index: map[uint16]int{}}
	m.Name, _, _ = strings.Cut(c.String(), "(")
	switch {
	case h.Length > pageSize || int(h.Length) != headerSize+attrSize*int(h.NumAttrs):
		return m, refuse(unix.EINVAL, "the length is %d with %d attributes", h.Length, h.NumAttrs)
	case h.Reserved1 != 0 || h.Reserved2 != 0:
		return m, refuse(unix.EPROTONOSUPPORT, "a reserved field of the header is not zero")
	case h.DriverId != driver:
		return m, refuse(unix.EINVAL, "driver id %d, the device's is %d", h.DriverId, driver)
	case Rules[m.Method] == nil:
		return m, refuse(unix.EPROTONOSUPPORT, "no method %+v: add it to rules.go", m.Method)
	}
	for i := range m.attrs {
		if err := m.take(c, i); err != nil {
			return m, err
		}
	}
	for id, r := range Rules[m.Method] {
		if _, there := m.index[id]; r.Must && !there {
			return m, refuse(unix.EINVAL, "attribute %#x is missing", id)
		}
	}
	if m.Method.Object == uapi.UVERBS_OBJECT_DEVICE && m.Method.Method == uapi.UVERBS_METHOD_INVOKE_WRITE {
		return m, m.legacy()
	}
	return m, nil
}

// Describe returns the name of a command that the kernel has accepted. If it is a method that creates or destroys an
// object, it returns the handle of the object, and whether it is a new one.
func Describe(c ioctl.Call, driver uint32) (name string, handle uint32, created bool) {
	h := c.Header()
	m := MethodOf(driver, h.ObjectId, h.MethodId)
	name, _, _ = strings.Cut(c.String(), "(")
	for _, a := range c.Attrs() {
		switch r, _ := m.rule(a.AttrId); {
		case a.AttrId == uapi.UVERBS_ATTR_WRITE_CMD && h.ObjectId == uapi.UVERBS_OBJECT_DEVICE &&
			h.MethodId == uapi.UVERBS_METHOD_INVOKE_WRITE:
			return legacies[a.Data].name, 0, false
		case r.Class == New:
			return name, uint32(a.Data), true
		case r.Class == Handle && Destroys(name):
			handle = uint32(a.Data)
		}
	}
	return name, handle, false
}

func (m *Msg) take(c ioctl.Call, i int) error {
	a := &m.attrs[i]
	r, known := m.Method.rule(a.AttrId)
	_, twice := m.index[a.AttrId]
	switch {
	case !known && a.Flags&uapi.UVERBS_ATTR_F_MANDATORY == 0:
		return nil
	case !known:
		return refuse(unix.EPROTONOSUPPORT, "unknown attribute %#x", a.AttrId)
	case twice:
		return refuse(unix.EINVAL, "attribute %#x comes twice", a.AttrId)
	case a.Flags&^(uapi.UVERBS_ATTR_F_MANDATORY|uapi.UVERBS_ATTR_F_VALID_OUTPUT) != 0:
		return refuse(unix.EINVAL, "attribute %#x has flags %#x", a.AttrId, a.Flags)
	case a.ElemId != 0 || a.Reserved != 0:
		return refuse(unix.EINVAL, "a reserved field of attribute %#x is not zero", a.AttrId)
	}
	m.index[a.AttrId] = i
	if r.Class != In && r.Class != Out {
		if a.Len != 0 {
			return refuse(unix.EINVAL, "attribute %#x is an object and has %d bytes", a.AttrId, a.Len)
		}
		return nil
	}
	n := int(a.Len)
	data := c.Memory(a.Data, n)
	if r.Class == In && n <= 8 {
		data = binary.LittleEndian.AppendUint64(nil, a.Data)[:n]
	}
	switch {
	case n < r.Min || r.Max >= 0 && n > r.Max && !r.Zeroes:
		return refuse(unix.EINVAL, "attribute %#x has %d bytes, not %d to %d", a.AttrId, n, r.Min, r.Max)
	case data == nil:
		return refuse(unix.EFAULT, "attribute %#x points outside the command", a.AttrId)
	}
	m.data[a.AttrId] = data
	return nil
}

// legacy checks the sizes of a command carried by INVOKE_WRITE.
func (m *Msg) legacy() error {
	cmd := binary.LittleEndian.Uint64(m.data[uapi.UVERBS_ATTR_WRITE_CMD])
	l, known := legacies[cmd]
	if !known {
		return refuse(unix.EPROTONOSUPPORT, "no legacy command %#x: add it to rules.go", cmd)
	}
	m.Name = l.name
	if got := len(m.data[uapi.UVERBS_ATTR_CORE_IN]); got != l.req && (!l.table || got < l.req) {
		return refuse(unix.ENOSPC, "%s has a request of %d bytes, not %d", l.name, got, l.req)
	}
	if got := len(m.data[uapi.UVERBS_ATTR_CORE_OUT]); got != l.rep {
		return refuse(unix.ENOSPC, "%s has a reply of %d bytes, not %d", l.name, got, l.rep)
	}
	return nil
}

// Uint returns an inline input.
func (m *Msg) Uint(id uint16) uint64 {
	var b [8]byte
	copy(b[:], m.data[id])
	return binary.LittleEndian.Uint64(b[:])
}

// Ref returns the handle or descriptor in an attribute.
func (m *Msg) Ref(id uint16) (uint32, bool) {
	i, ok := m.index[id]
	if !ok {
		return 0, false
	}
	return uint32(m.attrs[i].Data), true
}

// Made writes the handle or descriptor that the command created.
func (m *Msg) Made(id uint16, v int) { m.attrs[m.index[id]].Data = uint64(int64(v)) }

// Answer writes an output, if the command has it.
func (m *Msg) Answer(id uint16, b []byte) {
	i, ok := m.index[id]
	if !ok {
		return
	}
	copy(m.data[id], b)
	m.attrs[i].Flags |= uapi.UVERBS_ATTR_F_VALID_OUTPUT
}

// Table returns the data of an attribute.
func (m *Msg) Table(id uint16) []byte { return m.data[id] }

// Request returns the request of a legacy command as a struct, for Before.
func Request[T any](m *Msg) *T { return request[T](m) }

// request returns the legacy request as a struct.
func request[T any](m *Msg) *T { return &ioctl.SliceOf[T](m.data[uapi.UVERBS_ATTR_CORE_IN])[0] }

// reply writes the legacy reply.
func reply[T any](m *Msg, v T) { m.Answer(uapi.UVERBS_ATTR_CORE_OUT, ioctl.BytesOf(&v)) }

// dump renders the bytes of a command before it runs: the header, the attributes and their data.
// Addresses and descriptors of the process are omitted.
func dump(name string, c ioctl.Call) string {
	var b strings.Builder
	h := c.Header()
	fmt.Fprintf(&b, "%s\n  %x\n", name, ioctl.BytesOf(&h))
	for _, a := range c.Attrs() {
		r, _ := (Method{h.ObjectId, h.MethodId}).rule(a.AttrId)
		data := ""
		switch {
		case r.Class == FD:
			a.Data, data = 0, " fd"
		case r.Class == Out:
			a.Data, data = 0, " -> "+fmt.Sprint(a.Len)
		case r.Class == In && a.Len > 8:
			data = " " + hex.EncodeToString(c.Memory(a.Data, int(a.Len)))
			a.Data = 0
		}
		fmt.Fprintf(&b, "  %x%s\n", ioctl.BytesOf(&a), data)
	}
	return b.String()
}
