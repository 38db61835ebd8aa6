package vfiouser_test

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

const rw = 3 // readable and writable

// TestView checks that the device can access exactly the memory that the client
// has mapped.
func TestView(t *testing.T) {
	d := newToy(t, 0x1017)
	c := plug(t, d)
	fd, guest := memfd(t, 16<<12)
	c.must(vfiouser.DMAMap, dmaMap(rw, 1<<12, 1<<32, 3<<12), fd)
	c.must(vfiouser.DMAMap, dmaMap(rw, 8<<12, 0, 1<<12), fd)
	c.must(vfiouser.DMAMap, dmaMap(rw, 0, 1<<12, 1<<12))           // no memory
	c.must(vfiouser.DMAMap, dmaMap(1, 9<<12, 2<<12, 1<<12), fd)    // for reading
	c.must(vfiouser.DMAMap, dmaMap(rw, 0, 1<<64-1<<12, 1<<12), fd) // the last page
	for _, x := range []struct {
		addr uint64
		n    int
		at   int // in the file; -1: not mapped
	}{
		{1 << 32, 1, 1 << 12}, {1<<32 + 5, 100, 1<<12 + 5}, {1 << 32, 3 << 12, 1 << 12}, {1<<32 + 3<<12 - 1, 1, 4<<12 - 1},
		{1 << 32, 0, 1 << 12}, {0, 1 << 12, 8 << 12}, {1<<64 - 1, 1, 1<<12 - 1},
		{1<<32 - 1, 1, -1}, {1<<32 - 1, 2, -1}, {1 << 32, 3<<12 + 1, -1}, {1<<32 + 3<<12, 1, -1}, {1<<32 + 3<<12, 0, -1},
		{1 << 32, -1, -1}, {0, 1<<12 + 1, -1}, {1 << 12, 1, -1}, {2 << 12, 1, -1}, {1<<64 - 1, 2, -1}, {5 << 20, 1, -1},
	} {
		c.run(func() {
			b, err := d.host.View(x.addr, x.n)
			switch {
			case x.at < 0:
				if !errors.Is(err, vfiouser.ErrNotMapped) || b != nil {
					t.Errorf("%d bytes at %#x: %d, %v", x.n, x.addr, len(b), err)
				}
				return
			case err != nil || len(b) != x.n || cap(b) != x.n:
				t.Errorf("%d bytes at %#x: %d of %d, %v", x.n, x.addr, len(b), cap(b), err)
				return
			}
			for i := range b {
				guest[x.at+i] = byte(i + 1)
			}
			for i := range b {
				if b[i] != byte(i+1) {
					t.Errorf("%#x is not %#x of the file", x.addr, x.at)
					return
				}
				b[i]++
			}
			if x.n > 0 && guest[x.at+x.n-1] != b[x.n-1] {
				t.Errorf("a store to %#x is not in the file", x.addr)
			}
		})
	}
	c.must(vfiouser.DMAUnmap, dmaUnmap(0, 1<<32, 3<<12))
	c.run(func() {
		if _, err := d.host.View(1<<32, 1); !errors.Is(err, vfiouser.ErrNotMapped) {
			t.Errorf("unmapped, and still mapped: %v", err)
		}
		if _, err := d.host.View(0, 1); err != nil {
			t.Error(err)
		}
	})
	c.must(vfiouser.DMAUnmap, dmaUnmap(2, 0, 0)) // all
	c.run(func() {
		if _, err := d.host.View(0, 1); !errors.Is(err, vfiouser.ErrNotMapped) {
			t.Errorf("all unmapped, and still mapped: %v", err)
		}
	})
}

// TestMapRefused checks invalid mappings, and too many.
func TestMapRefused(t *testing.T) {
	c := plug(t, newToy(t, 0x1017))
	fd, _ := memfd(t, 4<<12)
	c.must(vfiouser.DMAMap, dmaMap(rw, 0, 4<<12, 2<<12), fd)
	for _, x := range []struct {
		errno   unix.Errno
		command vfiouser.Command
		body    []byte
		fds     []int
	}{
		{unix.EEXIST, vfiouser.DMAMap, dmaMap(rw, 0, 4<<12, 2<<12), []int{fd}},
		{unix.EEXIST, vfiouser.DMAMap, dmaMap(rw, 0, 5<<12, 1<<12), []int{fd}},
		{unix.EEXIST, vfiouser.DMAMap, dmaMap(rw, 0, 3<<12, 2<<12), []int{fd}},
		{unix.EEXIST, vfiouser.DMAMap, dmaMap(rw, 0, 0, 16<<12), nil},
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 0, 8<<12, 0), []int{fd}},
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 0, 8<<12, 5<<12), []int{fd}},     // beyond the file's end
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 4<<12, 8<<12, 1<<12), []int{fd}}, // likewise
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 1<<64-1<<12, 8<<12, 2<<12), []int{fd}},
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 1, 8<<12, 1<<12), []int{fd}},
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 0, 8<<12+1, 1<<12), []int{fd}},
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 0, 8<<12, 100), []int{fd}},
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 0, 1<<64-1<<12, 2<<12), nil}, // beyond the end of the address space
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(0, 0, 8<<12, 1<<12), []int{fd}},
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(7, 0, 8<<12, 1<<12), []int{fd}},
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 0, 8<<12, 1<<12), []int{fd, fd}},
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 0, 8<<12, 1<<12)[:31], []int{fd}},
		{unix.EINVAL, vfiouser.DMAMap, dmaMap(rw, 0, 8<<12, 1<<12), []int{eventfd(t)}}, // no file
		{unix.ENOENT, vfiouser.DMAUnmap, dmaUnmap(0, 4<<12, 1<<12), nil},
		{unix.ENOENT, vfiouser.DMAUnmap, dmaUnmap(0, 5<<12, 1<<12), nil},
		{unix.ENOENT, vfiouser.DMAUnmap, dmaUnmap(0, 0, 2<<12), nil},
		{unix.EINVAL, vfiouser.DMAUnmap, dmaUnmap(2, 4<<12, 2<<12), nil},
		{unix.EINVAL, vfiouser.DMAUnmap, dmaUnmap(1, 4<<12, 2<<12), nil},
	} {
		c.refused(x.errno, vfiouser.ErrRefused, x.command, x.body, x.fds...)
	}
	const most = 512
	for i := uint64(1); i < most; i++ {
		c.must(vfiouser.DMAMap, dmaMap(rw, 0, 1<<40+i<<12, 1<<12))
	}
	c.refused(unix.ENOSPC, vfiouser.ErrRefused, vfiouser.DMAMap, dmaMap(rw, 0, 1<<41, 1<<12))
	c.must(vfiouser.DMAUnmap, dmaUnmap(0, 1<<40+1<<12, 1<<12))
	c.must(vfiouser.DMAMap, dmaMap(rw, 0, 1<<41, 1<<12))
}

// TestLateDescriptor checks that a descriptor belongs to its message, with
// whichever of its bytes it arrives.
func TestLateDescriptor(t *testing.T) {
	message := request(1, vfiouser.DMAMap, 0, dmaMap(rw, 0, 1<<20, 1<<12))
	for _, at := range []int{0, 1, 15, 16, 17, len(message) - 1} {
		d := newToy(t, 0x1017)
		c := plug(t, d)
		fd, guest := memfd(t, 1<<12)
		c.send(message[:at])
		c.send(message[at:], fd)
		if b := c.receive(); le.Uint32(b[12:]) != 0 {
			t.Errorf("with byte %d: % x", at, b)
		}
		c.run(func() {
			b, err := d.host.View(1<<20, 8)
			if err != nil {
				t.Errorf("with byte %d: %v", at, err)
				return
			}
			copy(b, "a device")
		})
		if !bytes.HasPrefix(guest, []byte("a device")) {
			t.Errorf("with byte %d: other memory", at)
		}
	}
	// Two messages in one write: the descriptor belongs to the first.
	c := plug(t, newToy(t, 0x1017))
	fd, _ := memfd(t, 1<<12)
	c.send(append(message, request(2, vfiouser.DeviceReset, 0, nil)...), fd)
	for range 2 {
		if b := c.receive(); le.Uint32(b[12:]) != 0 {
			t.Errorf("% x", b)
		}
	}
}
