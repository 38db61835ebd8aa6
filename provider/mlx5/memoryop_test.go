package mlx5

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// TestMapDMOp checks accesses at the address of an operation. The memory of this device executes no operation, so they
// load and store. TestDeviceMapDMOp has a device that does.
func TestMapDMOp(t *testing.T) {
	d := newDesk(t, standard())
	dm := good(d.c.AllocDM(uverbs.DMConfig{Size: 64}))(t)
	a := good(MapDMOp(dm, DMIncrement))(t)
	if b := good(MapDMOp(dm, DMIncrement))(t); b != a {
		t.Error("an operation is mapped twice")
	}
	for size := 1; size <= 8; size *= 2 {
		want := []byte("increment")[:size]
		if err := a.Store(want, int64(3*size)); err != nil {
			t.Errorf("Store of %d bytes: %v", size, err)
		}
		got := make([]byte, size)
		if err := a.Load(got, int64(3*size)); err != nil || string(got) != string(want) {
			t.Errorf("Load of %d bytes: %v, %q", size, err, got)
		}
	}
	for _, x := range []struct {
		n   int
		off int64
	}{{0, 0}, {3, 0}, {16, 0}, {4, 2}, {1, -1}, {1, 64}, {8, 64}} {
		if err := a.Store(make([]byte, x.n), x.off); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%d bytes at %d: %v", x.n, x.off, err)
		}
	}
	if _, err := MapDMOp(dm, 9); !errors.Is(err, uverbs.ErrNotSupported) || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("operation 9: %v", err)
	}
	if _, err := MapDMOp(nil, DMIncrement); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("no memory: %v", err)
	}
	check(t, dm.Close())
	if err := a.Load(make([]byte, 1), 0); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("Load after Close: %v", err)
	}
	if _, err := MapDMOp(dm, DMTestAndSet); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("MapDMOp after Close: %v", err)
	}
}
