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
		if n, err := a.WriteAt(want, int64(3*size)); n != size || err != nil {
			t.Errorf("WriteAt of %d bytes: %d, %v", size, n, err)
		}
		got := make([]byte, size)
		if n, err := a.ReadAt(got, int64(3*size)); n != size || err != nil || string(got) != string(want) {
			t.Errorf("ReadAt of %d bytes: %d, %v, %q", size, n, err, got)
		}
	}
	for _, x := range []struct {
		n   int
		off int64
	}{{0, 0}, {3, 0}, {16, 0}, {4, 2}, {1, -1}, {1, 64}, {8, 64}} {
		if n, err := a.WriteAt(make([]byte, x.n), x.off); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%d bytes at %d: %d, %v", x.n, x.off, n, err)
		}
	}
	if _, err := MapDMOp(dm, 9); !errors.Is(err, uverbs.ErrNotSupported) || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("operation 9: %v", err)
	}
	if _, err := MapDMOp(nil, DMIncrement); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("no memory: %v", err)
	}
	check(t, dm.Close())
	if _, err := a.ReadAt(make([]byte, 1), 0); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("ReadAt after Close: %v", err)
	}
	if _, err := MapDMOp(dm, DMTestAndSet); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("MapDMOp after Close: %v", err)
	}
}
