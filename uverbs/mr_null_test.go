package uverbs

import (
	"errors"
	"testing"
)

// TestNullMR checks that a null MR accepts any range, issues no commands, and is closed like other
// MRs.
func TestNullMR(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	before := len(r.k.Log())
	m := good(b.pd.AllocNullMR())(t)
	for _, s := range []SGE{m.SGE(0, 0), m.SGE(1<<40, MaxMessage), m.SGE(7, 8)} {
		if s.LKey != 0x300 || s.Length > MaxMessage {
			t.Errorf("%+v", s)
		}
	}
	if m.SGE(0, 8).Length != 8 || m.SGE(1<<40, 1).Addr != 1<<40 || m.RKey() != 0 || m.Bytes() != nil || m.PD() != b.pd {
		t.Errorf("the MR is %+v", m.view.Load())
	}
	good(b.qp.PostRecv(RecvWR{SGL: []SGE{b.mr.SGE(0, 8), m.SGE(0, 1<<20)}}))(t)
	for _, f := range []ReregFlags{ReregAccess, ReregPD} {
		if err := m.Rereg(f, map[bool]*PD{true: b.pd}[f == ReregPD], nil, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("Rereg: %v", err)
		}
	}
	check(t, b.mr.Close())
	check(t, m.Close())
	check(t, m.Close())
	if s := m.SGE(0, 1); s.Length != badLength {
		t.Errorf("a closed MR names %+v", s)
	}
	good(b.pd.AllocNullMR())(t) // closed with the Context
	if n := r.k.Count("MR.DESTROY"); n != 1 || r.k.Count("REG_MR") != 1 {
		t.Errorf("%d MRs were destroyed, by %v", n, r.k.Log()[before:])
	}
	r.p.noNull = true
	if _, err := b.pd.AllocNullMR(); !errors.Is(err, ErrNotSupported) {
		t.Errorf("AllocNullMR: %v", err)
	}
}
