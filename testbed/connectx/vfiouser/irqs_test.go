package vfiouser_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

// The flags of DEVICE_SET_IRQS.
const (
	none, boolean, eventFD  = 1, 2, 4
	mask, unmask, triggered = 8, 16, 32
)

// TestInterrupts checks that the device can raise the interrupts that the
// client has enabled.
func TestInterrupts(t *testing.T) {
	d := newToy(t, 0x1017)
	c := plug(t, d)
	raise := func(kind vfiouser.IRQ, vector int, want error) {
		t.Helper()
		c.run(func() {
			if err := d.host.Interrupt(kind, vector); !errors.Is(err, want) || err == nil != (want == nil) {
				t.Errorf("interrupt %d of kind %d: %v, want %v", vector, kind, err, want)
			}
		})
	}
	raise(vfiouser.MSIX, 0, vfiouser.ErrNotEnabled)
	fds := []int{eventfd(t), eventfd(t), eventfd(t)}
	c.must(vfiouser.SetIRQs, setIRQs(eventFD|triggered, vfiouser.MSIX, 1, 2), fds[:2]...)
	c.must(vfiouser.SetIRQs, setIRQs(eventFD|triggered, vfiouser.MSIX, 0, 1), fds[2])
	c.must(vfiouser.SetIRQs, setIRQs(eventFD|triggered, vfiouser.MSIX, 2, 0)) // none
	check := func(want ...uint64) {
		t.Helper()
		for i, fd := range fds {
			if n := signals(t, fd); n != want[i] {
				t.Errorf("target %d has %d signals, want %d", i, n, want[i])
			}
		}
	}
	raise(vfiouser.MSIX, 1, nil)
	raise(vfiouser.MSIX, 1, nil)
	raise(vfiouser.MSIX, 0, nil)
	check(2, 0, 1)
	for _, vector := range []int{-1, 3, toyVectors} {
		raise(vfiouser.MSIX, vector, vfiouser.ErrNotEnabled)
	}
	raise(-1, 0, vfiouser.ErrNotEnabled)
	raise(5, 0, vfiouser.ErrNotEnabled)
	raise(vfiouser.MSI, 0, vfiouser.ErrNotEnabled)
	// The client raises some on behalf of the device.
	c.must(vfiouser.SetIRQs, setIRQs(none|triggered, vfiouser.MSIX, 0, 2))
	c.must(vfiouser.SetIRQs, setIRQs(boolean|triggered, vfiouser.MSIX, 0, 3, 0, 0, 1))
	check(1, 1, 1)
	// One gets another eventfd, one gets none.
	c.must(vfiouser.SetIRQs, setIRQs(eventFD|triggered, vfiouser.MSIX, 1, 1), fds[1])
	c.must(vfiouser.SetIRQs, setIRQs(eventFD|triggered, vfiouser.MSIX, 2, 1))
	raise(vfiouser.MSIX, 1, nil)
	raise(vfiouser.MSIX, 2, vfiouser.ErrNotEnabled)
	check(0, 1, 0)
	c.must(vfiouser.SetIRQs, setIRQs(none|triggered, vfiouser.MSIX, 0, 0))
	raise(vfiouser.MSIX, 0, vfiouser.ErrNotEnabled)
	raise(vfiouser.MSIX, 1, vfiouser.ErrNotEnabled)
}

// TestFullTarget checks that an interrupt never blocks, whatever the state of
// its eventfd.
func TestFullTarget(t *testing.T) {
	d := newToy(t, 0x1017)
	c := plug(t, d)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC) // a blocking one
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	full := [8]byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if _, err := unix.Write(fd, full[:]); err != nil {
		t.Fatal(err)
	}
	memory, _ := memfd(t, 4096)
	readOnly, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(readOnly)
	c.must(vfiouser.SetIRQs, setIRQs(eventFD|triggered, vfiouser.MSIX, 0, 3), fd, memory, readOnly)
	c.run(func() {
		for vector, want := range []error{nil, nil, unix.EBADF} {
			if err := d.host.Interrupt(vfiouser.MSIX, vector); !errors.Is(err, want) {
				t.Errorf("vector %d: %v, want %v", vector, err, want)
			}
		}
	})
}

func TestIRQsRefused(t *testing.T) {
	c := plug(t, newToy(t, 0x1017))
	fd := eventfd(t)
	const x = vfiouser.MSIX
	for _, m := range []struct {
		errno unix.Errno
		body  []byte
		fds   []int
	}{
		{unix.EINVAL, setIRQs(eventFD|triggered, 5, 0, 1), []int{fd}},
		{unix.EINVAL, setIRQs(eventFD|triggered, 1<<31, 0, 1), []int{fd}},
		{unix.EINVAL, setIRQs(eventFD|triggered, x, 0, toyVectors+1), []int{fd}},
		{unix.EINVAL, setIRQs(eventFD|triggered, x, toyVectors, 1), []int{fd}},
		{unix.EINVAL, setIRQs(eventFD|triggered, x, 1<<32-1, 1<<32-1), []int{fd}},
		{unix.EINVAL, setIRQs(eventFD|triggered, x, 0, 2), []int{fd}},
		{unix.EINVAL, setIRQs(eventFD|triggered, x, 0, 1), []int{fd, fd}},
		{unix.EINVAL, setIRQs(eventFD|triggered, vfiouser.INTx, 0, 1), []int{fd}},
		{unix.EINVAL, setIRQs(none|triggered, x, 0, 0), []int{fd}},
		{unix.EINVAL, setIRQs(none|triggered, x, 0, 1), nil}, // not enabled
		{unix.EINVAL, setIRQs(boolean|triggered, x, 0, 2, 1), nil},
		{unix.ENOTSUP, setIRQs(none|mask, x, 0, 1), nil},
		{unix.ENOTSUP, setIRQs(none|unmask, x, 0, 1), nil},
		{unix.ENOTSUP, setIRQs(none|boolean|triggered, x, 0, 1), nil},
		{unix.ENOTSUP, setIRQs(0, x, 0, 1), nil},
		{unix.EINVAL, setIRQs(none|triggered, x, 0, 0)[:19], nil},
	} {
		c.refused(m.errno, vfiouser.ErrRefused, vfiouser.SetIRQs, m.body, m.fds...)
	}
}
