package devicetest

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceNothingAllocated checks that posting each operation and polling its completion does not
// allocate, if the literals of the request are at the call site.
func TestDeviceNothingAllocated(t *testing.T) {
	l := newLoop(t, flushing)
	caps := must(l.dev.QueryDevice())(t).CapFlags
	w1, mr := l.window(t, uverbs.MWType1)
	w2 := must(l.pd.AllocMW(uverbs.MWType2))(t)
	fm := l.b.mr
	if caps&uverbs.DeviceFlushGlobal != 0 {
		fm = must(l.pd.Alloc(4096, allAccess|uverbs.FlushGlobal))(t)
	}
	q, a, b := l.a.qp, l.a.mr, l.b.mr
	for name, c := range map[string]struct {
		needs uverbs.DeviceCapFlags
		post  func() error // posts one signaled request
		recv  bool
	}{
		"SEND": {0, func() error {
			_, err := q.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
				SGL: []uverbs.SGE{a.SGE(0, 8), a.SGE(8, 8)}})
			return err
		}, true},
		"windows": {0, func() error {
			k := uverbs.IncRKey(w2.RKey())
			_, err := q.PostSend(
				uverbs.SendWR{Opcode: uverbs.OpBindMW, Bind: &uverbs.MWBind{
					MW: w2, RKey: k, MWRange: uverbs.MWRange{MR: mr, Len: 64, Access: uverbs.RemoteRead}}},
				uverbs.SendWR{Opcode: uverbs.OpLocalInv, InvalidateRKey: k},
				uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
			w2.SetRKey(k)
			return err
		}, true},
		"batch of windows": {0, func() error {
			s := q.StartSend()
			k := uverbs.IncRKey(w2.RKey())
			s.BindMW(1, 0, w2, k, uverbs.MWRange{MR: mr, Len: 64, Access: uverbs.RemoteRead})
			s.LocalInv(1, 0, k)
			w2.SetRKey(k)
			s.SendImm(1, uverbs.Signaled, 7)
			s.Inline([]byte("literal"))
			return s.Submit()
		}, true},
		"WRITE": {0, func() error {
			_, err := q.PostSend(uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, Inline: []byte("literal"),
				RemoteAddr: b.Addr(), RKey: b.RKey()})
			return err
		}, false},
		"WRITE_IMM": {0, func() error {
			_, err := q.PostSend(uverbs.SendWR{Opcode: uverbs.OpWriteImm, Flags: uverbs.Signaled, SGL: []uverbs.SGE{a.SGE(0, 8)},
				RemoteAddr: b.Addr(), RKey: b.RKey(), Imm: 5})
			return err
		}, true},
		"atomics": {0, func() error {
			_, err := q.PostSend(
				uverbs.SendWR{Opcode: uverbs.OpRead, SGL: []uverbs.SGE{a.SGE(0, 8)}, RemoteAddr: b.Addr(), RKey: b.RKey()},
				uverbs.SendWR{Opcode: uverbs.OpCompareSwap, SGL: []uverbs.SGE{a.SGE(0, 8)}, RemoteAddr: b.Addr(), RKey: b.RKey(),
					Swap: 5},
				uverbs.SendWR{Opcode: uverbs.OpFetchAdd, Flags: uverbs.Signaled, SGL: []uverbs.SGE{a.SGE(0, 8)},
					RemoteAddr: b.Addr(), RKey: b.RKey(), CompareAdd: 5})
			return err
		}, false},
		"batch of atomics": {0, func() error {
			s := q.StartSend()
			s.Read(1, 0, b.Addr(), b.RKey())
			s.SGE(a.SGE(0, 8))
			s.CompareSwap(1, 0, b.Addr(), b.RKey(), 1, 2)
			s.SGE(a.SGE(0, 8))
			s.FetchAdd(1, uverbs.Signaled, b.Addr(), b.RKey(), 1)
			s.SGE(a.SGE(0, 8))
			return s.Submit()
		}, false},
		"Bind": {0, func() error {
			return w1.Bind(q, 1, uverbs.Signaled, uverbs.MWRange{MR: mr, Len: 64, Access: uverbs.RemoteRead})
		}, false},
		"FLUSH": {uverbs.DeviceFlushGlobal, func() error {
			_, err := q.PostSend(uverbs.SendWR{Opcode: uverbs.OpFlush, Flags: uverbs.Signaled, RemoteAddr: fm.Addr(),
				RKey: fm.RKey(), FlushLength: 8, Placement: uverbs.PlacementGlobal})
			return err
		}, false},
		"ATOMIC_WRITE": {uverbs.DeviceAtomicWrite, func() error {
			_, err := q.PostSend(uverbs.SendWR{Opcode: uverbs.OpAtomicWrite, Flags: uverbs.Signaled, RemoteAddr: b.Addr(),
				RKey: b.RKey(), Swap: 8})
			return err
		}, false},
		"batch of FLUSH and ATOMIC_WRITE": {uverbs.DeviceAtomicWrite | uverbs.DeviceFlushGlobal, func() error {
			s := q.StartSend()
			s.Flush(1, 0, fm.Addr(), fm.RKey(), 8, uverbs.PlacementGlobal, uverbs.SelectRange)
			s.AtomicWrite(1, uverbs.Signaled, b.Addr(), b.RKey(), 5)
			return s.Submit()
		}, false},
	} {
		if caps&c.needs != c.needs {
			continue
		}
		n := testing.AllocsPerRun(50, func() {
			if c.recv {
				if _, err := l.b.qp.PostRecv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{b.SGE(0, 64)}}); err != nil {
					t.Fatal(name, err)
				}
			}
			if err := c.post(); err != nil {
				t.Fatal(name, err)
			}
			take(t, l.a.cq)
			if c.recv {
				take(t, l.b.cq)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// take polls until it gets one completion.
func take(t *testing.T, cq *uverbs.CQ) {
	for {
		var wcs [2]uverbs.WC
		n, err := cq.Poll(wcs[:])
		if err != nil || n > 0 && wcs[0].Err() != nil {
			t.Fatal(err, wcs[0].Err())
		}
		if n > 0 {
			return
		}
	}
}
