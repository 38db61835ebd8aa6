package bnxt_re_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakebnxt"
	"github.com/goverbs/goverbs/uverbs"
)

// write posts signaled WRITEs.
func (p *peer) write(to *peer, ids ...uint64) {
	p.t.Helper()
	for _, id := range ids {
		p.send(uverbs.SendWR{WRID: id, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{p.mr.SGE(0, 8)},
			RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey()})
	}
}

// Completions that were not polled survive resizes, also several and to fewer entries.
func TestResizeKeeps(t *testing.T) {
	each(t, func(t *testing.T, cfg fakebnxt.Config) {
		a, b := pair(t, cfg)
		next := uint64(0)
		for _, n := range []int{100, 1000, 200, 20000, 32} {
			a.write(b, next, next+1)
			a.outcome(a.cq, uverbs.WC{WRID: next})
			check(t, a.cq.Resize(n))
			if got := a.cq.Entries(); got < n {
				t.Errorf("%d entries, want %d", got, n)
			}
			a.write(b, next+2)
			check(t, a.cq.Resize(n+1))
			a.outcome(a.cq, uverbs.WC{WRID: next + 1}, uverbs.WC{WRID: next + 2})
			next += 3
		}
	})
}

// Those of a QP that is closed do not.
func TestResizeAndClose(t *testing.T) {
	each(t, func(t *testing.T, cfg fakebnxt.Config) {
		a, b := pair(t, cfg)
		a.write(b, 1, 2)
		a.outcome(a.cq, uverbs.WC{WRID: 1})
		check(t, a.cq.Resize(100))
		check(t, a.qp.Close())
		if n, err := a.cq.Poll(make([]uverbs.WC, 4)); n != 0 || err != nil {
			t.Errorf("Poll: %d, %v", n, err)
		}
	})
}

// A device that does not end its old ring makes the CQ fail.
func TestResizeWithoutEnd(t *testing.T) {
	cfg := fakebnxt.P5
	cfg.NoCutOff = true
	a, _ := pair(t, cfg)
	if err := a.cq.Resize(1000); !errors.Is(err, uverbs.ErrABI) {
		t.Errorf("Resize: %v", err)
	}
	if _, err := a.cq.Poll(make([]uverbs.WC, 1)); !errors.Is(err, uverbs.ErrABI) {
		t.Errorf("Poll: %v", err)
	}
}
