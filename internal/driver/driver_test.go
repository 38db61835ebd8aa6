package driver

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A user is in the list of those to wait for from its first Begin until Leave.
func TestUsersAreListed(t *testing.T) {
	m := new(MRs)
	var all [3]MRUser
	count := func() (n int) {
		for u := m.users; u != nil; u = u.next {
			n++
		}
		return n
	}
	for i := range all {
		all[i].Open(m)
		if count() != i {
			t.Errorf("%d users after Open, want %d", count(), i)
		}
		for range 2 {
			all[i].Begin()
			all[i].End()
		}
		if count() != i+1 {
			t.Errorf("%d users after Begin, want %d", count(), i+1)
		}
	}
	for left, i := range []int{1, 0, 2} {
		all[i].Leave()
		if all[i].Leave(); count() != 2-left {
			t.Errorf("%d users after Leave of %d, want %d", count(), i, 2-left)
		}
	}
	new(MRUser).Leave() // was never opened
}

func TestAHFor(t *testing.T) {
	no, closed, foreign := ErrNoAH, ErrClosedAH, ErrForeignAH
	defer func() { ErrNoAH, ErrClosedAH, ErrForeignAH = no, closed, foreign }()
	ErrNoAH, ErrClosedAH, ErrForeignAH = errors.New("none"), errors.New("closed"), errors.New("foreign")
	var a AH
	var pd, other PD
	a.Open(&pd)
	if av, err := a.For(&pd); av != a.AV() || err != nil {
		t.Errorf("open: %p, %v, want %p", av, err, a.AV())
	}
	if av, err := a.For(&other); av != nil || err != ErrForeignAH {
		t.Errorf("of another PD: %p, %v", av, err)
	}
	a.Close()
	if av, err := a.For(&pd); av != nil || err != ErrClosedAH {
		t.Errorf("closed: %p, %v", av, err)
	}
	if av, err := (*AH)(nil).For(&pd); av != nil || err != ErrNoAH {
		t.Errorf("nil: %p, %v", av, err)
	}
}

func TestPinned(t *testing.T) {
	if err := Pinned(nil, 5); err != nil {
		t.Error(err)
	}
	var p *PinnedError
	err := Pinned(unix.ENOMEM, 5)
	if !errors.As(err, &p) || p.Bytes != 5 || !errors.Is(err, unix.ENOMEM) || err.Error() != unix.ENOMEM.Error() {
		t.Errorf("%v of %+v", err, p)
	}
}
