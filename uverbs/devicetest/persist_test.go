package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

func flushing(c *uverbs.QPConfig) { c.Access |= uverbs.FlushGlobal | uverbs.FlushPersistent }

// capable skips the test if the device does not report the capability cap. Before that it checks
// the result of a request that needs it: rxe of a kernel without the operation completes it with an
// error, mlx5 refuses to post it.
func capable(t *testing.T, l *loop, cap uverbs.DeviceCapFlags, feature string, wr uverbs.SendWR) {
	t.Helper()
	if must(l.dev.QueryDevice())(t).CapFlags&cap != 0 {
		return
	}
	if _, err := l.a.qp.PostSend(wr); errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, feature, err)
	} else {
		check(t, err)
	}
	wc := l.completion(t, l.a)
	if wc.WRID != wr.WRID || wc.Status != uverbs.WCLocQPOpErr && wc.Status != uverbs.WCWRFlushErr {
		t.Fatalf("completion %+v of %v, which the device does not have", wc, wr.Opcode)
	}
	l.revive(t)
	features.Missing(t, feature, wc.Err())
}

func TestDeviceFlush(t *testing.T) {
	probe := newLoop(t, nil)
	capable(t, probe, uverbs.DeviceFlushGlobal, features.Flush,
		uverbs.SendWR{WRID: 1, Opcode: uverbs.OpFlush, RemoteAddr: probe.b.mr.Addr(),
			RKey: probe.b.mr.RKey(), FlushLength: 8, Placement: uverbs.PlacementGlobal})
	l := newLoop(t, flushing)
	mr := must(l.pd.Alloc(bufSize, uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.FlushGlobal))(t)
	for _, n := range []int{1, 4096, bufSize} {
		l.a.fill(byte(n))
		write := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{l.a.mr.SGE(0, n)}, RemoteAddr: mr.Addr(),
			RKey: mr.RKey()}
		flush := uverbs.SendWR{WRID: 2, Opcode: uverbs.OpFlush, Flags: uverbs.Signaled, RemoteAddr: mr.Addr(),
			RKey: mr.RKey(), FlushLength: uint32(n), Placement: uverbs.PlacementGlobal}
		post(t, l.a.qp, write, flush)
		l.success(t, l.a, 2, uverbs.WCFlush)
		same(t, mr.Bytes()[:n], l.a.mr.Bytes()[:n])
		b := l.a.qp.StartSend()
		b.Flush(3, uverbs.Signaled, mr.Addr(), mr.RKey(), uint32(n), uverbs.PlacementGlobal, uverbs.SelectRange)
		b.Flush(4, uverbs.Signaled, 0, mr.RKey(), 0, uverbs.PlacementGlobal, uverbs.SelectMR)
		check(t, b.Submit())
		l.success(t, l.a, 3, uverbs.WCFlush)
		l.success(t, l.a, 4, uverbs.WCFlush)
	}
}

func TestDeviceFlushErrors(t *testing.T) {
	for name, c := range map[string]struct {
		access uverbs.Access
		adjust func(*uverbs.QPConfig)
		wr     uverbs.SendWR
		want   uverbs.WCStatus
	}{
		"MR without the right": {allAccess, flushing, uverbs.SendWR{FlushLength: 8, Placement: uverbs.PlacementGlobal},
			uverbs.WCRemAccessErr},
		"QP without the right": {allAccess | uverbs.FlushGlobal, nil,
			uverbs.SendWR{FlushLength: 8, Placement: uverbs.PlacementGlobal}, uverbs.WCRemInvReqErr},
		// Ordinary memory does not survive a loss of power.
		"persistence": {allAccess | uverbs.FlushGlobal, flushing,
			uverbs.SendWR{FlushLength: 8, Placement: uverbs.PlacementPersistent}, uverbs.WCRemAccessErr},
		"beyond": {allAccess | uverbs.FlushGlobal, flushing,
			uverbs.SendWR{FlushLength: bufSize + 1, Placement: uverbs.PlacementGlobal}, uverbs.WCRemAccessErr},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, c.adjust)
			mr, err := l.pd.Alloc(bufSize, c.access)
			if errors.Is(err, uverbs.ErrNotSupported) {
				features.Missing(t, features.Flush, err)
			}
			check(t, err)
			wr := c.wr
			wr.WRID, wr.Opcode, wr.RemoteAddr, wr.RKey = 1, uverbs.OpFlush, mr.Addr(), mr.RKey()
			if c.access == allAccess {
				capable(t, l, uverbs.DeviceFlushGlobal, features.Flush, wr)
			}
			post(t, l.a.qp, wr)
			if wc := l.completion(t, l.a); !errors.Is(wc.Err(), c.want) {
				t.Errorf("completion %v, want %v", wc.Err(), c.want)
			}
			l.revive(t)
		})
	}
}

func TestDeviceAtomicWrite(t *testing.T) {
	l := newLoop(t, nil)
	wr := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpAtomicWrite, Flags: uverbs.Signaled, RemoteAddr: l.b.mr.Addr() + 16,
		RKey: l.b.mr.RKey(), Swap: 0x1122334455667788}
	capable(t, l, uverbs.DeviceAtomicWrite, features.AtomicWrite, wr)
	setWord(l.b.mr, 8, 1)
	setWord(l.b.mr, 24, 2)
	post(t, l.a.qp, wr)
	if wc := l.success(t, l.a, 1, uverbs.WCAtomicWrite); wc.ByteLen != 8 {
		t.Errorf("completion %+v", wc)
	}
	if v := word(l.b.mr, 16); v != wr.Swap || word(l.b.mr, 8) != 1 || word(l.b.mr, 24) != 2 {
		t.Errorf("the word is %#x", v)
	}
	for i := range uint64(100) { // wraps around the ring
		b := l.a.qp.StartSend()
		b.AtomicWrite(1, 0, l.b.mr.Addr()+16, l.b.mr.RKey(), i)
		b.AtomicWrite(2, uverbs.Signaled, l.b.mr.Addr()+24, l.b.mr.RKey(), ^i)
		check(t, b.Submit())
		l.success(t, l.a, 2, uverbs.WCAtomicWrite)
		if x, y := word(l.b.mr, 16), word(l.b.mr, 24); x != i || y != ^i {
			t.Fatalf("round %d: %#x, %#x", i, x, y)
		}
	}
}

func TestDeviceAtomicWriteErrors(t *testing.T) {
	for name, c := range map[string]struct {
		adjust func(*uverbs.QPConfig)
		off    uint64
		key    uint32
		want   []uverbs.WCStatus
	}{
		"misaligned":     {nil, 4, 0, []uverbs.WCStatus{uverbs.WCRemInvReqErr, uverbs.WCRemAccessErr}},
		"wrong key":      {nil, 0, 0x100, []uverbs.WCStatus{uverbs.WCRemAccessErr}},
		"behind the end": {nil, bufSize, 0, []uverbs.WCStatus{uverbs.WCRemAccessErr}},
		"QP without the right": {func(c *uverbs.QPConfig) { c.Access &^= uverbs.RemoteWrite }, 0, 0,
			[]uverbs.WCStatus{uverbs.WCRemInvReqErr}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, c.adjust)
			wr := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpAtomicWrite, RemoteAddr: l.b.mr.Addr() + c.off,
				RKey: l.b.mr.RKey() + c.key, Swap: 5}
			capable(t, l, uverbs.DeviceAtomicWrite, features.AtomicWrite, wr)
			post(t, l.a.qp, wr)
			wc := l.completion(t, l.a)
			for _, s := range c.want {
				if wc.Status == s {
					if name == "misaligned" {
						l.recovers(t)
					}
					l.revive(t)
					return
				}
			}
			t.Errorf("completion %v, want %v", wc.Err(), c.want)
		})
	}
}
