package uverbs

import (
	"errors"
	"github.com/goverbs/goverbs/internal/driver"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

func (b *bundle) withWindows(t testing.TB) *bundle {
	t.Helper()
	b.mw, b.mw1 = good(b.pd.AllocMW(MWType2))(t), good(b.pd.AllocMW(MWType1))(t)
	return b
}

func TestIncRKey(t *testing.T) {
	for in, want := range map[uint32]uint32{0: 1, 0x1234: 0x1235, 0x12ff: 0x1200, 0xffffffff: 0xffffff00} {
		if got := IncRKey(in); got != want {
			t.Errorf("IncRKey(%#x) = %#x, want %#x", in, got, want)
		}
	}
	for range 100 {
		k := rand.Uint32()
		if next := IncRKey(k); next == k || next>>8 != k>>8 {
			t.Errorf("IncRKey(%#x) = %#x", k, next)
		}
	}
}

func TestMWBind(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false).withWindows(t)
	if b.mw.Type() != MWType2 || b.mw1.Type() != MWType1 || b.mw.PD() != b.pd {
		t.Error("the windows are others")
	}
	before := b.mw1.RKey()
	check(t, b.mw1.Bind(b.qp, 7, Signaled, MWRange{MR: b.mr, Off: 8, Len: 16, Access: RemoteRead}))
	if k := b.mw1.RKey(); k != IncRKey(before) {
		t.Errorf("the key is %#x, it was %#x", k, before)
	}
	var wcs [2]WC
	if n := good(b.cq.Poll(wcs[:]))(t); n != 1 || wcs[0].WRID != 7 {
		t.Errorf("%d completions, %+v", n, wcs[0])
	}
	check(t, b.mw1.Bind(b.qp, 7, 0, MWRange{})) // unbinds the window
	// A refused bind changes nothing.
	before = b.mw1.RKey()
	if err := b.mw1.Bind(b.qp, 7, 0, MWRange{MR: b.mr, Off: 4096, Len: 1}); err != ErrRange || b.mw1.RKey() != before {
		t.Errorf("bind outside of the MR: %v, key %#x", err, b.mw1.RKey())
	}
	b.mw.SetRKey(99)
	if b.mw.RKey() != 99 {
		t.Errorf("the key is %d", b.mw.RKey())
	}
}

// TestResolveBind checks what the provider gets for an OpBindMW request.
func TestResolveBind(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false).withWindows(t)
	p := good(b.qp.resolveBind(&MWBind{MW: b.mw, RKey: 5,
		MWRange: MWRange{MR: b.mr, Off: 8, Len: 16, Access: RemoteRead | ZeroBased}}))(t)
	want := driver.Bind{Type2: true, Addr: b.mr.Addr() + 8, Length: 16, LKey: b.mr.LKey(), MWRKey: b.mw.RKey(), RKey: 5,
		Access: uint32(RemoteRead | ZeroBased)}
	if p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	p = good(b.qp.resolveBind(&MWBind{MW: b.mw1, RKey: 6}))(t)
	if want = (driver.Bind{MWRKey: b.mw1.RKey(), RKey: 6}); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
}

// badBinds returns bind requests that every post refuses.
func badBinds(t *testing.T, r *rig, b *bundle) map[string]struct {
	bind *MWBind
	want error
} {
	t.Helper()
	pd := good(r.c.AllocPD())(t)
	foreign, mr := good(pd.AllocMW(MWType1))(t), good(pd.Alloc(4096, LocalWrite))(t)
	closed := good(b.pd.AllocMW(MWType1))(t)
	check(t, closed.Close())
	gone := good(b.pd.Alloc(4096, 0))(t)
	check(t, gone.Close())
	return map[string]struct {
		bind *MWBind
		want error
	}{
		"nothing":      {nil, ErrNoMW},
		"no window":    {&MWBind{MWRange: MWRange{MR: b.mr, Len: 1}}, ErrNoMW},
		"closed":       {&MWBind{MW: closed}, ErrClosed},
		"foreign":      {&MWBind{MW: foreign}, ErrForeignMW},
		"foreign MR":   {&MWBind{MW: b.mw, MWRange: MWRange{MR: mr, Len: 1}}, ErrForeignMW},
		"closed MR":    {&MWBind{MW: b.mw, MWRange: MWRange{MR: gone}}, ErrRange},
		"negative":     {&MWBind{MW: b.mw, MWRange: MWRange{MR: b.mr, Off: -1, Len: 1}}, ErrRange},
		"long":         {&MWBind{MW: b.mw, MWRange: MWRange{MR: b.mr, Off: 1, Len: 4096}}, ErrRange},
		"wraps":        {&MWBind{MW: b.mw, MWRange: MWRange{MR: b.mr, Off: 1, Len: -1 << 63}}, ErrRange},
		"length of no": {&MWBind{MW: b.mw, MWRange: MWRange{Len: 1}}, ErrRange},
		"rights to no": {&MWBind{MW: b.mw, MWRange: MWRange{Access: RemoteRead}}, ErrRange},
	}
}

func TestBadBinds(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false).withWindows(t)
	for name, c := range badBinds(t, r, b) {
		if n, err := b.qp.PostSend(SendWR{Opcode: OpSend}, SendWR{Opcode: OpBindMW, Bind: c.bind}); n != 1 ||
			!errors.Is(err, c.want) {
			t.Errorf("%s: PostSend: %d, %v; want 1, %v", name, n, err, c.want)
		}
		s := b.qp.StartSend()
		s.Send(1, Signaled)
		if c.bind == nil {
			s.BindMW(1, 0, nil, 0, MWRange{})
		} else {
			s.BindMW(1, 0, c.bind.MW, c.bind.RKey, c.bind.MWRange)
		}
		s.Send(2, Signaled)
		if err := s.Submit(); !errors.Is(err, c.want) {
			t.Errorf("%s: Submit: %v, want %v", name, err, c.want)
		}
		s = b.qp.StartSend()
		s.Send(1, Signaled)
		s.Inline(make([]byte, b.qp.Cap().MaxInline+1)) // the first error, which Submit reports
		s.BindMW(1, 0, b.mw, 0, MWRange{MR: b.mr, Len: -1})
		if err := s.Submit(); !errors.Is(err, ErrInlineTooLong) {
			t.Errorf("%s: Submit: %v, want %v", name, err, ErrInlineTooLong)
		}
		if n := good(b.cq.Poll(make([]WC, 4)))(t); n != 0 {
			t.Errorf("%s: %d requests of a bad batch completed", name, n)
		}
	}
}

// TestMWLife checks that windows are closed with any QP that they were bound on, and that Close of
// the Context destroys them before the objects that they are bound to.
func TestMWLife(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false).withWindows(t)
	other := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 4, MaxRecvWR: 4}))(t)
	check(t, other.Connect(good(b.qp.Endpoint())(t)))
	moved := good(b.pd.AllocMW(MWType2))(t)
	bind := func(q *QP, w *MW) error {
		return second(q.PostSend(SendWR{Opcode: OpBindMW, Bind: &MWBind{MW: w, RKey: 1, MWRange: MWRange{MR: b.mr, Len: 1}}}))
	}
	check(t, bind(b.qp, b.mw))
	check(t, bind(b.qp, moved))
	check(t, bind(other, moved))
	check(t, b.mw1.Bind(b.qp, 1, 0, MWRange{MR: b.mr, Len: 1}))
	if err := b.pd.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("PD with windows: %v", err)
	}
	check(t, b.qp.Close())
	if err := bind(other, b.mw); !errors.Is(err, ErrClosed) {
		t.Errorf("the window of the closed QP: %v", err)
	}
	check(t, b.mw.Close())
	if err := bind(other, moved); !errors.Is(err, ErrClosed) { // it is not known on which QP it is bound
		t.Errorf("the window that was bound on the closed QP too: %v", err)
	}
	check(t, b.mw1.Bind(other, 1, 0, MWRange{MR: b.mr, Len: 1}))
	if n := r.k.Count("MW.DESTROY"); n != 2 {
		t.Errorf("%d windows destroyed, want 2", n)
	}
	check(t, r.c.Close())
	order := r.k.Log()
	last := map[string]int{}
	for i, name := range order {
		last[name] = i
	}
	if last["MW.DESTROY"] > last["QP.DESTROY"] || last["MW.DESTROY"] > last["MR.DESTROY"] {
		t.Errorf("windows are destroyed after what they are bound to: %v", order)
	}
}

// TestMWNotMoved checks that a window is closed with the QP that it is bound on, even after a bind
// on another QP that failed or was aborted: the kernel must not be asked to destroy a QP with a
// bound window.
func TestMWNotMoved(t *testing.T) {
	for name, try := range map[string]func(t *testing.T, q *QP, bind *MWBind){
		"aborted": func(t *testing.T, q *QP, bind *MWBind) {
			s := q.StartSend()
			s.BindMW(1, 0, bind.MW, bind.RKey, bind.MWRange)
			s.Abort()
		},
		"refused": func(t *testing.T, q *QP, bind *MWBind) {
			s := q.StartSend()
			s.BindMW(1, 0, bind.MW, bind.RKey, bind.MWRange)
			s.Send(2, 0)
			s.SGE(SGE{Length: badLength})
			if err := s.Submit(); !errors.Is(err, ErrRange) {
				t.Error(err)
			}
		},
		"in vain": func(t *testing.T, q *QP, bind *MWBind) { good(q.PostSend(SendWR{Opcode: OpBindMW, Bind: bind}))(t) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			b := r.bundle(t, false).withWindows(t)
			other := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 4, MaxRecvWR: 4}))(t)
			check(t, other.Connect(good(b.qp.Endpoint())(t)))
			bind := MWBind{MW: b.mw, RKey: 1, MWRange: MWRange{MR: b.mr, Len: 1}}
			good(b.qp.PostSend(SendWR{Opcode: OpBindMW, Bind: &bind}))(t)
			try(t, other, &bind)
			check(t, b.qp.Close())
			if n := r.k.Count("MW.DESTROY"); n != 1 {
				t.Error("the QP was destroyed with a window bound on it")
			}
			check(t, other.Close())
			if len(b.qp.windows.all)+len(other.windows.all)+len(b.mw.owners) != 0 {
				t.Error("the closed window is still known")
			}
		})
	}
}

func TestInvalidatedRKey(t *testing.T) {
	for _, c := range []struct {
		wc   WC
		want uint32
		ok   bool
	}{{WC{Imm: 7, Flags: WCWithInv | WCGRH}, 7, true}, {WC{Imm: 7, Flags: WCWithImm}, 0, false}, {WC{}, 0, false}} {
		if k, ok := c.wc.InvalidatedRKey(); k != c.want || ok != c.ok {
			t.Errorf("%+v: %d, %v", c.wc, k, ok)
		}
	}
}

// mwErrors returns a part of the cases of TestErrorTexts.
func mwErrors(t *testing.T) []errorCase {
	r := newRig(t)
	b := r.bundle(t, false).withWindows(t)
	inv := []error{ErrInvalid, unix.EINVAL}
	refused := func(errno unix.Errno) error {
		r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"ALLOC_MW": errno} })
		defer r.k.Set(func() { r.k.Refuse = nil })
		return second(b.pd.AllocMW(MWType1))
	}
	closed := good(r.c.AllocPD())(t)
	check(t, closed.Close())
	return []errorCase{
		{"window of another type", second(b.pd.AllocMW(3)), inv},
		{"window, not supported", refused(unix.EOPNOTSUPP), []error{ErrNotSupported}},
		{"window, none left", refused(unix.ENOMEM), []error{unix.ENOMEM}},
		{"window of a closed PD", second(closed.AllocMW(MWType1)), []error{ErrClosed}},
		{"Bind of type 2", b.mw.Bind(b.qp, 1, 0, MWRange{}), inv},
		{"Bind, ZeroBased", b.mw1.Bind(b.qp, 1, 0, MWRange{MR: b.mr, Len: 1, Access: ZeroBased}), inv},
	}
}
