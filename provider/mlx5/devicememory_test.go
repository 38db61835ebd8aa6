package mlx5

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceMemory moves data between host memory and device memory, in both directions.
func TestDeviceMemory(t *testing.T) {
	d := newDesk(t, standard())
	other := good(d.c.AllocDM(uverbs.DMConfig{Size: 5000}))(t) // so that the next one does not begin at index 0
	dm := good(d.c.AllocDM(uverbs.DMConfig{Size: 256, Align: 64}))(t)
	mr := good(d.pd.RegDM(dm, 64, 128, uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteRead))(t)
	if mr.Bytes() != nil || mr.Addr() != 0 || mr.Len() != 128 || dm.Size() != 256 {
		t.Errorf("the MR has %d bytes at %#x, the memory %d", mr.Len(), mr.Addr(), dm.Size())
	}
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	whole := bytes.Repeat([]byte("other"), 1000)
	if n, err := other.WriteAt(whole, 0); n != len(whole) || err != nil {
		t.Fatalf("WriteAt: %d, %v", n, err)
	}
	if n, err := dm.WriteAt([]byte("from the device."), 64+16); n != 16 || err != nil {
		t.Fatalf("WriteAt: %d, %v", n, err)
	}
	post := func(wr uverbs.SendWR) {
		t.Helper()
		wr.Flags = uverbs.Signaled
		_, err := q.PostSend(wr)
		check(t, err)
		if wc := one(t, cq); wc.Err() != nil {
			t.Fatal(wc.Err())
		}
	}
	post(uverbs.SendWR{Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{mr.SGE(16, 16)}, RemoteAddr: d.mr.Addr(),
		RKey: d.mr.RKey()})
	if got := d.mr.Bytes()[:16]; string(got) != "from the device." {
		t.Errorf("%q arrived", got)
	}
	copy(d.mr.Bytes()[100:], "to the device")
	post(uverbs.SendWR{Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{d.mr.SGE(100, 13)}, RemoteAddr: mr.Addr() + 1,
		RKey: mr.RKey()})
	got := make([]byte, 16)
	if n, err := dm.ReadAt(got, 64); n != 16 || err != nil || !bytes.Equal(got[1:14], []byte("to the device")) {
		t.Errorf("ReadAt: %d, %v, %q", n, err, got)
	}
	if n, err := dm.ReadAt(got, 248); n != 8 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt at the end: %d, %v", n, err)
	}
	rest := make([]byte, len(whole))
	if n, err := other.ReadAt(rest, 0); n != len(rest) || err != nil || !bytes.Equal(rest, whole) {
		t.Errorf("the other memory has changed: %d, %v", n, err)
	}
	check(t, q.Close())
	if err := dm.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("Close of memory that is registered: %v", err)
	}
	check(t, mr.Close())
	check(t, dm.Close())
	if _, err := dm.ReadAt(got, 0); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("ReadAt after Close: %v", err)
	}
	check(t, other.Close())
}

// TestDeviceMemoryErrors checks what the kernel and the device refuse.
func TestDeviceMemoryErrors(t *testing.T) {
	d := newDesk(t, standard())
	for _, x := range []struct {
		cfg  uverbs.DMConfig
		want error
	}{
		{uverbs.DMConfig{Size: softDeviceMemory + 1}, unix.ENOMEM},
		{uverbs.DMConfig{Size: 64, Align: 1 << 13}, uverbs.ErrInvalid},
		{uverbs.DMConfig{Size: 64, Align: 3}, uverbs.ErrInvalid},
		{uverbs.DMConfig{}, uverbs.ErrInvalid},
	} {
		if _, err := d.c.AllocDM(x.cfg); !errors.Is(err, x.want) {
			t.Errorf("%+v: %v, want %v", x.cfg, err, x.want)
		}
	}
	dm := good(d.c.AllocDM(uverbs.DMConfig{Size: 64}))(t)
	if _, err := d.pd.RegDM(dm, 0, 64, uverbs.LocalWrite|uverbs.MWBindAccess); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a region for windows: %v", err)
	}
}

// TestDeviceMemoryOffset checks where the kernel maps device memory: the low byte of an index is
// below the command, and the high byte above it.
func TestDeviceMemoryOffset(t *testing.T) {
	page := int64(unix.Getpagesize())
	for index, want := range map[uint16]int64{0: 0x800, 0xff: 0x8ff, 0x100: 0x10800, 0x1234: 0x120834} {
		if got := deviceMemoryOffset(index); got != want*page {
			t.Errorf("index %#x: page %#x, want %#x", index, got/page, want)
		}
	}
	if uapi.MLX5_IB_MMAP_DEVICE_MEM != 8 {
		t.Error("the command of device memory is not 8")
	}
}
