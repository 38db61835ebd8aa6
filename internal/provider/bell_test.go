package provider

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// recorder records the frames that are written to it. It is slow with the first one.
type recorder struct {
	frames [][]byte
	slow   bool
}

func (k *recorder) Ioctl(ioctl.Call) error { return unix.ENOTTY }

func (k *recorder) Write(b []byte) error {
	for began := time.Now(); k.slow && len(k.frames) == 0 && time.Since(began) <= brief; {
	}
	k.frames = append(k.frames, b)
	return nil
}

// newBell returns a bell of the QP with handle 0x11223344.
func newBell(t *testing.T, k *recorder) *Bell {
	t.Helper()
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dev := ioctl.NewFake(fd, "fake", uapi.RDMA_DRIVER_RXE, k)
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	b := new(Bell)
	b.Init(dev, true, 0x11223344)
	return b
}

func TestBellFrame(t *testing.T) {
	k := new(recorder)
	b := newBell(t, k)
	if err := b.Ring(); err != nil || len(k.frames) != 1 {
		t.Fatalf("%v, %d frames", err, len(k.frames))
	}
	le := binary.LittleEndian
	want := make([]byte, 32)
	le.PutUint32(want[0:], 28) // the command
	le.PutUint16(want[4:], 8)  // words in
	le.PutUint16(want[6:], 1)  // words out
	le.PutUint64(want[8:], b.frame.replyAddr())
	le.PutUint32(want[16:], 0x11223344)
	le.PutUint32(want[28:], 56) // the size of a WQE; before it, no WQEs and no SGEs
	if got := k.frames[0]; string(got) != string(want) {
		t.Errorf("wrote\n%x, want\n%x", got, want)
	}
}

// TestLongDoorbell checks that doorbells are not treated as brief after one that took long, until one is brief again.
func TestLongDoorbell(t *testing.T) {
	b := newBell(t, &recorder{slow: true})
	if b.long {
		t.Error("a doorbell that has never rung is taken to be long")
	}
	if err := b.Ring(); err != nil || !b.long {
		t.Errorf("%v, long %v after a long call", err, b.long)
	}
	for rings := 0; b.long; rings++ { // the machine may be busy
		if err := b.Ring(); err != nil || rings == 1000 {
			t.Fatalf("%v, long after %d short calls", err, rings)
		}
	}
}
