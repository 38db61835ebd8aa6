package devicetest

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

func word(m *uverbs.MR, off int) uint64 { return binary.NativeEndian.Uint64(m.Bytes()[off:]) }

func setWord(m *uverbs.MR, off int, v uint64) { binary.NativeEndian.PutUint64(m.Bytes()[off:], v) }

// atomic returns a signaled atomic of l.a on the first word of l.b. The previous value is
// stored in the second word of l.a.
func (l *loop) atomic(op uverbs.Opcode, compareAdd, swap uint64) uverbs.SendWR {
	return uverbs.SendWR{WRID: 1, Opcode: op, Flags: uverbs.Signaled, SGL: []uverbs.SGE{l.a.mr.SGE(8, 8)},
		RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey(), CompareAdd: compareAdd, Swap: swap}
}

func TestDeviceAtomics(t *testing.T) {
	l := newLoop(t, nil)
	const first, second = 0x1122334455667788, 0x99aabbccddeeff00
	setWord(l.b.mr, 0, first)
	for i, step := range []struct {
		wr        uverbs.SendWR
		op        uverbs.WCOpcode
		was, then uint64
	}{
		{l.atomic(uverbs.OpCompareSwap, first+1, second), uverbs.WCCompareSwap, first, first},
		{l.atomic(uverbs.OpCompareSwap, first, second), uverbs.WCCompareSwap, first, second},
		{l.atomic(uverbs.OpFetchAdd, 3, 0), uverbs.WCFetchAdd, second, second + 3},
		{l.atomic(uverbs.OpFetchAdd, ^uint64(0), 0), uverbs.WCFetchAdd, second + 3, second + 2},
	} {
		setWord(l.a.mr, 8, 0)
		post(t, l.a.qp, step.wr)
		if wc := l.success(t, l.a, 1, step.op); wc.ByteLen != 8 {
			t.Errorf("step %d: completion %+v", i, wc)
		}
		if was, then := word(l.a.mr, 8), word(l.b.mr, 0); was != step.was || then != step.then {
			t.Errorf("step %d: it was %#x and is %#x, want %#x and %#x", i, was, then, step.was, step.then)
		}
	}
	b := l.a.qp.StartSend()
	b.FetchAdd(1, 0, l.b.mr.Addr(), l.b.mr.RKey(), 5)
	b.SGE(l.a.mr.SGE(8, 8))
	b.CompareSwap(2, uverbs.Signaled, l.b.mr.Addr(), l.b.mr.RKey(), second+7, 1)
	b.SGE(l.a.mr.SGE(16, 8))
	check(t, b.Submit())
	l.success(t, l.a, 2, uverbs.WCCompareSwap)
	if x, y, z := word(l.a.mr, 8), word(l.a.mr, 16), word(l.b.mr, 0); x != second+2 || y != second+7 || z != 1 {
		t.Errorf("%#x, %#x, %#x", x, y, z)
	}
}

// TestDeviceAtomicsContended adds to one word from several QPs concurrently. Each has more
// outstanding requests than the peer can serve at a time. No addition may be lost.
func TestDeviceAtomicsContended(t *testing.T) {
	const pairs, rounds, list = 4, 10, 32
	l := newLoop(t, nil)
	setWord(l.b.mr, 0, 0)
	var all sync.WaitGroup
	for range pairs {
		a, b := l.newEnd(t, nil), l.newEnd(t, nil)
		ea, eb := endpoint(t, a.qp), endpoint(t, b.qp)
		check(t, a.qp.Connect(eb))
		check(t, b.qp.Connect(ea))
		all.Go(func() {
			for range rounds {
				s := a.qp.StartSend()
				for i := range list {
					var f uverbs.SendFlags
					if i == list-1 {
						f = uverbs.Signaled
					}
					s.FetchAdd(1, f, l.b.mr.Addr(), l.b.mr.RKey(), 1)
					s.SGE(a.mr.SGE(8*i, 8))
				}
				if err := s.Submit(); err != nil {
					t.Error(err)
					return
				}
				var wcs [1]uverbs.WC
				if _, err := a.cq.PollWait(l.ctx, wcs[:]); err != nil || wcs[0].Err() != nil {
					t.Error(err, wcs[0].Err())
					return
				}
				for i := range list - 1 {
					if word(a.mr, 8*i) >= word(a.mr, 8*i+8) {
						t.Errorf("request %d found %d, the one after it %d", i, word(a.mr, 8*i), word(a.mr, 8*i+8))
					}
				}
			}
		})
	}
	all.Wait()
	if n := word(l.b.mr, 0); n != pairs*rounds*list {
		t.Errorf("the word is %d after %d additions", n, pairs*rounds*list)
	}
}

// recovers ends a test that has sent a misaligned atomic, if the peer's QP serves no request after
// that, not even after RESET.
func (l *loop) recovers(t *testing.T) {
	t.Helper()
	l.reconnect(t)
	receive(t, l.b.qp, uverbs.RecvWR{WRID: 7})
	post(t, l.a.qp, uverbs.SendWR{WRID: 8, Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
	if wc := l.completion(t, l.a); errors.Is(wc.Err(), uverbs.WCRemAccessErr) {
		features.Missing(t, features.AtomicRecovery, wc.Err())
	}
	l.success(t, l.b, 7, uverbs.WCRecv)
}

// TestDeviceAtomicErrors breaks each rule of atomics, and checks the status.
func TestDeviceAtomicErrors(t *testing.T) {
	for _, test := range []struct {
		name   string
		adjust func(*uverbs.QPConfig)
		breach func(*testing.T, *loop, *uverbs.SendWR)
		want   uverbs.WCStatus
	}{
		{"misaligned", nil, func(_ *testing.T, _ *loop, wr *uverbs.SendWR) { wr.RemoteAddr += 4 }, uverbs.WCRemInvReqErr},
		{"wrong rkey", nil, func(_ *testing.T, _ *loop, wr *uverbs.SendWR) { wr.RKey += 0x100 }, uverbs.WCRemAccessErr},
		{"behind the end", nil, func(_ *testing.T, _ *loop, wr *uverbs.SendWR) { wr.RemoteAddr += bufSize },
			uverbs.WCRemAccessErr},
		{"MR without RemoteAtomic", nil, func(t *testing.T, l *loop, wr *uverbs.SendWR) {
			mr := must(l.pd.Alloc(4096, uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteRead))(t)
			wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey()
		}, uverbs.WCRemAccessErr},
		{"QP without RemoteAtomic", func(c *uverbs.QPConfig) { c.Access &^= uverbs.RemoteAtomic },
			func(*testing.T, *loop, *uverbs.SendWR) {}, uverbs.WCRemInvReqErr},
		{"result to memory without LocalWrite", nil, func(t *testing.T, l *loop, wr *uverbs.SendWR) {
			mr := must(l.pd.Alloc(4096, 0))(t)
			wr.SGL = []uverbs.SGE{mr.SGE(0, 8)}
		}, uverbs.WCLocProtErr},
	} {
		for _, op := range []uverbs.Opcode{uverbs.OpCompareSwap, uverbs.OpFetchAdd} {
			t.Run(test.name+"/"+op.String(), func(t *testing.T) {
				l := newLoop(t, test.adjust)
				wr := l.atomic(op, 1, 2)
				test.breach(t, l, &wr)
				post(t, l.a.qp, wr)
				if wc := l.completion(t, l.a); !errors.Is(wc.Err(), test.want) {
					t.Errorf("completion %v, want %v", wc.Err(), test.want)
				}
				if test.name == "misaligned" {
					l.recovers(t)
				}
				l.revive(t)
			})
		}
	}
	l := newLoop(t, nil)
	wr := l.atomic(uverbs.OpFetchAdd, 1, 0)
	wr.SGL = []uverbs.SGE{l.a.mr.SGE(0, 16)}
	if n, err := l.a.qp.PostSend(wr); n != 0 || !errors.Is(err, uverbs.ErrAtomicSize) {
		t.Errorf("16 bytes: %d, %v", n, err)
	}
}
