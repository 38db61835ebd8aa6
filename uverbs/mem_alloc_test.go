package uverbs

import (
	"maps"
	"testing"
)

// hot returns the calls of the hot path. Their literals are at the call site, as in programs.
func hot(b *bundle) map[string]func() {
	var wcs [32]WC
	inline := []byte("sixteen bytes ..")
	return map[string]func(){
		"PostSend 1": func() {
			_, _ = b.qp.PostSend(SendWR{WRID: 1, Opcode: OpSend, SGL: []SGE{b.mr.SGE(0, 64)}})
		},
		"PostSend inline": func() {
			_, _ = b.qp.PostSend(SendWR{WRID: 1, Opcode: OpSend, Inline: inline})
		},
		"PostSend 32": func() {
			var sges [32][1]SGE
			var wrs [32]SendWR
			for i := range wrs {
				sges[i][0] = b.mr.SGE(i*64, 64)
				wrs[i] = SendWR{WRID: uint64(i), Opcode: OpWrite, SGL: sges[i][:], RemoteAddr: 4096, RKey: 7}
			}
			_, _ = b.qp.PostSend(wrs[:]...)
		},
		"PostRecv 1": func() {
			_, _ = b.qp.PostRecv(RecvWR{WRID: 1, SGL: []SGE{b.mr.SGE(0, 64), b.mr.SGE(64, 64)}})
		},
		"StartSend 32": func() {
			s := b.qp.StartSend()
			for i := range 32 {
				s.Write(uint64(i), 0, 4096, 7)
				s.SGE(b.mr.SGE(i*64, 64))
			}
			_ = s.Submit()
		},
		"StartSend in one call": func() {
			s := b.qp.StartSend()
			for i := range 10 {
				s.SendSGE(uint64(i), 0, SGE{Addr: 4096, Length: 64, LKey: 7})
				s.WriteSGE(uint64(i), 0, 4096, 7, b.mr.SGE(i*64, 64))
				s.ReadSGE(uint64(i), 0, 4096, 7, b.mr.SGE(i*64, 64))
				s.SendInline(uint64(i), 0, []byte{1, 2, byte(i)})
				s.WriteInline(uint64(i), Signaled, 4096, 7, []byte{1, 2, byte(i)})
			}
			_ = s.Submit()
			_, _ = b.cq.Poll(wcs[:])
		},
		"StartSend inline": func() {
			s := b.qp.StartSend()
			s.SendImm(1, Signaled, 5)
			s.Inline(inline)
			_ = s.Submit()
			_, _ = b.cq.Poll(wcs[:])
		},
		"PostSend atomics": func() {
			_, _ = b.qp.PostSend(
				SendWR{WRID: 1, Opcode: OpCompareSwap, RemoteAddr: 4096, RKey: 7, CompareAdd: 1, Swap: 2,
					SGL: []SGE{b.mr.SGE(0, 8)}},
				SendWR{WRID: 1, Opcode: OpFetchAdd, RemoteAddr: 4096, RKey: 7, CompareAdd: 1, SGL: []SGE{b.mr.SGE(0, 8)}})
		},
		"StartSend atomics": func() {
			s := b.qp.StartSend()
			s.CompareSwap(1, 0, 4096, 7, 1, 2)
			s.SGE(b.mr.SGE(0, 8))
			s.FetchAdd(1, 0, 4096, 7, 1)
			s.SGE(b.mr.SGE(8, 8))
			_ = s.Submit()
		},
		"PostSend windows": func() {
			_, _ = b.qp.PostSend(
				SendWR{WRID: 1, Opcode: OpBindMW, Bind: &MWBind{
					MW: b.mw, RKey: IncRKey(b.mw.RKey()), MWRange: MWRange{MR: b.mr, Len: 64, Access: RemoteRead}}},
				SendWR{WRID: 1, Opcode: OpSendInv, InvalidateRKey: 5, SGL: []SGE{b.mr.SGE(0, 8)}},
				SendWR{WRID: 1, Opcode: OpLocalInv, InvalidateRKey: 5})
			_ = b.mw1.Bind(b.qp, 1, 0, MWRange{MR: b.mr, Len: 64, Access: RemoteRead})
		},
		"StartSend windows": func() {
			s := b.qp.StartSend()
			s.BindMW(1, 0, b.mw, IncRKey(b.mw.RKey()), MWRange{MR: b.mr, Len: 64, Access: RemoteRead})
			s.SendInv(1, 0, 5)
			s.SGE(b.mr.SGE(0, 8))
			s.LocalInv(1, 0, 5)
			_ = s.Submit()
		},
		"PostSend persistence": func() {
			_, _ = b.qp.PostSend(
				SendWR{WRID: 1, Opcode: OpFlush, RemoteAddr: 4096, RKey: 7, FlushLength: 64, Placement: PlacementGlobal},
				SendWR{WRID: 1, Opcode: OpAtomicWrite, RemoteAddr: 4096, RKey: 7, Swap: 5})
		},
		"StartSend persistence": func() {
			s := b.qp.StartSend()
			s.Flush(1, 0, 4096, 7, 64, PlacementGlobal, SelectRange)
			s.AtomicWrite(1, 0, 4096, 7, 5)
			_ = s.Submit()
		},
		"Poll": func() {
			var wcs [16]WC
			n, _ := b.cq.Poll(wcs[:])
			for i := range wcs[:n] {
				_ = wcs[i].Err()
			}
		},
		"Arm": func() { _ = b.cq.Arm(false) },
	}
}

// hotUD returns the calls of the hot path of a UD QP with an SRQ.
func hotUD(b *bundle, m *meeting) map[string]func() {
	return map[string]func(){
		"PostSend UD": func() {
			_, _ = m.qp.PostSend(SendWR{WRID: 1, Opcode: OpSend, AH: m.ah, QPN: 5, QKey: 6, SGL: []SGE{b.mr.SGE(0, 64)}})
		},
		"StartSend UD 32": func() {
			s := m.qp.StartSend()
			for i := range 32 {
				s.Send(uint64(i), 0)
				s.UDAddr(m.ah, 5, 6)
				s.SGE(b.mr.SGE(i*64, 64))
			}
			_ = s.Submit()
		},
		"SRQ.PostRecv": func() {
			_, _ = m.srq.PostRecv(RecvWR{WRID: 1, SGL: []SGE{b.mr.SGE(0, 64), b.mr.SGE(64, 64)}})
		},
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	for _, single := range []bool{false, true} {
		r := newRig(t)
		b := r.bundle(t, single).withWindows(t)
		calls := hot(b)
		maps.Copy(calls, hotUD(b, r.meeting(t, b, single)))
		for name, call := range calls {
			if n := testing.AllocsPerRun(200, call); n != 0 {
				t.Errorf("single goroutine %v: %s allocates %v times", single, name, n)
			}
		}
	}
}

func BenchmarkHotPath(b *testing.B) {
	r := newRig(b)
	for name, call := range hot(r.bundle(b, true).withWindows(b)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}
