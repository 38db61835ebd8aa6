package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// window creates a memory window of b's PD and an MR that windows can be bound to.
func (l *loop) window(t *testing.T, typ uverbs.MWType) (*uverbs.MW, *uverbs.MR) {
	t.Helper()
	w, err := l.pd.AllocMW(typ)
	if err != nil {
		features.Missing(t, features.MW, err)
	}
	return w, must(l.pd.Alloc(bufSize, allAccess|uverbs.MWBindAccess))(t)
}

// through writes 8 bytes to addr with a request of a, and checks that they arrive at off in mr.
func (l *loop) through(t *testing.T, mr *uverbs.MR, off int, addr uint64, rkey uint32, value string) {
	t.Helper()
	post(t, l.a.qp, uverbs.SendWR{WRID: 9, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, Inline: []byte(value),
		RemoteAddr: addr, RKey: rkey})
	l.success(t, l.a, 9, uverbs.WCWrite)
	same(t, mr.Bytes()[off:off+len(value)], []byte(value))
}

// shut checks that a WRITE of a with rkey fails.
func (l *loop) shut(t *testing.T, addr uint64, rkey uint32) {
	t.Helper()
	post(t, l.a.qp, uverbs.SendWR{WRID: 9, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, Inline: []byte("must not"),
		RemoteAddr: addr, RKey: rkey})
	if wc := l.completion(t, l.a); wc.WRID != 9 || !errors.Is(wc.Err(), uverbs.WCRemAccessErr) {
		t.Fatalf("a WRITE by key %#x: %+v", rkey, wc)
	}
}

func TestDeviceMWType1(t *testing.T) {
	for _, typ := range []uverbs.QPType{uverbs.RC, uverbs.UC} {
		t.Run(typ.String(), func(t *testing.T) {
			l := newLoop(t, nil)
			w, mr := l.window(t, uverbs.MWType1)
			binder := l.b
			if typ == uverbs.UC { // the window is bound on another QP than it is used on
				binder = l.newEnd(t, unacknowledged)
				check(t, binder.qp.Connect(endpoint(t, binder.qp)))
			}
			key := w.RKey()
			for off := 64; off < 64*5; off += 64 {
				check(t, w.Bind(binder.qp, 1, uverbs.Signaled,
					uverbs.MWRange{MR: mr, Off: off, Len: 32, Access: uverbs.RemoteWrite | uverbs.RemoteRead}))
				if w.RKey() != uverbs.IncRKey(key) {
					t.Fatalf("the key is %#x, it was %#x", w.RKey(), key)
				}
				l.success(t, binder, 1, uverbs.WCBindMW)
				l.through(t, mr, off+8, mr.Addr()+uint64(off)+8, w.RKey(), "a window")
				key = w.RKey()
			}
			if err := mr.Close(); err == nil {
				l.shut(t, mr.Addr()+64*4+8, w.RKey())
				features.Missing(t, features.MWHoldsMR, errors.New("an MR with a window was closed"))
			} else if !errors.Is(err, uverbs.ErrBusy) {
				t.Errorf("closing an MR with a window: %v", err)
			}
			check(t, w.Bind(binder.qp, 2, uverbs.Signaled, uverbs.MWRange{}))
			l.success(t, binder, 2, uverbs.WCBindMW)
			check(t, mr.Close())
			l.shut(t, mr.Addr(), w.RKey())
			check(t, w.Close())
		})
	}
}

// TestDeviceMWLimits checks that memory outside a window cannot be accessed through it.
func TestDeviceMWLimits(t *testing.T) {
	for name, reach := range map[string]func(w *uverbs.MW, mr *uverbs.MR) (addr uint64, rkey uint32, n int){
		"the key before": func(w *uverbs.MW, mr *uverbs.MR) (uint64, uint32, int) { return mr.Addr() + 64, w.RKey() - 1, 8 },
		"before it":      func(w *uverbs.MW, mr *uverbs.MR) (uint64, uint32, int) { return mr.Addr() + bufSize, w.RKey(), 8 },
		"no right":       func(w *uverbs.MW, mr *uverbs.MR) (uint64, uint32, int) { return mr.Addr() + 64, w.RKey(), 0 },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, nil)
			w, mr := l.window(t, uverbs.MWType1)
			check(t, w.Bind(l.b.qp, 1, uverbs.Signaled, uverbs.MWRange{MR: mr, Off: 64, Len: 32, Access: uverbs.RemoteWrite}))
			l.success(t, l.b, 1, uverbs.WCBindMW)
			addr, key, n := reach(w, mr)
			if n > 0 {
				l.shut(t, addr, key)
				return
			}
			post(t, l.a.qp, uverbs.SendWR{WRID: 9, Opcode: uverbs.OpRead, SGL: []uverbs.SGE{l.a.mr.SGE(0, 8)}, RemoteAddr: addr,
				RKey: key})
			if wc := l.completion(t, l.a); !errors.Is(wc.Err(), uverbs.WCRemAccessErr) {
				t.Fatalf("a READ: %+v", wc)
			}
		})
	}
}

// bindType2 binds w on b's QP with a list of requests or with a batch.
func (l *loop) bindType2(t *testing.T, w *uverbs.MW, r uverbs.MWRange, batch bool) {
	t.Helper()
	key := uverbs.IncRKey(w.RKey())
	if batch {
		s := l.b.qp.StartSend()
		s.BindMW(1, uverbs.Signaled, w, key, r)
		check(t, s.Submit())
	} else {
		post(t, l.b.qp, uverbs.SendWR{WRID: 1, Opcode: uverbs.OpBindMW, Flags: uverbs.Signaled,
			Bind: &uverbs.MWBind{MW: w, RKey: key, MWRange: r}})
	}
	l.success(t, l.b, 1, uverbs.WCBindMW)
	w.SetRKey(key)
}

func TestDeviceMWType2(t *testing.T) {
	for name, batch := range map[string]bool{"list": false, "batch": true} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, nil)
			w, mr := l.window(t, uverbs.MWType2)
			for round := range 5 {
				r := uverbs.MWRange{MR: mr, Off: 128 * round, Len: 64, Access: uverbs.RemoteWrite}
				addr := mr.Addr() + uint64(r.Off) + 8
				if round%2 == 1 { // zero-based
					r.Access |= uverbs.ZeroBased
					addr = 8
				}
				l.bindType2(t, w, r, batch)
				l.through(t, mr, r.Off+8, addr, w.RKey(), "a window")
				if batch {
					s := l.b.qp.StartSend()
					s.LocalInv(2, uverbs.Signaled, w.RKey())
					check(t, s.Submit())
				} else {
					post(t, l.b.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpLocalInv, Flags: uverbs.Signaled,
						InvalidateRKey: w.RKey()})
				}
				l.success(t, l.b, 2, uverbs.WCLocalInv)
			}
			l.shut(t, mr.Addr(), w.RKey())
		})
	}
}

// TestDeviceMWRemoteInvalidate invalidates a window with a SEND of the peer, and checks that the
// completion of the receive contains the window's key.
func TestDeviceMWRemoteInvalidate(t *testing.T) {
	for name, batch := range map[string]bool{"list": false, "batch": true} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, nil)
			w, mr := l.window(t, uverbs.MWType2)
			for range 3 {
				l.bindType2(t, w, uverbs.MWRange{MR: mr, Len: 64, Access: uverbs.RemoteWrite}, batch)
				receive(t, l.b.qp, uverbs.RecvWR{WRID: 3, SGL: []uverbs.SGE{l.b.mr.SGE(0, 64)}})
				if batch {
					s := l.a.qp.StartSend()
					s.SendInv(4, uverbs.Signaled, w.RKey())
					s.Inline([]byte("take it"))
					check(t, s.Submit())
				} else {
					post(t, l.a.qp, uverbs.SendWR{WRID: 4, Opcode: uverbs.OpSendInv, Flags: uverbs.Signaled, InvalidateRKey: w.RKey(),
						Inline: []byte("take it")})
				}
				l.success(t, l.a, 4, uverbs.WCSend)
				wc := l.success(t, l.b, 3, uverbs.WCRecv)
				if key, ok := wc.InvalidatedRKey(); !ok || key != w.RKey() || wc.ByteLen != 7 || wc.Flags&uverbs.WCWithImm != 0 {
					t.Fatalf("received %+v, want key %#x", wc, w.RKey())
				}
				same(t, l.b.mr.Bytes()[:7], []byte("take it"))
			}
			check(t, mr.Close()) // no window is bound to it any more
			l.shut(t, 0, w.RKey())
		})
	}
}

// TestDeviceMWErrors checks that requests on windows that the device refuses complete with an
// error. Newer rxe kernels flush them before they find out the cause.
func TestDeviceMWErrors(t *testing.T) {
	lenient := map[string]string{"no right to bind": features.MWBindRight, "stale key": features.MWKeyOrder}
	for name, breach := range map[string]func(t *testing.T, l *loop, w *uverbs.MW, mr *uverbs.MR) uverbs.SendWR{
		"no right to bind": func(t *testing.T, l *loop, w *uverbs.MW, _ *uverbs.MR) uverbs.SendWR {
			return uverbs.SendWR{Opcode: uverbs.OpBindMW,
				Bind: &uverbs.MWBind{MW: w, RKey: uverbs.IncRKey(w.RKey()), MWRange: uverbs.MWRange{MR: l.b.mr, Len: 8}}}
		},
		"bound twice": func(t *testing.T, l *loop, w *uverbs.MW, mr *uverbs.MR) uverbs.SendWR {
			l.bindType2(t, w, uverbs.MWRange{MR: mr, Len: 64}, false)
			return uverbs.SendWR{Opcode: uverbs.OpBindMW,
				Bind: &uverbs.MWBind{MW: w, RKey: uverbs.IncRKey(w.RKey()), MWRange: uverbs.MWRange{MR: mr, Len: 8}}}
		},
		"stale key": func(t *testing.T, l *loop, w *uverbs.MW, mr *uverbs.MR) uverbs.SendWR {
			w.SetRKey(w.RKey() + 1)
			return uverbs.SendWR{Opcode: uverbs.OpBindMW,
				Bind: &uverbs.MWBind{MW: w, RKey: uverbs.IncRKey(w.RKey()), MWRange: uverbs.MWRange{MR: mr, Len: 8}}}
		},
		"invalidated, unknown": func(t *testing.T, l *loop, w *uverbs.MW, _ *uverbs.MR) uverbs.SendWR {
			return uverbs.SendWR{Opcode: uverbs.OpLocalInv, InvalidateRKey: w.RKey() + 1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, nil)
			w, mr := l.window(t, uverbs.MWType2)
			wr := breach(t, l, w, mr)
			wr.WRID, wr.Flags = 5, uverbs.Signaled
			post(t, l.b.qp, wr)
			wc := l.completion(t, l.b)
			if feature := lenient[name]; feature != "" && wc.Err() == nil {
				features.Missing(t, feature, errors.New("the device binds it"))
			}
			if wc.WRID != 5 || wc.Status != uverbs.WCMWBindErr && wc.Status != uverbs.WCLocQPOpErr &&
				wc.Status != uverbs.WCWRFlushErr {
				t.Fatalf("completion %+v", wc)
			}
			t.Log(wc.Err())
		})
	}
}

// TestDeviceMWQPClosed checks that closing a QP on which a window is bound does not hang, and
// invalidates the window.
func TestDeviceMWQPClosed(t *testing.T) {
	l := newLoop(t, nil)
	w, mr := l.window(t, uverbs.MWType2)
	l.bindType2(t, w, uverbs.MWRange{MR: mr, Len: 64, Access: uverbs.RemoteWrite}, false)
	check(t, l.b.qp.Close())
	check(t, mr.Close())
	n, err := l.a.qp.PostSend(uverbs.SendWR{
		Opcode: uverbs.OpBindMW, Bind: &uverbs.MWBind{MW: w, RKey: 1, MWRange: uverbs.MWRange{MR: l.a.mr, Len: 1}}})
	if n != 0 || !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("the window of a closed QP: %d, %v", n, err)
	}
	check(t, w.Close())
}
