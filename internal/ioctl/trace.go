package ioctl

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// tracing is set when the process starts, so that a command without a trace costs only one
// predictable branch.
var tracing = os.Getenv("GOVERBS_TRACE") == "1"

var (
	traceMu sync.Mutex
	traceTo io.Writer = os.Stderr
)

// watch runs a command that is traced or handled by a fake kernel.
func (d *Device) watch(c *Cmd) error {
	before := ""
	if tracing {
		before = c.describe()
	}
	start := time.Now()
	var err error
	if d.kernel != nil {
		err = d.kernel.Ioctl(Call{c})
	} else {
		err = d.issue(c)
	}
	if tracing {
		took, outputs := time.Since(start), ""
		if err == nil {
			outputs = c.outputs()
		}
		trace(d.name, before, err, outputs, took)
	}
	return err
}

// watchWrite is watch for a command issued with write(2).
func (d *Device) watchWrite(frame []byte) error {
	start := time.Now()
	var err error
	if d.kernel != nil {
		err = d.kernel.Write(frame)
	} else {
		_, err = unix.Write(d.fd, frame)
	}
	if tracing {
		cmd := uint64(binary.LittleEndian.Uint32(frame))
		trace(d.name, fmt.Sprintf("write(%s, %x)", writeName(cmd), frame), err, "", time.Since(start))
	}
	return err
}

// trace prints one command as a line: node, method, inputs, result, outputs and time.
func trace(node, inputs string, err error, outputs string, took time.Duration) {
	result := "0"
	if errno, ok := err.(unix.Errno); ok {
		result = "-1 " + unix.ErrnoName(errno)
	} else if err != nil {
		result = err.Error()
	}
	traceMu.Lock()
	defer traceMu.Unlock()
	fmt.Fprintf(traceTo, "%s %s = %s%s <%v>\n", node, inputs, result, outputs, took.Round(time.Microsecond))
}

// describe returns the method and its inputs.
func (c *Cmd) describe() string {
	m, known := schema[keyOf(&c.hdr)]
	if !known {
		m.name = fmt.Sprintf("object %d method %d", c.hdr.ObjectId, c.hdr.MethodId)
	}
	var parts []string
	for i := range c.attrs[:c.n] {
		a, name := &c.attrs[i], m.attr(c.attrs[i].AttrId)
		switch as := c.classes[i]; {
		case as == classOut:
		case as == classNew:
			parts = append(parts, name+"=new")
		case as == classFD:
			parts = append(parts, fmt.Sprintf("%s=%d", name, int64(a.Data)))
		case m.name == invokeWrite && a.AttrId == uapi.UVERBS_ATTR_WRITE_CMD:
			parts = append(parts, writeName(a.Data))
		case as == classNumber && a.Data>>32 == 0: // others are addresses
			parts = append(parts, fmt.Sprintf("%s=%d", name, a.Data))
		case a.Len <= 8:
			parts = append(parts, fmt.Sprintf("%s=%#x", name, a.Data))
		default:
			parts = append(parts, name+"="+c.dump(a))
		}
	}
	return m.name + "(" + strings.Join(parts, ", ") + ")"
}

// outputs returns what the kernel has written.
func (c *Cmd) outputs() string {
	m := schema[keyOf(&c.hdr)]
	var b strings.Builder
	for i := range c.attrs[:c.n] {
		a := &c.attrs[i]
		switch c.classes[i] {
		case classOut:
			fmt.Fprintf(&b, " %s=%s", m.attr(a.AttrId), c.dump(a))
		case classNew:
			fmt.Fprintf(&b, " %s=%d", m.attr(a.AttrId), a.Data)
		}
	}
	return b.String()
}

// dump returns the first bytes of an attribute's data in hex, if the data is in the arena.
func (c *Cmd) dump(a *uapi.IbUverbsAttr) string {
	const most = 64
	all := wordBytes(c.arena[:])
	off := a.Data - address(all)
	if off >= uint64(len(all)) || uint64(a.Len) > uint64(len(all))-off {
		return fmt.Sprintf("[%d bytes]", a.Len)
	}
	b := all[off:][:a.Len]
	if len(b) > most {
		return hex.EncodeToString(b[:most]) + fmt.Sprintf("…[%d]", len(b))
	}
	return hex.EncodeToString(b)
}
