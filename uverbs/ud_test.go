package uverbs

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"golang.org/x/sys/unix"
)

// A meeting is a UD QP in RTS that uses an SRQ, and an AH.
type meeting struct {
	srq *SRQ
	qp  *QP
	ah  *AH
}

// somewhere is a destination that the fake kernel's port can reach.
var somewhere = AHAttr{IsGlobal: true, DGID: GID{0: 0x20, 15: 9}, SGIDIndex: 2, HopLimit: 64, Port: 1}

func (r *rig) meeting(t testing.TB, b *bundle, single bool) *meeting {
	t.Helper()
	m := new(meeting)
	m.srq = good(b.pd.CreateSRQ(SRQConfig{MaxWR: 64, MaxSGE: 2, SingleGoroutine: single}))(t)
	m.qp = good(b.pd.CreateQP(QPConfig{Type: UD, SendCQ: b.cq, SRQ: m.srq, MaxSendWR: 64, MaxSendSGE: 2, MaxInline: 64,
		SingleGoroutine: single}))(t)
	m.ah = good(b.pd.CreateAH(somewhere))(t)
	check(t, m.qp.Ready())
	return m
}

func (m *meeting) request() SendWR {
	return SendWR{WRID: 1, Opcode: OpSend, Flags: Signaled, AH: m.ah, QPN: 5, QKey: 6}
}

// TestReady checks that Ready opens the gates one by one, as Connect does.
func TestReady(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	qp := good(b.pd.CreateQP(QPConfig{Type: UD, SendCQ: b.cq, MaxSendWR: 4, MaxRecvWR: 4, QKey: 7}))(t)
	ah := good(b.pd.CreateAH(somewhere))(t)
	expect := func(state QPState, send, recv error) {
		t.Helper()
		if s := qp.State(); s != state {
			t.Errorf("the QP is in %v, want %v", s, state)
		}
		if _, err := qp.PostSend(SendWR{Opcode: OpSend, AH: ah}); err != send {
			t.Errorf("%v: PostSend: %v, want %v", state, err, send)
		}
		if _, err := qp.PostRecv(RecvWR{}); err != recv {
			t.Errorf("%v: PostRecv: %v, want %v", state, err, recv)
		}
	}
	expect(StateReset, ErrState, ErrState)
	check(t, qp.Init())
	expect(StateInit, ErrState, nil)
	check(t, qp.Ready())
	expect(StateRTS, nil, nil)
	if qp.PD() != b.pd || ah.PD() != b.pd || qp.SRQ() != nil || qp.port.Load() != 1 {
		t.Error("the QP does not know what it is made of")
	}
	if err := b.qp.Ready(); !errors.Is(err, ErrInvalid) {
		t.Errorf("Ready of an RC QP: %v", err)
	}
	if err := qp.Connect(good(b.qp.Endpoint())(t)); !errors.Is(err, ErrInvalid) {
		t.Errorf("Connect of a UD QP: %v", err)
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if err := qp.Handshake(context.Background(), near); !errors.Is(err, ErrInvalid) {
		t.Errorf("Handshake of a UD QP: %v", err)
	}
	check(t, qp.Modify(QPAttr{State: StateReset}, MaskState))
	check(t, qp.Ready())
	expect(StateRTS, nil, nil)
	for name, state := range map[string]QPState{"INIT": StateInit, "RTR": StateRTR, "RTS": StateRTS} {
		r.k.Refuse = nil
		check(t, qp.Modify(QPAttr{State: StateReset}, MaskState))
		r.k.Before = func(m *ioctltest.Msg) {
			if m.Name == "MODIFY_QP" && qp.state+1 == state { // Modify holds the lock here
				r.k.Refuse = map[string]unix.Errno{"MODIFY_QP": unix.ENOMEM}
			}
		}
		if err := qp.Ready(); !errors.Is(err, unix.ENOMEM) {
			t.Errorf("the move to %s is refused: %v", name, err)
		}
		r.k.Before = nil
		r.k.Refuse = nil
	}
}

// TestAHOfAPost checks that a post accepts only an open AH of the QP's PD, and that the error names
// the cause.
func TestAHOfAPost(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.meeting(t, b, false)
	other := good(r.c.AllocPD())(t)
	foreign := good(other.CreateAH(somewhere))(t)
	closed := good(b.pd.CreateAH(somewhere))(t)
	check(t, closed.Close())
	good(m.qp.PostSend(m.request()))(t)
	if got, want := r.p.qps[1].last, *m.ah.shared.AV(); got != want || want[0] == 0 {
		t.Errorf("the datagram goes to %v, want %v", got, want)
	}
	for name, c := range map[string]struct {
		ah *AH
		is []error
	}{
		"nil":     {nil, []error{ErrNoAH, unix.EINVAL}},
		"foreign": {foreign, []error{ErrForeignAH, unix.EINVAL}},
		"closed":  {closed, []error{ErrClosed, unix.EBADF}},
	} {
		bad := m.request()
		bad.AH = c.ah
		batch := m.qp.StartSend()
		batch.Send(1, 0)
		batch.UDAddr(c.ah, 5, 6)
		submitted := batch.Submit()
		n, posted := m.qp.PostSend(m.request(), bad, m.request())
		for _, is := range c.is {
			if n != 1 || !errors.Is(posted, is) || !errors.Is(submitted, is) {
				t.Errorf("%s: PostSend: %d, %v; Submit: %v; want 1, %v", name, n, posted, submitted, is)
			}
		}
	}
	// An AH that the kernel does not destroy stays open.
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"AH.DESTROY": unix.EPERM} })
	if err := m.ah.Close(); !errors.Is(err, unix.EPERM) {
		t.Errorf("a refused Close: %v", err)
	}
	r.k.Set(func() { r.k.Refuse = nil })
	good(m.qp.PostSend(m.request()))(t)
}

// TestMcast checks that Close detaches a QP from its groups before it destroys the QP.
func TestMcast(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.meeting(t, b, false)
	groups := []GID{{0: 0xff, 1: 0x0e, 15: 1}, {10: 0xff, 11: 0xff, 12: 239, 15: 2}, {0: 0xff, 1: 0x0e, 15: 3}}
	for _, g := range groups {
		check(t, m.qp.AttachMcast(g, 0))
		check(t, m.qp.AttachMcast(g, 0))
	}
	check(t, m.qp.DetachMcast(groups[2], 0))
	for name, err := range map[string]error{
		"not attached":    m.qp.DetachMcast(groups[2], 0),
		"another LID":     m.qp.DetachMcast(groups[1], 7),
		"no group":        m.qp.AttachMcast(somewhere.DGID, 0),
		"group of RC":     b.qp.AttachMcast(groups[0], 0),
		"group of RC, de": b.qp.DetachMcast(groups[0], 0),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// If the QP cannot be detached from a group, it stays open and works.
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"DETACH_MCAST": unix.EPERM} })
	if err := m.qp.Close(); !errors.Is(err, unix.EPERM) {
		t.Errorf("Close: %v", err)
	}
	r.k.Set(func() { r.k.Refuse = nil })
	good(m.qp.PostSend(m.request()))(t)
	before := len(r.k.Log())
	check(t, m.qp.Close())
	if got := r.k.Log()[before:]; !slices.Equal(got, []string{"DETACH_MCAST", "DETACH_MCAST", "QP.DESTROY"}) {
		t.Errorf("Close issued %v", got)
	}
	for _, err := range []error{m.qp.AttachMcast(groups[0], 0), m.qp.DetachMcast(groups[0], 0)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	// Context.Close does the same.
	again := r.meeting(t, b, false)
	check(t, again.qp.AttachMcast(groups[0], 0))
}

func TestSRQ(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.meeting(t, b, false)
	if m.srq.MaxWR() != 64 || m.srq.MaxSGE() != 2 || m.srq.Context() != r.c || m.qp.SRQ() != m.srq {
		t.Errorf("the SRQ has %d receives of %d SGEs", m.srq.MaxWR(), m.srq.MaxSGE())
	}
	if n, err := m.srq.PostRecv(make([]RecvWR, 65)...); n != 64 || err != ErrQueueFull {
		t.Errorf("PostRecv of 65: %d, %v", n, err)
	}
	for _, s := range []QPState{StateRTS, StateErr, StateReset} {
		if s != StateRTS {
			check(t, m.qp.Modify(QPAttr{State: s}, MaskState))
		}
		if n, err := m.qp.PostRecv(RecvWR{}); n != 0 || err != ErrSRQ {
			t.Errorf("PostRecv on the QP in %v: %d, %v", s, n, err)
		}
	}
	for _, f := range []func() error{m.srq.Close, b.pd.Close} {
		if err := f(); !errors.Is(err, ErrBusy) {
			t.Errorf("Close with children: %v", err)
		}
	}
	check(t, m.srq.Modify(SRQAttr{MaxWR: 100, Limit: 20}, SRQMaskMaxWR|SRQMaskLimit))
	if a := good(m.srq.Query())(t); a != (SRQAttr{100, 2, 20}) || m.srq.MaxWR() != 100 {
		t.Errorf("modified: %+v", a)
	}
	check(t, r.k.Async(r.k.UserHandle(m.srq.handle), uint32(EventSRQLimitReached)))
	if e := good(r.c.NextEvent(context.Background()))(t); e != (AsyncEvent{Type: EventSRQLimitReached, SRQ: m.srq}) {
		t.Errorf("event %+v", e)
	}
	check(t, r.k.Async(r.k.UserHandle(m.qp.handle), uint32(EventQPLastWQEReached)))
	if e := good(r.c.NextEvent(context.Background()))(t); e != (AsyncEvent{Type: EventQPLastWQEReached, QP: m.qp}) {
		t.Errorf("event %+v", e)
	}
	check(t, m.qp.Close())
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"SRQ.DESTROY": unix.EPERM} })
	if err := m.srq.Close(); !errors.Is(err, unix.EPERM) {
		t.Errorf("a refused Close: %v", err)
	}
	r.k.Set(func() { r.k.Refuse = nil })
	good(m.srq.Query())(t)
	check(t, m.srq.Close())
	check(t, m.srq.Close())
}

// TestMaxDatagram checks that the longest message is the MTU of the QP's port, if the kernel
// reports one.
func TestMaxDatagram(t *testing.T) {
	r := newRig(t)
	m := r.meeting(t, r.bundle(t, false), false)
	expect := func(want uint64) {
		t.Helper()
		if got := (*qpOwner)(m.qp).MTU(); got != want {
			t.Errorf("%d bytes, want %d", got, want)
		}
	}
	expect(1024)
	r.k.Set(func() { r.k.Ports[0].ActiveMtu = 5 })
	expect(4096)
	r.k.Set(func() { r.k.Ports[0].ActiveMtu = 0 })
	expect(MaxMessage)
	m.qp.port.Store(9)
	expect(MaxMessage)
}
