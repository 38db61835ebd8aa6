package rxe

import (
	"errors"
	"os"
	"testing"
	"time"

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

func TestBellFrame(t *testing.T) {
	dev, written := pipeDevice(t)
	b := newBell(dev, true, 0x11223344)
	if err := b.ring(); err != nil {
		t.Fatal(err)
	}
	got := written()
	want := make([]byte, 32)
	// Command 28; 8 words in; 1 word out; the reply's address; the QP; no WRs; no
	// SGEs; WQE size 56.
	fill(want, []field{{0, 4, 28}, {4, 2, 8}, {6, 2, 1}, {8, 8, b.frame.replyAddr()}, {16, 4, 0x11223344}, {28, 4, 56}})
	if string(got) != string(want) {
		t.Errorf("wrote\n%x, want\n%x", got, want)
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

// slowKernel is slow with the first frame.
type slowKernel struct{ frames int }

func (k *slowKernel) Ioctl(ioctl.Call) error { return unix.ENOTTY }

func (k *slowKernel) Write([]byte) error {
	for began := time.Now(); k.frames == 0 && time.Since(began) <= brief; {
	}
	k.frames++
	return nil
}

// TestLongDoorbell checks that doorbells are not treated as brief after one that took long, until one is brief again.
func TestLongDoorbell(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dev := ioctl.NewFake(fd, "slow", uapi.RDMA_DRIVER_RXE, new(slowKernel))
	defer dev.Close()
	b := newBell(dev, true, 1)
	if b.long {
		t.Error("a doorbell that has never rung is taken to be long")
	}
	if err := b.ring(); err != nil || !b.long {
		t.Errorf("%v, long %v after a long call", err, b.long)
	}
	for rings := 0; b.long; rings++ { // the machine may be busy
		if err := b.ring(); err != nil || rings == 1000 {
			t.Fatalf("%v, long after %d short calls", err, rings)
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
