package rxe

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// pipeDevice returns a device whose writes can be read back. It supports no ioctl.
func pipeDevice(t *testing.T) (dev *ioctl.Device, written func() []byte) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	dev = ioctl.New(fds[1], "pipe", uapi.RDMA_DRIVER_RXE)
	t.Cleanup(func() { dev.Close(); unix.Close(fds[0]) })
	return dev, func() []byte {
		b := make([]byte, 256)
		n, err := unix.Read(fds[0], b)
		if err != nil {
			t.Fatal(err)
		}
		return b[:n]
	}
}

func TestNotifyFrame(t *testing.T) {
	dev, written := pipeDevice(t)
	n := newNotify(dev, true, 0x11223344)
	for i, solicited := range []bool{false, true, false} {
		if err := n.arm(solicited); err != nil {
			t.Fatal(err)
		}
		got := written()
		want := make([]byte, 16)
		fill(want, []field{{0, 4, 23}, {4, 2, 4}, {8, 4, 0x11223344}, {12, 4, uint64(i % 2)}})
		if string(got) != string(want) {
			t.Errorf("wrote\n%x, want\n%x", got, want)
		}
	}
}

// TestDoorbellsAllocateNothing checks that both ways issue their system call without allocating.
func TestDoorbellsAllocateNothing(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dev := ioctl.New(fd, "null", uapi.RDMA_DRIVER_RXE)
	defer dev.Close()
	for _, byWrite := range []bool{true, false} {
		bell, arm := newBell(dev, byWrite, 1), newNotify(dev, byWrite, 1)
		for name, call := range map[string]func() error{
			"doorbell": bell.ring,
			"arm":      func() error { return arm.arm(true) },
		} {
			if err := call(); byWrite != (err == nil) || !byWrite && err != unix.ENOTTY {
				t.Errorf("%s, byWrite %v: %v", name, byWrite, err)
			}
			if n := testing.AllocsPerRun(100, func() { call() }); n != 0 {
				t.Errorf("%s, byWrite %v: %v allocations", name, byWrite, n)
			}
		}
	}
}

func TestArmErrors(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dev := ioctl.New(fd, "null", uapi.RDMA_DRIVER_RXE)
	_, c := newTestCQ(t, 7)
	c.ctx = &deviceContext{dev: dev}
	c.notify.init(dev, false, 1)
	if err := c.Arm(false, 0); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("Arm: %v", err)
	}
	dev.Close()
	if err := c.Arm(false, 0); !errors.Is(err, uverbs.ErrClosed) || !errors.Is(err, os.ErrClosed) {
		t.Errorf("Arm on a closed device: %v", err)
	}
}

func BenchmarkDoorbell(b *testing.B) {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	dev := ioctl.New(fd, "null", uapi.RDMA_DRIVER_RXE)
	defer dev.Close()
	for name, byWrite := range map[string]bool{"write": true, "ioctl": false} {
		b.Run(name, func(b *testing.B) {
			bell := newBell(dev, byWrite, 1)
			b.ReportAllocs()
			for b.Loop() {
				bell.ring()
			}
		})
	}
}
