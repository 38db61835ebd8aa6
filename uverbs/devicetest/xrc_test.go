package devicetest

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A crossing is an XRC domain that two contexts share through a file: the first has the target,
// the second opens it. Each has an SRQ. The initiator belongs to a third context.
type crossing struct {
	ctx       context.Context
	file      *os.File
	sides     [2]xrcSide
	from      xrcSide // srq is nil
	initiator *uverbs.QP
	target    *uverbs.QP
	opened    *uverbs.QP
}

type xrcSide struct {
	dev    *uverbs.Context
	pd     *uverbs.PD
	cq     *uverbs.CQ
	mr     *uverbs.MR
	domain *uverbs.XRCD
	srq    *uverbs.SRQ
}

func newXRCSide(t testing.TB) (s xrcSide) {
	t.Helper()
	s.dev = openDevice(t)
	s.pd = must(s.dev.AllocPD())(t)
	s.cq = must(s.dev.CreateCQ(uverbs.CQConfig{Entries: 64}))(t)
	s.mr = must(s.pd.Alloc(1<<14, allAccess))(t)
	return s
}

func newCrossing(t testing.TB) *crossing {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	x := &crossing{ctx: ctx, file: domainFile(t), from: newXRCSide(t)}
	openXRCD(t, x.from.dev, nil, 0) // skip the test early
	for i := range x.sides {
		s := newXRCSide(t)
		s.domain = openXRCD(t, s.dev, x.file, uverbs.XRCDCreate)
		s.srq = must(s.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 16, XRCD: s.domain, CQ: s.cq}))(t)
		x.sides[i] = s
	}
	x.initiator = must(x.from.pd.CreateQP(uverbs.QPConfig{
		Type: uverbs.XRCSend, SendCQ: x.from.cq, MaxSendWR: 16, MaxInline: 64}))(t)
	x.target = must(x.sides[0].domain.CreateQP(uverbs.QPConfig{Access: uverbs.RemoteWrite | uverbs.RemoteRead}))(t)
	check(t, x.target.Connect(endpoint(t, x.initiator)))
	check(t, x.initiator.Connect(endpoint(t, x.target)))
	x.opened = must(x.sides[1].domain.OpenQP(x.target.QPN()))(t)
	return x
}

func (x *crossing) done(t testing.TB, cq *uverbs.CQ) uverbs.WC {
	t.Helper()
	var wcs [1]uverbs.WC
	must(cq.PollWait(x.ctx, wcs[:]))(t)
	return wcs[0]
}

// sent waits until a request of the initiator has completed.
func (x *crossing) sent(t testing.TB) {
	t.Helper()
	wc := x.done(t, x.from.cq)
	check(t, wc.Err())
}

// TestDeviceXRC checks that one connection reaches the SRQs of all Contexts that share the domain,
// each with the memory of its own PD.
func TestDeviceXRC(t *testing.T) {
	x := newCrossing(t)
	for i := range 60 {
		to := &x.sides[i%2]
		copy(x.from.mr.Bytes(), []byte{byte(i), 1, 2, 3})
		provide(t, to.srq, uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{to.mr.SGE(i, 10)}})
		wr := uverbs.SendWR{WRID: 7, Opcode: uverbs.OpSendImm, Imm: uint32(i), Flags: uverbs.Signaled,
			RemoteSRQN: to.srq.SRQN()}
		if i%3 == 0 {
			wr.Inline = x.from.mr.Bytes()[:4]
		} else {
			wr.SGL = []uverbs.SGE{x.from.mr.SGE(0, 4)}
		}
		post(t, x.initiator, wr)
		x.sent(t)
		wc := x.done(t, to.cq)
		if check(t, wc.Err()); wc.WRID != uint64(i) || wc.QPNum != x.target.QPN() || wc.Imm != uint32(i) || wc.ByteLen != 4 ||
			wc.Opcode != uverbs.WCRecv {
			t.Fatalf("message %d arrives as %+v", i, wc)
		}
		same(t, to.mr.Bytes()[i:][:4], []byte{byte(i), 1, 2, 3})
	}
}

// TestDeviceXRCShared checks that a target exists as long as any Context has it open, and that all
// of them see its state.
func TestDeviceXRCShared(t *testing.T) {
	x := newCrossing(t)
	first, second := &x.sides[0], &x.sides[1]
	if x.opened.State() != uverbs.StateRTS || x.opened.QPN() != x.target.QPN() {
		t.Errorf("opened %v in %v", x.opened, x.opened.State())
	}
	check(t, x.target.Close())
	check(t, first.srq.Close())
	check(t, first.domain.Close())
	provide(t, second.srq, uverbs.RecvWR{WRID: 3})
	post(t, x.initiator, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, RemoteSRQN: second.srq.SRQN()})
	x.sent(t)
	if wc := x.done(t, second.cq); wc.WRID != 3 || wc.Err() != nil {
		t.Errorf("%+v", wc)
	}
	if err := second.domain.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("close of a domain in use: %v", err)
	}
	check(t, x.opened.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState))
	if a := must(x.opened.Query(uverbs.MaskState))(t); a.State != uverbs.StateErr {
		t.Errorf("the target is in %v", a.State)
	}
	n := x.opened.QPN()
	check(t, x.opened.Close())
	if _, err := second.domain.OpenQP(n); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a QP that nobody has: %v", err)
	}
	check(t, second.srq.Close())
	check(t, second.domain.Close())
	if _, err := second.dev.OpenXRCD(x.file, 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a domain that nobody has: %v", err)
	}
	again := openXRCD(t, second.dev, x.file, uverbs.XRCDCreate|uverbs.XRCDExclusive)
	if _, err := first.dev.OpenXRCD(x.file, uverbs.XRCDCreate|uverbs.XRCDExclusive); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a domain that is to be new: %v", err)
	}
	check(t, again.Close())
}

// TestDeviceXRCSRQ checks that the limit of an XRC SRQ raises an event, that closing an SRQ removes
// its completions from the CQ, that a message to a closed SRQ fails at the sender, and that a
// drained initiator has no outstanding requests.
func TestDeviceXRCSRQ(t *testing.T) {
	x := newCrossing(t)
	to := &x.sides[0]
	gone := must(to.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 16, XRCD: to.domain, CQ: to.cq}))(t)
	for i := range uint64(2) {
		for _, s := range []*uverbs.SRQ{gone, to.srq} {
			provide(t, s, uverbs.RecvWR{WRID: 10 + i})
			provide(t, s, uverbs.RecvWR{WRID: 20 + i})
		}
	}
	check(t, to.srq.Modify(uverbs.SRQAttr{Limit: 2}, uverbs.SRQMaskLimit))
	for range 3 {
		for _, s := range []*uverbs.SRQ{gone, to.srq} {
			post(t, x.initiator, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, RemoteSRQN: s.SRQN()})
			x.sent(t)
		}
	}
	if e := must(to.dev.NextEvent(x.ctx))(t); e.Type != uverbs.EventSRQLimitReached || e.SRQ != to.srq {
		t.Errorf("event %v", e)
	}
	n := gone.SRQN()
	check(t, gone.Close())
	for _, want := range []uint64{10, 20, 11} {
		if wc := x.done(t, to.cq); wc.WRID != want || wc.Err() != nil {
			t.Errorf("%+v, want %d", wc, want)
		}
	}
	post(t, x.initiator, uverbs.SendWR{Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{x.from.mr.SGE(0, 8)},
		RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey(), RemoteSRQN: to.srq.SRQN()})
	post(t, x.initiator, uverbs.SendWR{WRID: 9, Opcode: uverbs.OpSend, RemoteSRQN: n})
	if wc := x.done(t, x.from.cq); wc.Err() == nil || wc.WRID != 9 {
		t.Errorf("a message for an SRQ that is gone completes as %+v", wc)
	}
	check(t, x.initiator.Drain(x.ctx))
	check(t, x.target.Drain(x.ctx))
}
