package uverbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"golang.org/x/sys/unix"
)

const dcKey = 0xffeeddcc

// A star is both ends of the dynamically connected transport, on one Context.
type star struct {
	srq *SRQ
	dct *QP
	dci *QP
	ah  *AH
}

func (r *rig) star(t testing.TB, b *bundle, single bool) *star {
	t.Helper()
	s := new(star)
	s.srq = good(b.pd.CreateSRQ(SRQConfig{MaxWR: 64, MaxSGE: 2, SingleGoroutine: single}))(t)
	s.dct = good(b.pd.CreateQP(QPConfig{Type: DCT, RecvCQ: b.cq, SRQ: s.srq, DCKey: dcKey,
		Access: RemoteRead | RemoteWrite, SingleGoroutine: single}))(t)
	s.dci = good(b.pd.CreateQP(QPConfig{Type: DCI, SendCQ: b.cq, MaxSendWR: 64, MaxSendSGE: 2, MaxInline: 64,
		SingleGoroutine: single}))(t)
	check(t, s.dct.Ready())
	check(t, s.dci.Ready())
	s.ah = good(b.pd.CreateAH(good(s.dci.AHAttr(good(s.dct.Endpoint())(t)))(t)))(t)
	return s
}

// TestDC checks that Ready moves both ends to the states in which they work, that the DCT then has a
// number, and that each end accepts only its own kind of requests.
func TestDC(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	s := r.star(t, b, false)
	if s.dct.State() != StateRTR || s.dci.State() != StateRTS {
		t.Errorf("the DCT is in %v, the DCI in %v", s.dct.State(), s.dci.State())
	}
	e := good(s.dct.Endpoint())(t)
	if s.dct.QPN() != fakeDCTN || e.QPN != fakeDCTN || !strings.HasSuffix(s.dct.String(), "QP 119") {
		t.Errorf("%v has number %#x, and Endpoint %v", s.dct, s.dct.QPN(), e)
	}
	if s.dct.SRQ() != s.srq || s.dct.SendCQ() != b.cq || s.dct.RecvCQ() != b.cq {
		t.Error("the DCT does not know what it is made of")
	}
	wr := SendWR{WRID: 1, Opcode: OpWrite, Flags: Signaled, AH: s.ah, QPN: e.QPN, DCKey: dcKey, DCStream: 3}
	_, send := s.dct.PostSend(wr)
	_, recv := s.dct.PostRecv(RecvWR{})
	_, other := s.dci.PostRecv(RecvWR{})
	none := s.dct.StartSend()
	none.Send(1, 0)
	if send != ErrNoQueue || recv != ErrSRQ || other != ErrNoQueue || none.Submit() != ErrNoQueue {
		t.Errorf("posts to queues that do not exist: %v, %v, %v", send, recv, other)
	}
	if s.dct.SendsOutstanding()+s.dct.RecvsOutstanding()+s.dci.RecvsOutstanding() != 0 {
		t.Error("requests where there are no queues")
	}
	good(s.dci.PostSend(wr))(t)
	batch := s.dci.StartSend()
	batch.Write(2, 0, 8, 9)
	batch.DCAddr(s.ah, 5, 6)
	batch.Write(3, 0, 8, 9)
	batch.DCAddrStream(s.ah, 7, 8, 9)
	f := r.p.qps[len(r.p.qps)-1]
	for i, want := range []SendWR{{QPN: 5, DCKey: 6}, {QPN: 7, DCKey: 8, DCStream: 9}} {
		if got := f.batch[i]; got.QPN != want.QPN || got.DCKey != want.DCKey || got.DCStream != want.DCStream ||
			f.ahs[i] != s.ah.part() {
			t.Errorf("operation %d goes to %+v, want %+v", i, got, want)
		}
	}
	check(t, batch.Submit())
	batch = b.qp.StartSend()
	batch.Send(2, Signaled)
	batch.DCAddr(s.ah, 5, 6)
	if err := batch.Submit(); err != ErrQPType {
		t.Errorf("DCAddr of an RC QP: %v", err)
	}
	check(t, s.dci.Drain(t.Context()))
	check(t, s.dci.Modify(QPAttr{State: StateReset}, MaskState))
	check(t, s.dci.Ready())
}

// TestDCTStates checks that a DCT goes from RESET to RTR and nowhere else, that errors say so, and that it
// can be queried in RTR only.
func TestDCTStates(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	srq := good(b.pd.CreateSRQ(SRQConfig{MaxWR: 4}))(t)
	q := good(b.pd.CreateQP(QPConfig{Type: DCT, RecvCQ: b.cq, SRQ: srq, DCKey: dcKey}))(t)
	want := func(err error, kind error, text string) {
		t.Helper()
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %v with %q", err, kind, text)
		}
	}
	want(second(q.Query(MaskState)), ErrInvalid, "can be queried in state RTR, it is in RESET")
	want(second(q.Endpoint()), ErrState, "call Ready first")
	if q.QPN() != 0 {
		t.Errorf("a DCT in RESET has number %d", q.QPN())
	}
	want(q.Modify(QPAttr{State: StateInit, Port: 1}, MaskState|MaskPort), ErrInvalid, "also needs Access, PKeyIndex")
	want(q.Modify(QPAttr{State: StateErr}, MaskState), ErrInvalid, "goes from RESET to INIT and RTR")
	check(t, q.Init())
	want(q.Modify(QPAttr{State: StateInit}, MaskState), ErrInvalid, "goes from RESET to INIT and RTR")
	check(t, q.Ready())
	for _, s := range []QPState{StateReset, StateInit, StateRTR, StateRTS, StateErr} {
		want(q.Modify(QPAttr{State: s}, MaskState), ErrInvalid, "to end it, close it")
	}
	if a := good(q.Query(MaskState | MaskAccess))(t); a.State != StateRTR {
		t.Errorf("the DCT is in %v", a.State)
	}
	want(second(q.Query(MaskState|MaskSQPSN)), ErrInvalid, "a DCT has no SQPSN")
	want(q.Connect(Endpoint{MTU: MTU1024}), ErrInvalid, "a DCT has no peer")
}

// dcErrors are the errors of configurations of DC.
func dcErrors(t *testing.T) []errorCase {
	r := newRig(t)
	b := r.bundle(t, false)
	s := r.star(t, b, false)
	inv := []error{ErrInvalid, unix.EINVAL}
	qp := func(cfg QPConfig) error {
		cfg.SendCQ = b.cq
		return second(b.pd.CreateQP(cfg))
	}
	fresh := good(b.pd.CreateQP(QPConfig{Type: DCT, RecvCQ: b.cq, SRQ: s.srq}))(t)
	x := good(r.c.OpenXRCD(nil, 0))(t)
	batch := s.dci.StartSend()
	defer batch.Abort()
	cases := []errorCase{
		{"DCT without an SRQ", qp(QPConfig{Type: DCT}), inv},
		{"DCT with a send queue", qp(QPConfig{Type: DCT, SRQ: s.srq, MaxSendWR: 1}), inv},
		{"DCI with receives", qp(QPConfig{Type: DCI, MaxRecvWR: 1}), inv},
		{"DCI with an SRQ", qp(QPConfig{Type: DCI, SRQ: s.srq}), inv},
		{"key of a DCI", qp(QPConfig{Type: DCI, DCKey: 1}), inv},
		{"streams of a QP that is not a DCI", qp(QPConfig{Type: RC, DCIStreams: DCIStreams{Concurrent: 4}}), inv},
		{"key of an XRCRecv QP", second(x.CreateQP(QPConfig{DCKey: 1})), inv},
		{"streams of an XRCRecv QP", second(x.CreateQP(QPConfig{DCIStreams: DCIStreams{Concurrent: 4}})), inv},
		{"number of streams", qp(QPConfig{Type: DCI, DCIStreams: DCIStreams{Concurrent: 3}}), inv},
		{"errored streams without streams", qp(QPConfig{Type: DCI, DCIStreams: DCIStreams{Errored: 2}}), inv},
		{"connecting a DCI", s.dci.Connect(Endpoint{}), inv},
		{"Endpoint of a DCT before RTR", second(fresh.Endpoint()), []error{ErrState}},
		{"query of a DCT before RTR", second(fresh.Query(MaskState)), inv},
		{"attribute that a DCT has not", second(s.dct.Query(MaskSQPSN)), inv},
		{"moving a DCT to ERR", s.dct.Modify(QPAttr{State: StateErr}, MaskState), inv},
	}
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"QP.CREATE": unix.EINVAL} })
	cases = append(cases, errorCase{"streams that the device has not",
		qp(QPConfig{Type: DCI, MaxSendWR: 1, DCIStreams: DCIStreams{Concurrent: 4, Errored: 2}}), inv})
	cases = append(cases, errorCase{"device without SRD", qp(QPConfig{Type: SRD}), []error{ErrNotSupported}})
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"QP.CREATE": unix.EOPNOTSUPP} })
	cases = append(cases, errorCase{"device without DC", qp(QPConfig{Type: DCI, MaxSendWR: 1}), []error{ErrNotSupported}})
	r.k.Set(func() { r.k.Refuse = nil })
	b.pd.ctx.impl = struct{ providerContext }{b.pd.ctx.impl}
	return append(cases, errorCase{"driver without DC", qp(QPConfig{Type: DCI, MaxSendWR: 1}), []error{ErrNotSupported}})
}

// TestDCAllocations checks that requests of a DCI allocate nothing.
func TestDCAllocations(t *testing.T) {
	for _, single := range []bool{false, true} {
		r := newRig(t)
		b := r.bundle(t, single)
		s := r.star(t, b, single)
		for name, f := range map[string]func(){
			"PostSend": func() {
				_, _ = s.dci.PostSend(SendWR{Opcode: OpSend, SGL: []SGE{b.mr.SGE(0, 64)}, AH: s.ah, QPN: 5, DCKey: 6})
			},
			"StartSend": func() {
				x := s.dci.StartSend()
				x.WriteSGE(1, 0, 4096, 7, b.mr.SGE(0, 64))
				x.DCAddr(s.ah, 5, 6)
				_ = x.Submit()
			},
		} {
			if n := testing.AllocsPerRun(20, f); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	}
}

var _ driver.DCs = (*fakeContext)(nil)
