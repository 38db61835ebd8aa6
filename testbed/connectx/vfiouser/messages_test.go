package vfiouser_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

// golden is a conversation: messages to the server, and its replies.
var golden = []struct{ name, to, back string }{
	{"version", // 0.1, {"capabilities":{"max_msg_fds":1}}
		"0100 0100 37000000 00000000 00000000 0000 0100" + hex.EncodeToString([]byte(`{"capabilities":{"max_msg_fds":1}}`)) +
			"00",
		"0100 0100 76000000 01000000 00000000 0000 0100" + hex.EncodeToString([]byte(
			`{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576,"max_dma_maps":512,"pgsizes":4096}}`)) + "00"},
	{"device info", // a PCI device that can be reset, 9 regions, 5 kinds of interrupts
		"0200 0400 20000000 00000000 00000000 10000000 00000000 00000000 00000000",
		"0200 0400 20000000 01000000 00000000 10000000 03000000 09000000 05000000"},
	{"BAR0", // 32 MiB, read-write
		"0300 0500 30000000 00000000 00000000 20000000 00000000 00000000 00000000 0000000000000000 0000000000000000",
		"0300 0500 30000000 01000000 00000000 20000000 03000000 00000000 00000000 0000000200000000 0000000000000000"},
	{"ROM", // 512 bytes, read-only
		"0400 0500 30000000 00000000 00000000 20000000 00000000 06000000 00000000 0000000000000000 0000000000000000",
		"0400 0500 30000000 01000000 00000000 20000000 01000000 06000000 00000000 0002000000000000 0000000000000000"},
	{"no BAR1",
		"0500 0500 30000000 00000000 00000000 20000000 00000000 01000000 00000000 0000000000000000 0000000000000000",
		"0500 0500 30000000 01000000 00000000 20000000 00000000 01000000 00000000 0000000000000000 0000000000000000"},
	{"MSI-X", // 4 vectors with eventfds
		"0600 0700 20000000 00000000 00000000 10000000 00000000 02000000 00000000",
		"0600 0700 20000000 01000000 00000000 10000000 01000000 02000000 04000000"},
	{"no INTx",
		"0700 0700 20000000 00000000 00000000 10000000 00000000 00000000 00000000",
		"0700 0700 20000000 01000000 00000000 10000000 00000000 00000000 00000000"},
	{"write", // 4 bytes at 0x10 of BAR0
		"0800 0a00 24000000 00000000 00000000 1000000000000000 00000000 04000000 01020304",
		"0800 0a00 20000000 01000000 00000000 1000000000000000 00000000 04000000"},
	{"posted write", // 2 bytes at 0x14
		"0900 0a00 22000000 10000000 00000000 1400000000000000 00000000 02000000 0506", ""},
	{"writes", // 1 byte at 0x16, 8 bytes at 0x18
		"0a00 0f00 48000000 00000000 00000000 0200000000000000" +
			"1600000000000000 00000000 01000000 07ffffffffffffff 1800000000000000 00000000 08000000 1112131415161718",
		"0a00 0f00 18000000 01000000 00000000 0200000000000000"},
	{"read", // 16 bytes at 0x10
		"0b00 0900 20000000 00000000 00000000 1000000000000000 00000000 10000000",
		"0b00 0900 30000000 01000000 00000000 1000000000000000 00000000 10000000 01020304050607001112131415161718"},
	{"configuration", // vendor and device
		"0c00 0900 20000000 00000000 00000000 0000000000000000 07000000 04000000",
		"0c00 0900 24000000 01000000 00000000 0000000000000000 07000000 04000000 b3151710"},
	{"map", // no memory: 4 KiB at 0xfee00000
		"0d00 0200 30000000 00000000 00000000 20000000 03000000 0000000000000000 0000e0fe00000000 0010000000000000",
		"0d00 0200 10000000 01000000 00000000"},
	{"map again", // EEXIST
		"0e00 0200 30000000 00000000 00000000 20000000 03000000 0000000000000000 0000e0fe00000000 0010000000000000",
		"0e00 0200 10000000 21000000 11000000"},
	{"unmap",
		"0f00 0300 28000000 00000000 00000000 18000000 00000000 0000e0fe00000000 0010000000000000",
		"0f00 0300 28000000 01000000 00000000 18000000 00000000 0000e0fe00000000 0010000000000000"},
	{"no interrupts",
		"1000 0800 24000000 00000000 00000000 14000000 21000000 02000000 00000000 00000000",
		"1000 0800 10000000 01000000 00000000"},
	{"reset",
		"1100 0d00 10000000 00000000 00000000",
		"1100 0d00 10000000 01000000 00000000"},
	{"migration", // ENOTSUP
		"1200 1000 18000000 00000000 00000000 08000000 01000100",
		"1200 1000 10000000 21000000 5f000000"},
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGolden checks that each message gets the reply of the protocol's
// specification, byte by byte, however it is split.
func TestGolden(t *testing.T) {
	for _, piece := range []int{1 << 20, 1, 7, 17} {
		d := newToy(t, 0x1017)
		c := connect(t, d)
		for _, m := range golden {
			for b := unhex(t, m.to); len(b) > 0; {
				n := min(piece, len(b))
				c.send(b[:n])
				b = b[n:]
			}
			if m.back == "" {
				continue
			}
			if got, want := c.receive(), unhex(t, m.back); !bytes.Equal(got, want) {
				t.Errorf("pieces of %d: %s got the reply\n% x, want\n% x", piece, m.name, got, want)
			}
		}
		c.run(func() {
			if d.plugged != 1 || d.resets != 1 {
				t.Errorf("plugged %d times, reset %d times", d.plugged, d.resets)
			}
		})
	}
}

// TestRefused checks that an invalid message gets an errno as its reply, and
// that the connection remains usable.
func TestRefused(t *testing.T) {
	const cfg = vfiouser.Config
	fd, _ := memfd(t, 8192)
	inval := unix.EINVAL
	c := plug(t, newToy(t, 0x1017))
	for _, x := range []struct {
		errno   unix.Errno
		command vfiouser.Command
		body    []byte
		fds     []int
	}{
		{inval, vfiouser.Version, []byte{0, 0, 1, 0}, nil}, // a second time
		{inval, vfiouser.Version, []byte{0, 0, 1}, nil},
		{inval, vfiouser.GetInfo, numbers(15, 0, 0, 0), nil},
		{inval, vfiouser.GetInfo, numbers(16, 0, 0), nil},
		{inval, vfiouser.GetInfo, numbers(16, 0, 0, 0, 0), nil},
		{inval, vfiouser.GetInfo, numbers(16, 0, 0, 0), []int{fd}},
		{inval, vfiouser.RegionInfo, numbers(32, 0, 9, 0, 0, 0, 0, 0), nil},
		{inval, vfiouser.RegionInfo, numbers(31, 0, 0, 0, 0, 0, 0, 0), nil},
		{inval, vfiouser.IRQInfo, numbers(16, 0, 5, 0), nil},
		{inval, vfiouser.IRQInfo, numbers(8, 0, 0, 0), nil},
		{inval, vfiouser.RegionRead, access(0, 9, 4), nil},
		{inval, vfiouser.RegionRead, access(0, 1, 4), nil}, // no such BAR
		{inval, vfiouser.RegionRead, access(4094, cfg, 4), nil},
		{inval, vfiouser.RegionRead, access(1<<64-2, cfg, 4), nil},
		{inval, vfiouser.RegionRead, access(0, 0, 1<<20+1), nil},
		{inval, vfiouser.RegionRead, access(0, 0, 4, 1), nil},
		{inval, vfiouser.RegionWrite, access(0, 0, 4, 1, 2, 3), nil},
		{inval, vfiouser.RegionWrite, access(0, 0, 4, 1, 2, 3, 4, 5), nil},
		{inval, vfiouser.RegionWrite, access(4096, cfg, 1, 1), nil},
		{unix.EACCES, vfiouser.RegionWrite, access(0, vfiouser.ROM, 1, 1), nil},
		{inval, vfiouser.RegionWrites, le.AppendUint64(nil, 1), nil},
		{inval, vfiouser.RegionWrites, append(le.AppendUint64(nil, 1), access(0, 0, 9, make([]byte, 8)...)...), nil},
		{inval, vfiouser.RegionWrites, append(le.AppendUint64(nil, 1<<61), access(0, 0, 4, make([]byte, 8)...)...), nil},
		{inval, vfiouser.RegionWrites, append(le.AppendUint64(nil, 1), access(toySize, 0, 4, make([]byte, 8)...)...), nil},
		{inval, vfiouser.DeviceReset, []byte{0}, nil},
		{unix.ENOTSUP, vfiouser.RegionIOFDs, numbers(16, 0, 0, 0), nil},
		{unix.ENOTSUP, vfiouser.DMARead, make([]byte, 16), nil},
		{unix.ENOTSUP, 0, nil, nil},
		{unix.ENOTSUP, 999, nil, nil},
	} {
		c.refused(x.errno, vfiouser.ErrRefused, x.command, x.body, x.fds...)
	}
	c.send(request(1, vfiouser.GetInfo, 0x40, numbers(16, 0, 0, 0)))
	if b := c.receive(); unix.Errno(le.Uint32(b[12:])) != inval {
		t.Errorf("an unknown flag: % x", b)
	}
}

// TestVersion checks that a failed negotiation ends the connection.
func TestVersion(t *testing.T) {
	for name, first := range map[string][]byte{
		"major 1":    request(1, vfiouser.Version, 0, []byte{1, 0, 0, 0}),
		"no NUL":     request(1, vfiouser.Version, 0, []byte("\x00\x00\x00\x00{}")),
		"NUL inside": request(1, vfiouser.Version, 0, []byte("\x00\x00\x00\x00{\x00}\x00")),
		"no JSON":    request(1, vfiouser.Version, 0, []byte("\x00\x00\x00\x00{\x00")),
		"not a number": request(1, vfiouser.Version, 0,
			[]byte("\x00\x00\x00\x00{\"capabilities\":{\"pgsizes\":\"x\"}}\x00")),
		"no version":    request(1, vfiouser.GetInfo, 0, numbers(16, 0, 0, 0)),
		"reset at once": request(1, vfiouser.DeviceReset, 0, nil),
	} {
		d := newToy(t, 0x1017)
		c := connect(t, d)
		c.send(first)
		if err := c.end(); !errors.Is(err, vfiouser.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if d.plugged != 0 {
			t.Errorf("%s: the device was plugged in", name)
		}
	}
	c := connect(t, newToy(t, 0x1017))
	b := c.must(vfiouser.Version, []byte{0, 0, 0, 0})
	if b[2] != 0 || !bytes.HasPrefix(b[4:], []byte("{")) || b[len(b)-1] != 0 {
		t.Errorf("minor version 0 without capabilities: %q", b)
	}
	c = connect(t, newToy(t, 0x1017))
	b = c.must(vfiouser.Version, []byte("\x00\x00\x09\x00{\"capabilities\":{\"write_multiple\":true,\"other\":{}}}\x00"))
	if b[2] != 1 || !strings.Contains(string(b), `"write_multiple":true`) {
		t.Errorf("minor version 9: %q", b)
	}
}

// TestMalformed checks that a malformed stream ends the connection and leaves
// nothing behind.
func TestMalformed(t *testing.T) {
	fd, _ := memfd(t, 4096)
	nine := []int{fd, fd, fd, fd, fd, fd, fd, fd, fd}
	size := func(n uint32) []byte {
		b := request(1, vfiouser.GetInfo, 0, nil)
		le.PutUint32(b[4:], n)
		return b
	}
	for name, x := range map[string]struct {
		b    []byte
		fds  []int
		kind error
	}{
		"no header":           {size(15), nil, vfiouser.ErrMalformed},
		"too large":           {size(1<<20 + 33), nil, vfiouser.ErrMalformed},
		"huge":                {size(1<<32 - 1), nil, vfiouser.ErrMalformed},
		"a reply":             {request(1, vfiouser.GetInfo, 1, nil), nil, vfiouser.ErrMalformed},
		"another type":        {request(1, vfiouser.GetInfo, 15, nil), nil, vfiouser.ErrMalformed},
		"too many fds":        {request(1, vfiouser.DMAMap, 0, nil), nine, vfiouser.ErrMalformed},
		"far too many fds":    {request(1, vfiouser.DMAMap, 0, nil), slices.Repeat(nine, 20), vfiouser.ErrMalformed},
		"ends in the header":  {size(32)[:9], []int{fd}, vfiouser.ErrLost},
		"ends in the message": {size(32), []int{fd}, vfiouser.ErrLost},
	} {
		c := plug(t, newToy(t, 0x1017))
		c.send(x.b, x.fds...)
		if x.kind == vfiouser.ErrLost {
			c.conn.Close()
		}
		if err := c.end(); !errors.Is(err, x.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFailingDevice checks that an error or a panic of the device fails the
// message.
func TestFailingDevice(t *testing.T) {
	c := plug(t, newToy(t, 0x1017))
	c.refused(unix.EIO, errToy, vfiouser.RegionRead, access(toyFail, 0, 4))
	c.refused(unix.EIO, vfiouser.ErrDevice, vfiouser.RegionWrite, access(toyFail, 0, 1, 0))
	c.refused(unix.EIO, vfiouser.ErrPanic, vfiouser.RegionRead, access(toyPanic, 0, 4))
	c.send(request(1, vfiouser.RegionWrite, 0x10, access(toyPanic, 0, 1, 0)))
	c.send(request(1, vfiouser.RegionWrite, 0x10, access(toyFail, 0, 1, 0)))
	c.ping()
	if r := c.reported(); len(r) != 2 || !errors.Is(r[0], vfiouser.ErrPanic) || !errors.Is(r[1], vfiouser.ErrDevice) ||
		!strings.Contains(r[0].Error(), "a toy's mistake") || !strings.Contains(r[0].Error(), "toy_test.go") {
		t.Errorf("of posted writes, reports %v", r)
	}
}
