package ioctl_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// kernelFunc runs commands by calling a function.
type kernelFunc func(ioctl.Call) error

func (f kernelFunc) Ioctl(c ioctl.Call) error { return f(c) }
func (f kernelFunc) Write([]byte) error       { return unix.EACCES }

// ordinary returns a device over an ordinary file, on which commands fail with ENOTTY.
func ordinary(t testing.TB) *ioctl.Device {
	t.Helper()
	fd, err := unix.MemfdCreate("node", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	d := ioctl.New(fd, "uverbs9", 14)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func fake(t testing.TB, k ioctl.Kernel) *ioctl.Device {
	t.Helper()
	fd, err := unix.MemfdCreate("node", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	d := ioctl.NewFake(fd, "uverbs0", 14, k)
	t.Cleanup(func() { d.Close() })
	return d
}

// do runs a command with the attributes that build adds, and returns what the kernel saw.
func do(t *testing.T, build func(*ioctl.Cmd)) (attrs []uapi.IbUverbsAttr, data [][]byte) {
	t.Helper()
	d := fake(t, kernelFunc(func(c ioctl.Call) error {
		for _, a := range c.Attrs() {
			attrs = append(attrs, a)
			data = append(data, bytes.Clone(c.Memory(a.Data, int(a.Len))))
		}
		return nil
	}))
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE)
	build(c)
	if err := d.Do(c); err != nil {
		t.Fatal(err)
	}
	return attrs, data
}

// Data of up to 8 bytes is inline in the attribute; more is passed by address.
func TestInlineBoundary(t *testing.T) {
	in := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	attrs, data := do(t, func(c *ioctl.Cmd) {
		c.In(1, in[:1])
		c.In(2, in[:8])
		c.In(3, in)
		c.In(4, nil)
		c.Out(5, 4)
	})
	for i, want := range []struct {
		n    uint16
		data uint64
	}{{1, 1}, {8, 0x0807060504030201}} {
		if attrs[i].Len != want.n || attrs[i].Data != want.data {
			t.Errorf("attribute %d: %d bytes, data %#x; want %d, %#x", i+1, attrs[i].Len, attrs[i].Data, want.n, want.data)
		}
	}
	if attrs[2].Len != 9 || !bytes.Equal(data[2], in) {
		t.Errorf("9 bytes: len %d, at its address lies %x", attrs[2].Len, data[2])
	}
	if attrs[2].Data%8 != 0 || attrs[4].Data%8 != 0 {
		t.Errorf("data at %#x and %#x is not aligned", attrs[2].Data, attrs[4].Data)
	}
	if attrs[3].Len != 0 || attrs[3].Data != 0 {
		t.Errorf("an empty input is %+v", attrs[3])
	}
	if attrs[4].Len != 4 || data[4] == nil {
		t.Errorf("a 4-byte output is not by address: %+v", attrs[4])
	}
	for _, a := range attrs {
		if a.Flags != uapi.UVERBS_ATTR_F_MANDATORY || a.ElemId != 0 || a.Reserved != 0 {
			t.Errorf("attribute %d: %+v", a.AttrId, a)
		}
	}
}

func TestScalars(t *testing.T) {
	attrs, _ := do(t, func(c *ioctl.Cmd) {
		c.Uint64(1, 1<<63+2)
		c.Uint32(2, 0xffffffff)
		c.Handle(3, 0xfffffffe)
		c.FD(4, -1)
		c.NewHandle(5)
		c.FD(6, 7)
		c.Optional()
	})
	type flat struct {
		id, n, flags uint16
		data         uint64
	}
	want := []flat{{1, 8, 1, 1<<63 + 2}, {2, 4, 1, 0xffffffff}, {3, 0, 1, 0xfffffffe}, {4, 0, 1, ^uint64(0)},
		{5, 0, 1, 0}, {6, 0, 0, 7}}
	for i, a := range attrs {
		if got := (flat{a.AttrId, a.Len, a.Flags, a.Data}); got != want[i] {
			t.Errorf("attribute %d is %+v, want %+v", i, got, want[i])
		}
	}
	if len(attrs) != len(want) {
		t.Errorf("%d attributes, want %d", len(attrs), len(want))
	}
}

// A reused Cmd has no data of the previous command.
func TestReuseIsClean(t *testing.T) {
	c := new(ioctl.Cmd)
	c.Start(1, 2)
	b := c.Out(2, 64)
	for i := range b {
		b[i] = 0xff
	}
	c.Start(1, 3)
	if got := c.Out(1, ioctl.ArenaSize); !bytes.Equal(got, make([]byte, ioctl.ArenaSize)) {
		t.Error("an output holds bytes of an earlier command")
	}
	if c.Made(9) != 0 {
		t.Error("Made of an attribute that is not there is not 0")
	}
}

// If something does not fit, Do returns an error that names the first such attribute, and the
// command is not issued.
func TestOverflow(t *testing.T) {
	d := fake(t, kernelFunc(func(ioctl.Call) error {
		t.Error("the command was issued")
		return nil
	}))
	full := func(c *ioctl.Cmd) {
		for i := range ioctl.MaxAttrs {
			c.Uint32(uint16(i), 1)
		}
	}
	for name, build := range map[string]func(*ioctl.Cmd){
		"2049 bytes do not fit": func(c *ioctl.Cmd) { c.Out(1, ioctl.ArenaSize+1) },
		"9 bytes do not fit": func(c *ioctl.Cmd) {
			c.Out(1, ioctl.ArenaSize-8)
			c.In(2, make([]byte, 9))
			c.Out(3, ioctl.ArenaSize)
		},
		"no room for attribute 0x77 of 4 bytes": func(c *ioctl.Cmd) {
			full(c)
			c.Uint32(0x77, 1)
		},
		"no room for attribute 0x5 of 65536 bytes": func(c *ioctl.Cmd) { c.OutRef(5, make([]byte, 1<<16)) },
		"4096 bytes do not fit": func(c *ioctl.Cmd) {
			*ioctl.OutOf[[4096]byte](c, 1) = [4096]byte{1} // the memory is still writable
		},
	} {
		c := ioctl.Get()
		c.Start(3, 0)
		build(c)
		if err := d.Do(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q, got %v", name, err)
		}
		c.Start(3, 0)
		c.Put()
	}
	fits := ioctl.Get()
	defer fits.Put()
	fits.Start(3, 0)
	full(fits)
	if err := ordinary(t).Do(fits); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("%d attributes: %v, want ENOTTY from the kernel", ioctl.MaxAttrs, err)
	}
}

// The header describes the command, and the driver's number is that of the device.
func TestHeader(t *testing.T) {
	d := fake(t, kernelFunc(func(c ioctl.Call) error {
		want := uapi.IbUverbsIoctlHdr{Length: 24 + 2*16, ObjectId: 3, MethodId: 1, NumAttrs: 2, DriverId: 14}
		if got := c.Header(); got != want {
			t.Errorf("header %+v, want %+v", got, want)
		}
		return unix.ENOSPC
	}))
	c := ioctl.Get()
	defer c.Put()
	c.Start(3, 1)
	c.Handle(0, 1)
	c.Out(1, 8)
	if err := d.Do(c); err != unix.ENOSPC {
		t.Errorf("Do returns %v, want the bare errno", err)
	}
}

func build(c *ioctl.Cmd) {
	c.Start(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY)
	c.Handle(uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE, 3)
	c.Out(uapi.UVERBS_ATTR_DESTROY_CQ_RESP, 8)
}

func TestAllocations(t *testing.T) {
	quiet := fake(t, kernelFunc(func(ioctl.Call) error { return nil }))
	for name, d := range map[string]*ioctl.Device{"fake": quiet, "descriptor": ordinary(t)} {
		if n := testing.AllocsPerRun(100, func() {
			c := ioctl.Get()
			build(c)
			_ = d.Do(c)
			c.Put()
		}); n != 0 {
			t.Errorf("%s: a command allocates %v times", name, n)
		}
		if n := testing.AllocsPerRun(100, func() {
			c := ioctl.Get()
			resp := ioctl.Write[uapi.IbUverbsQueryQpResp](c, uapi.IB_USER_VERBS_CMD_QUERY_QP, &uapi.IbUverbsQueryQp{QpHandle: 7})
			_ = d.Do(c)
			_ = resp.QpState
			c.Put()
		}); n != 0 {
			t.Errorf("%s: a legacy command allocates %v times", name, n)
		}
	}
}

func BenchmarkDo(b *testing.B) {
	d := ordinary(b)
	b.ReportAllocs()
	for b.Loop() {
		c := ioctl.Get()
		build(c)
		_ = d.Do(c)
		c.Put()
	}
}
