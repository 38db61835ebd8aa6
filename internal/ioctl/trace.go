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
		trace(d.name, before, c, err, time.Since(start))
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
		printTrace(d.name, fmt.Sprintf("write(%s, %x)", writeName(cmd), frame), err, "", time.Since(start))
	}
	return err
}

// trace prints one command as a line: node, method, inputs, result, outputs and time.
func trace(node, inputs string, c *Cmd, err error, took time.Duration) {
	outputs := ""
	if err == nil {
		outputs = c.outputs()
	}
	printTrace(node, inputs, err, outputs, took)
}

func printTrace(node, inputs string, err error, outputs string, took time.Duration) {
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
	m, known := schema[methodKey{c.hdr.ObjectId, c.hdr.MethodId}]
	name := m.name
	if !known {
		name = fmt.Sprintf("object %d method %d", c.hdr.ObjectId, c.hdr.MethodId)
	}
	var parts []string
	for i := range c.attrs[:c.n] {
		if s := c.input(m, &c.attrs[i]); s != "" {
			parts = append(parts, s)
		}
	}
	return name + "(" + strings.Join(parts, ", ") + ")"
}

func (c *Cmd) input(m method, a *uapi.IbUverbsAttr) string {
	def := m.attr(a.AttrId)
	switch def.class {
	case classOut:
		return ""
	case classNew, classNewFD:
		return def.name + "=new"
	case classWriteCmd:
		return writeName(a.Data)
	case classHandle, classConst:
		return fmt.Sprintf("%s=%d", def.name, a.Data)
	case classFD:
		return fmt.Sprintf("%s=%d", def.name, int64(a.Data))
	}
	if a.Len <= 8 {
		return fmt.Sprintf("%s=%#x", def.name, a.Data)
	}
	return def.name + "=" + c.dump(a)
}

func (c *Cmd) outputs() string {
	m := schema[methodKey{c.hdr.ObjectId, c.hdr.MethodId}]
	var b strings.Builder
	for i := range c.attrs[:c.n] {
		a := &c.attrs[i]
		switch def := m.attr(a.AttrId); def.class {
		case classOut:
			fmt.Fprintf(&b, " %s=%s", def.name, c.dump(a))
		case classNew, classNewFD:
			fmt.Fprintf(&b, " %s=%d", def.name, a.Data)
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
