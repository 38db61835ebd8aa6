package uverbs

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A crossing has both ends of an XRC connection, on one Context.
type crossing struct {
	x         *XRCD
	srq       *SRQ
	initiator *QP
	target    *QP
}

func (r *rig) crossing(t testing.TB, b *bundle, single bool) *crossing {
	t.Helper()
	m := &crossing{x: good(r.c.OpenXRCD(nil, 0))(t)}
	m.srq = good(b.pd.CreateSRQ(SRQConfig{MaxWR: 64, MaxSGE: 2, SingleGoroutine: single, XRCD: m.x, CQ: b.cq}))(t)
	m.initiator = good(b.pd.CreateQP(QPConfig{
		Type: XRCSend, SendCQ: b.cq, MaxSendWR: 64, MaxSendSGE: 2, MaxInline: 64, SingleGoroutine: single}))(t)
	m.target = good(m.x.CreateQP(QPConfig{Access: RemoteRead}))(t)
	check(t, m.initiator.Connect(good(m.target.Endpoint())(t)))
	check(t, m.target.Connect(good(m.initiator.Endpoint())(t)))
	return m
}

// TestXRC checks that each end accepts only its own kind of requests, and returns the objects that
// it was created from.
func TestXRC(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.crossing(t, b, false)
	if m.srq.SRQN() == 0 || good(b.pd.CreateSRQ(SRQConfig{MaxWR: 1}))(t).SRQN() != 0 {
		t.Error("an XRC SRQ has a number, another has none")
	}
	if m.target.PD() != nil || m.target.SendCQ() != nil || m.target.RecvCQ() != nil || m.initiator.RecvCQ() != nil ||
		m.initiator.PD() != b.pd {
		t.Error("the QPs do not know what they are made of")
	}
	wr := SendWR{WRID: 1, Opcode: OpSend, Flags: Signaled, RemoteSRQN: m.srq.SRQN()}
	good(m.initiator.PostSend(wr))(t)
	impl := r.p.qps[len(r.p.qps)-1]
	if impl.srqn != m.srq.SRQN() {
		t.Errorf("the request is for SRQ %d", impl.srqn)
	}
	batch := m.initiator.StartSend()
	batch.Send(2, Signaled)
	batch.RemoteSRQ(77)
	check(t, batch.Submit())
	if impl.srqn != 77 {
		t.Errorf("the operation is for SRQ %d", impl.srqn)
	}
	batch = b.qp.StartSend()
	batch.Send(2, Signaled)
	batch.RemoteSRQ(77)
	if err := batch.Submit(); err != ErrQPType {
		t.Errorf("RemoteSRQ of an RC QP: %v", err)
	}
	for _, state := range []QPState{StateRTS, StateErr, StateReset} {
		check(t, m.target.Modify(QPAttr{State: state}, MaskState))
		_, send := m.target.PostSend(wr)
		_, recv := m.target.PostRecv(RecvWR{})
		_, other := m.initiator.PostRecv(RecvWR{})
		batch := m.target.StartSend()
		batch.Send(1, 0)
		if send != ErrNoQueue || recv != ErrNoQueue || other != ErrNoQueue || batch.Submit() != ErrNoQueue {
			t.Errorf("%v: posts to queues that there are not: %v, %v, %v", state, send, recv, other)
		}
	}
	if m.target.SendsOutstanding()+m.target.RecvsOutstanding()+m.initiator.RecvsOutstanding() != 0 {
		t.Error("requests where there are no queues")
	}
	good(m.srq.PostRecv(RecvWR{WRID: 3}))(t)
	for _, qp := range []*QP{m.initiator, m.target} {
		check(t, qp.Drain(t.Context()))
	}
}

// TestXRCLife checks which objects keep others open, and that closing an SRQ removes its
// completions from the CQ.
func TestXRCLife(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.crossing(t, b, false)
	check(t, m.initiator.Close())
	for name, err := range map[string]error{"XRCD": m.x.Close(), "CQ": b.cq.Close(), "PD": b.pd.Close()} {
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%s.Close: %v", name, err)
		}
	}
	check(t, m.target.Close())
	if err := m.x.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("XRCD.Close: %v, with an SRQ", err)
	}
	impl := m.srq.impl
	check(t, m.srq.Close())
	if got := b.cq.impl.(*fakeCQ).purgedSRQs; !slices.Equal(got, []providerSRQ{impl}) {
		t.Errorf("the CQ has forgotten %v", got)
	}
	check(t, m.x.Close())
	check(t, m.x.Close())
	if _, err := m.x.CreateQP(QPConfig{}); !errors.Is(err, ErrClosed) {
		t.Errorf("CreateQP: %v", err)
	}
	// Close of the Context closes the remaining objects in order.
	m = r.crossing(t, b, false)
	good(m.x.OpenQP(m.target.QPN()))(t)
}

// TestSharedXRCD checks that a file identifies one domain, and that opening a QP of the domain
// shares it.
func TestSharedXRCD(t *testing.T) {
	r := newRig(t)
	name := t.TempDir() + "/domain"
	open := func(name string, flags XRCDFlags) (*XRCD, error) {
		f := good(os.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o600))(t)
		defer f.Close()
		return r.c.OpenXRCD(f, flags)
	}
	if _, err := open(name, 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a domain that there is not: %v", err)
	}
	first := good(open(name, XRCDCreate|XRCDExclusive))(t)
	second := good(open(name, XRCDCreate))(t)
	other := good(open(t.TempDir()+"/other", XRCDCreate))(t)
	if _, err := open(name, XRCDCreate|XRCDExclusive); !errors.Is(err, ErrInvalid) {
		t.Errorf("a domain that there is: %v", err)
	}
	if _, err := open(name, 2); !errors.Is(err, ErrInvalid) {
		t.Errorf("a flag of files: %v", err)
	}
	closed := good(os.Open(os.DevNull))(t)
	check(t, closed.Close())
	if _, err := r.c.OpenXRCD(closed, XRCDCreate); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed file: %v", err)
	}
	qp := good(first.CreateQP(QPConfig{Type: XRCRecv}))(t)
	check(t, qp.Init())
	opened := good(second.OpenQP(qp.QPN()))(t)
	if opened.QPN() != qp.QPN() || opened.State() != StateInit {
		t.Errorf("opened %v in %v", opened, opened.State())
	}
	check(t, opened.Modify(QPAttr{State: StateErr}, MaskState))
	if a := good(qp.Query(MaskState))(t); a.State != StateErr {
		t.Errorf("the QP is in %v", a.State)
	}
	if _, err := opened.PostSend(SendWR{}); err != ErrNoQueue {
		t.Errorf("PostSend: %v", err)
	}
	for _, x := range []*XRCD{other, good(r.c.OpenXRCD(nil, 0))(t)} {
		if _, err := x.OpenQP(qp.QPN()); !errors.Is(err, ErrInvalid) {
			t.Errorf("a QP of another domain: %v", err)
		}
	}
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"QUERY_QP": unix.EPERM} })
	if _, err := second.OpenQP(qp.QPN()); !errors.Is(err, unix.EPERM) {
		t.Errorf("a QP that cannot be queried: %v", err)
	}
	r.k.Set(func() { r.k.Refuse = nil })
	check(t, opened.Close())
	check(t, qp.Close())
	check(t, second.Close())
}

// TestXRCAllocatesNothing checks that posting XRC requests, as a list or as a batch, does not
// allocate.
func TestXRCAllocatesNothing(t *testing.T) {
	for _, single := range []bool{false, true} {
		r := newRig(t)
		b := r.bundle(t, single)
		m := r.crossing(t, b, single)
		for name, f := range map[string]func(){
			"PostSend": func() {
				_, _ = m.initiator.PostSend(SendWR{Opcode: OpSend, SGL: []SGE{b.mr.SGE(0, 64)}, RemoteSRQN: 5})
			},
			"StartSend": func() {
				s := m.initiator.StartSend()
				s.Write(1, 0, 4096, 7)
				s.RemoteSRQ(5)
				s.SGE(b.mr.SGE(0, 64))
				_ = s.Submit()
			},
			"SRQ": func() { _, _ = m.srq.PostRecv(RecvWR{WRID: 1, SGL: []SGE{b.mr.SGE(0, 64)}}) },
		} {
			if n := testing.AllocsPerRun(20, f); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	}
}

func xrcErrors(t *testing.T) []errorCase {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.crossing(t, b, false)
	other := newRig(t)
	foreign := good(other.c.OpenXRCD(nil, 0))(t)
	cq := good(other.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)
	inv := []error{ErrInvalid, unix.EINVAL}
	srq := func(cfg SRQConfig) error {
		cfg.MaxWR = 1
		return second(b.pd.CreateSRQ(cfg))
	}
	qp := func(cfg QPConfig) error {
		cfg.SendCQ = b.cq
		return second(b.pd.CreateQP(cfg))
	}
	f := good(os.Open(os.DevNull))(t)
	defer f.Close()
	cases := []errorCase{
		{"no domain for the file", second(r.c.OpenXRCD(f, 0)), []error{unix.EAGAIN}},
		{"unknown flags", second(r.c.OpenXRCD(f, 2)), inv},
		{"SRQ with a domain and no CQ", srq(SRQConfig{XRCD: m.x}), inv},
		{"SRQ with a domain of another Context", srq(SRQConfig{XRCD: foreign, CQ: b.cq}), inv},
		{"SRQ with a CQ of another Context", srq(SRQConfig{XRCD: m.x, CQ: cq}), inv},
		{"RC QP with an XRC SRQ", qp(QPConfig{Type: RC, SRQ: m.srq}), inv},
		{"initiator with receives", qp(QPConfig{Type: XRCSend, MaxRecvWR: 1}), inv},
		{"target of a PD", qp(QPConfig{Type: XRCRecv}), inv},
		{"RC QP of a domain", second(m.x.CreateQP(QPConfig{Type: RC})), inv},
		{"target with a queue", second(m.x.CreateQP(QPConfig{MaxRecvWR: 1})), inv},
		{"target with a bad GID", second(m.x.CreateQP(QPConfig{GID: &GIDEntry{Index: 256, Port: 1}})), inv},
		{"QP of another domain", second(m.x.OpenQP(99)), inv},
		{"domain in use", m.x.Close(), []error{ErrBusy}},
	}
	good(r.c.OpenXRCD(f, XRCDCreate))(t)
	cases = append(cases, errorCase{"domain that exists", second(r.c.OpenXRCD(f, XRCDExclusive)), inv})
	r.k.Set(func() { r.k.XRC, r.k.Refuse = false, map[string]unix.Errno{"QP.CREATE": unix.EOPNOTSUPP} })
	return append(cases,
		errorCase{"a device without XRC", second(r.c.OpenXRCD(nil, 0)), []error{ErrNotSupported, unix.EOPNOTSUPP}},
		errorCase{"a QP type that the device has not", qp(QPConfig{Type: XRCSend}), []error{ErrNotSupported}})
}
