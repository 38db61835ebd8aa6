package ioctl_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

var times = regexp.MustCompile(`<[0-9.]+[nµm]?s>`)

func TestTrace(t *testing.T) {
	var out bytes.Buffer
	defer ioctl.Trace(true, &out)()
	k := ioctltest.NewKernel(14)
	d := k.Open(t, "uverbs0")
	defer d.Close()
	c := ioctl.Get()
	defer c.Put()
	run := func(build func()) {
		build()
		_ = d.Do(c)
	}
	run(func() {
		c.Start(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE)
		c.NewHandle(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE)
		c.Uint32(uapi.UVERBS_ATTR_CREATE_CQ_CQE, 64)
		c.Uint64(uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 7)
		c.Uint32(uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 1)
		c.Out(uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4)
		c.UHW([]byte{1, 2, 3}, 0)
	})
	run(func() {
		c.Start(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE)
		c.NewHandle(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE)
		c.Uint32(uapi.UVERBS_ATTR_CREATE_CQ_CQE, 64)
		c.Uint64(uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8)
		c.FD(uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, -1)
		c.Uint32(uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0)
		c.Out(uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4)
	})
	run(func() { ioctl.WriteEx[uapi.IbUverbsExQueryDeviceResp](c, 45, &uapi.IbUverbsExQueryDevice{}) })
	run(func() {
		ioctl.WriteEx[uapi.IbUverbsExQueryDeviceResp](c, uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
			&uapi.IbUverbsExQueryDevice{})
	})
	run(func() {
		ioctl.Write[uapi.IbUverbsAllocPdResp](c, uapi.IB_USER_VERBS_CMD_ALLOC_PD, &uapi.IbUverbsAllocPd{})
	})
	run(func() { c.Start(99, 98); c.Handle(1, 5) })
	run(func() {
		c.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_TABLE)
		c.Uint64(uapi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, 32)
		c.OutRef(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, make([]byte, 4096))
		c.Out(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8)
	})
	run(func() { c.Start(1, 1); c.Out(1, 1<<16-1) }) // rejected before it is issued
	ioctltest.Golden(t, "trace", times.ReplaceAllString(out.String(), "<time>"))
}

// Without GOVERBS_TRACE nothing is printed.
func TestNoTrace(t *testing.T) {
	var out bytes.Buffer
	defer ioctl.Trace(false, &out)()
	d := fake(t, kernelFunc(func(ioctl.Call) error { return unix.EIO }))
	c := ioctl.Get()
	defer c.Put()
	build(c)
	_ = d.Do(c)
	if out.Len() != 0 {
		t.Errorf("printed %q", out.String())
	}
}

// TestSchema compares the names that the trace prints with a list that was checked against the kernel's headers.
func TestSchema(t *testing.T) {
	var lines []string
	for _, e := range ioctl.Schema() {
		lines = append(lines, fmt.Sprintf("%#04x %#04x %#04x %s\n", e.Object, e.Method, e.Attr, e.Name))
	}
	slices.Sort(lines)
	ioctltest.Golden(t, "schema", strings.Join(lines, ""))
}

// The trace has a name for each attribute in the fake kernel's specifications, and for no other. Names are in the order
// of the ids. What a name begins with says what the kernel does with the attribute.
func TestSchemaAgreesWithKernel(t *testing.T) {
	seen := map[ioctltest.Method]int{}
	for _, e := range ioctl.Schema() {
		m := ioctltest.Method{Object: e.Object, Method: e.Method}
		seen[m]++
		r, ok := ioctltest.Rules[m][e.Attr]
		_, name, _ := strings.Cut(e.Name, " ")
		isObject := r.Class == ioctltest.Handle || r.Class == ioctltest.New
		switch {
		case !ok:
			t.Errorf("%s is in schema.go: add the kernel's specification to ioctltest/rules.go", e.Name)
		case name == "HANDLE" && !isObject, strings.HasPrefix(name, "RESP") && r.Class != ioctltest.Out,
			isObject && !slices.Contains(objects, name):
			t.Errorf("%s has class %d in ioctltest/rules.go", e.Name, r.Class)
		}
	}
	for m, rules := range ioctltest.Rules {
		if len(rules) != seen[m] {
			t.Errorf("%+v: %d attributes in schema.go, %d in ioctltest/rules.go", m, seen[m], len(rules))
		}
	}
}

// objects are the names of attributes that are objects.
var objects = strings.Fields("HANDLE PD XRCD CQ SRQ SEND_CQ RECV_CQ IND_TABLE DM")

// The fake kernel rejects what Linux rejects, with the same errno.
func TestKernelIsStrict(t *testing.T) {
	destroy := func(c *ioctl.Cmd) { c.Start(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY) }
	allocate := func(c *ioctl.Cmd, in, out int) {
		c.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE)
		c.Uint64(uapi.UVERBS_ATTR_WRITE_CMD, uapi.IB_USER_VERBS_CMD_ALLOC_PD)
		c.In(uapi.UVERBS_ATTR_CORE_IN, make([]byte, in))
		c.Out(uapi.UVERBS_ATTR_CORE_OUT, out)
	}
	for name, tc := range map[string]struct {
		errno unix.Errno
		build func(*ioctl.Cmd)
	}{
		"good":              {0, func(c *ioctl.Cmd) { allocate(c, 8, 4) }},
		"short request":     {unix.ENOSPC, func(c *ioctl.Cmd) { allocate(c, 4, 4) }},
		"short reply":       {unix.ENOSPC, func(c *ioctl.Cmd) { allocate(c, 8, 3) }},
		"missing":           {unix.EINVAL, destroy},
		"handle with bytes": {unix.EINVAL, func(c *ioctl.Cmd) { destroy(c); c.Uint32(0, 1) }},
		"twice":             {unix.EINVAL, func(c *ioctl.Cmd) { destroy(c); c.Handle(0, 0); c.Handle(0, 0) }},
		"unknown":           {unix.EPROTONOSUPPORT, func(c *ioctl.Cmd) { destroy(c); c.Handle(0, 0); c.Handle(9, 0) }},
		"unknown, optional": {0, func(c *ioctl.Cmd) { destroy(c); c.Handle(0, 0); c.Handle(9, 0); c.Optional() }},
		"no such object":    {unix.ENOENT, func(c *ioctl.Cmd) { destroy(c); c.Handle(0, 77) }},
		"no such method":    {unix.EPROTONOSUPPORT, func(c *ioctl.Cmd) { c.Start(77, 0) }},
		"no such command": {unix.EPROTONOSUPPORT, func(c *ioctl.Cmd) {
			c.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE)
			c.Uint64(uapi.UVERBS_ATTR_WRITE_CMD, 0x77)
		}},
		"short constant": {unix.EINVAL, func(c *ioctl.Cmd) {
			c.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT)
			c.Uint32(uapi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1)
			c.Out(uapi.UVERBS_ATTR_QUERY_PORT_RESP, 48)
		}},
	} {
		k := ioctltest.NewKernel(14)
		d := k.Open(t, "uverbs0")
		c := ioctl.Get()
		allocate(c, 8, 4)
		if err := d.Do(c); err != nil { // PD 0
			t.Fatal(err)
		}
		tc.build(c)
		err := d.Do(c)
		if tc.errno == 0 && err != nil || tc.errno != 0 && err != tc.errno {
			t.Errorf("%s: %v, want %v", name, err, tc.errno)
		}
		c.Put()
		d.Close()
	}
}

// A command for another driver than the device's is rejected.
func TestKernelChecksDriver(t *testing.T) {
	k := ioctltest.NewKernel(14)
	d := k.Open(t, "uverbs0")
	defer d.Close()
	k.Driver = 15
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC)
	c.NewHandle(0)
	if err := d.Do(c); err != unix.EINVAL {
		t.Error(err)
	}
	if live := k.Live(); len(live) != 0 {
		t.Error(strings.Join(live, ", "))
	}
}
