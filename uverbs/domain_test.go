package uverbs

import (
	"errors"
	"slices"
	"testing"
)

// A parent domain is its PD by another name: what the two make goes together.
func TestParentDomain(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	before := r.k.Count("ALLOC_PD")
	td := good(r.c.AllocTD())(t)
	for _, d := range []*TD{nil, td} {
		p := good(good(b.pd.AllocParentDomain(d))(t).AllocParentDomain(d))(t)
		cq := good(r.c.CreateCQ(CQConfig{Entries: 16, PD: p}))(t)
		srq := good(p.CreateSRQ(SRQConfig{MaxWR: 4}))(t)
		qp := good(p.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4}))(t)
		if single := d != nil; cq.single != single || srq.single != single || qp.single != single {
			t.Errorf("with %v: lockless: %v, %v and %v", d, cq.single, srq.single, qp.single)
		}
		if got := ProviderTDOf(qp); (got != nil) != (d != nil) || qp.PD() != p || ProviderPDOf(qp) != b.pd {
			t.Errorf("with %v: the QP is of %v", d, got)
		}
		check(t, qp.Connect(good(qp.Endpoint())(t)))
		mr := good(p.Alloc(64, LocalWrite))(t)
		good(qp.PostSend(SendWR{Opcode: OpSend, SGL: []SGE{b.mr.SGE(0, 1), mr.SGE(0, 1)}[:1]}))(t)
		mw := good(p.AllocMW(MWType1))(t)
		check(t, mw.Bind(b.qp, 1, 0, MWRange{MR: b.mr, Len: 8, Access: RemoteRead}))
		ud := good(b.pd.CreateQP(QPConfig{Type: UD, SendCQ: b.cq, MaxSendWR: 4}))(t)
		check(t, ud.Ready())
		ah := good(p.CreateAH(somewhere))(t)
		good(ud.PostSend(SendWR{Opcode: OpSend, AH: ah}))(t)
		if err := b.pd.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("PD.Close: %v", err)
		}
		if err := p.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("Close of a parent domain in use: %v", err)
		}
		for _, close := range []func() error{qp.Close, cq.Close, srq.Close, mr.Close, mw.Close, ud.Close, ah.Close, p.Close, p.Close} {
			check(t, close())
		}
	}
	if n := r.k.Count("ALLOC_PD") - before; n != 0 || slices.Contains(r.k.Log(), "PD.DESTROY") {
		t.Errorf("the kernel has made %d PDs for parent domains", n)
	}
}

// What stands on a thread domain keeps it, and its registers go back at the end.
func TestThreadDomain(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	td := good(r.c.AllocTD())(t)
	p := good(pd.AllocParentDomain(td))(t)
	if err := td.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("TD.Close: %v", err)
	}
	other := newRig(t)
	foreign := good(other.c.AllocTD())(t)
	if _, err := pd.AllocParentDomain(foreign); !errors.Is(err, ErrInvalid) {
		t.Errorf("a TD of another Context: %v", err)
	}
	if _, err := other.c.CreateCQ(CQConfig{Entries: 1, PD: p}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a CQ in a domain of another Context: %v", err)
	}
	check(t, p.Close())
	check(t, td.Close())
	if r.p.domains != 0 {
		t.Errorf("%d thread domains have not been given back", r.p.domains)
	}
	if _, err := pd.AllocParentDomain(td); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed TD: %v", err)
	}
	good(pd.AllocParentDomain(good(r.c.AllocTD())(t)))(t)
	check(t, r.c.Close())
	if r.p.domains != 0 {
		t.Errorf("%d thread domains outlive their Context", r.p.domains)
	}
	again := newRig(t)
	again.p.mapError = errors.New("no register")
	if _, err := again.c.AllocTD(); err == nil {
		t.Error("a TD without a register")
	}
}

func domainErrors(t *testing.T) []errorCase {
	r, other := newRig(t), newRig(t)
	pd := good(r.c.AllocPD())(t)
	td := good(r.c.AllocTD())(t)
	good(pd.AllocParentDomain(td))(t)
	qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: good(r.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)}))(t)
	r.c.impl = plainContext{r.c.impl}
	return []errorCase{
		{"a TD of another Context", second(pd.AllocParentDomain(good(other.c.AllocTD())(t))), []error{ErrInvalid}},
		{"a CQ in a domain of another Context", second(other.c.CreateCQ(CQConfig{Entries: 1, PD: pd})), []error{ErrInvalid}},
		{"TD in use", td.Close(), []error{ErrBusy}},
		{"PD with a parent domain", pd.Close(), []error{ErrBusy}},
		{"a driver without null MRs", second(pd.AllocNullMR()), []error{ErrNotSupported}},
		{"a driver without options", second(qp.QueryECE()), []error{ErrNotSupported}},
		{"a driver without thread domains", second(r.c.AllocTD()), []error{ErrNotSupported}},
	}
}

// plainContext has what every driver must have.
type plainContext struct{ ProviderContext }
