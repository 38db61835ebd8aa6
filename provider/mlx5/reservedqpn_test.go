package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestReservedQPN checks that numbers are not used again until those of their block are closed, and that the
// blocks go with the last number.
func TestReservedQPN(t *testing.T) {
	d := newDesk(t, standard())
	const block = 64
	seen := make(map[uint32]bool)
	var all []*ReservedQPN
	for range 3*block + 1 {
		n := good(AllocReservedQPN(d.c))(t)
		if seen[n.QPN()] {
			t.Fatalf("%#x twice", n.QPN())
		}
		seen[n.QPN()] = true
		all = append(all, n)
	}
	blocks := func() (n int) {
		d.s.Set(func() { n = d.s.DevXObjects() })
		return n
	}
	if n := blocks(); n != 4 {
		t.Errorf("%d blocks, want 4", n)
	}
	for _, n := range all[:block-1] {
		check(t, n.Close())
	}
	if n := blocks(); n != 4 {
		t.Errorf("%d blocks, want 4: a number is in use", n)
	}
	for range 2 {
		check(t, all[block-1].Close())
	}
	if n := blocks(); n != 3 {
		t.Errorf("%d blocks, want 3: all numbers of the first are closed", n)
	}
	check(t, d.c.Close())
	for _, n := range all {
		check(t, n.Close())
	}
	if _, err := AllocReservedQPN(d.c); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestReservedQPNErrors checks devices that lack reserved numbers.
func TestReservedQPNErrors(t *testing.T) {
	noDevX, none := newDesk(t, standard()), newDesk(t, standard())
	noDevX.s.Set(func() { noDevX.s.NoDevX = true })
	none.s.Set(func() { none.s.NoReservedQPNs = true })
	for name, c := range map[string]struct {
		ctx  *uverbs.Context
		want error
	}{
		"nil":     {nil, uverbs.ErrInvalid},
		"no DevX": {noDevX.c, uverbs.ErrNotSupported},
		"none":    {none.c, uverbs.ErrNotSupported},
	} {
		if n, err := AllocReservedQPN(c.ctx); n != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, n, err, c.want)
		}
	}
}
