package engine_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// TestRing sends requests of one to seven segments from every offset of the
// ring, across its end and across the end of a page.
func TestRing(t *testing.T) {
	for _, log := range []uint8{logSQ, 7} {
		run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) { ringOf(w, log) })
	}
}

func ringOf(w *world, log uint8) {
	p := newPair(w, engine.QPAttr{LogRQStride: 7, LogSQSize: log})
	for i := range 100 {
		n := 1 + i%7
		var req wqe
		req.op = prm.OpcodeSend
		for j := range n {
			p.am.put(j*100, pattern(10, i+j))
			req = req.data(p.am, j*100, 10)
		}
		w.do(func() {
			p.b.recv(p.bm, 0, 100)
			p.a.post(req)
		})
		got := p.a.scq.poll()
		if len(got) != 1 || got[0].op != prm.CQEReq || got[0].sendOp != prm.OpcodeSend || got[0].qpn != p.a.number ||
			got[0].user != 0xabc {
			w.t.Fatalf("request %d: %+v", i, got)
		}
		p.b.rcq.expect("message", received(10*n))
		for j := range n {
			if !bytes.Equal(p.bm.get(10*j, 10), pattern(10, i+j)) {
				w.t.Fatalf("request %d: part %d arrived with other bytes", i, j)
			}
		}
	}
}

// TestInline sends inline data of all lengths up to the maximum, across the end
// of the ring, and mixed with data segments.
func TestInline(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		for n := 1; n < 240; n++ {
			want := pattern(n, n)
			w.do(func() {
				p.b.recv(p.bm, 5, n)
				p.a.post(wqe{op: prm.OpcodeSend}.inline(want))
			})
			p.a.scq.expect("inline", sent)
			p.b.rcq.expect("inline", received(n))
			if got := p.bm.get(5, n); !bytes.Equal(got, want) {
				w.t.Fatalf("%d bytes inline: got % x", n, got)
			}
		}
		p.am.put(0, []byte("memory"))
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).inline([]byte("inline ")).data(p.am, 0, 6)) })
		if got := string(p.bm.get(0, 13)); got != "inline memory" {
			w.t.Errorf("mixed segments: %q", got)
		}
		p.a.scq.expect("mixed", sent)
	})
}

// TestAtomics checks all four atomics, in the host's byte order.
func TestAtomics(t *testing.T) {
	inWorlds(t, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		const before = 0x1122334455667788
		tests := []struct {
			name string
			req  func() wqe
			want uint64
		}{
			{"swap", func() wqe { return wqe{op: prm.OpcodeAtomicCS}.raddr(p.bm, 0x15d).words(7, before) }, 7},
			{"no swap", func() wqe { return wqe{op: prm.OpcodeAtomicCS}.raddr(p.bm, 0x15d).words(7, before+1) }, before},
			{"add", func() wqe { return wqe{op: prm.OpcodeAtomicFA}.raddr(p.bm, 0x15d).words(3, 0) }, before + 3},
			{"masked swap", func() wqe {
				return wqe{op: prm.OpcodeAtomicMaskedCS, opmod: 8}.raddr(p.bm, 0x15d).words(0xaaaa, 0x88, 0xff00, 0xff)
			}, 0x112233445566aa88},
			{"masked swap not", func() wqe {
				return wqe{op: prm.OpcodeAtomicMaskedCS, opmod: 8}.raddr(p.bm, 0x15d).words(0xaaaa, 0x89, 0xff00, 0xff)
			}, before},
			{"masked add", func() wqe {
				return wqe{op: prm.OpcodeAtomicMaskedFA, opmod: 8}.raddr(p.bm, 0x15d).words(0x00000001_000000ff,
					0x80000000_80008080)
			}, 0x11223345_55667787}, // 0x88 + 0xff without a carry out of the eighth bit
		}
		for _, x := range tests {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], before)
			p.bm.put(0x15d, b[:])
			w.do(func() { p.a.post(x.req().data(p.am, 8, 8)) })
			p.a.scq.expect(x.name, cqe{op: prm.CQEReq, bytes: 8})
			if old := le64(p.am.get(8, 8)); old != before {
				w.t.Errorf("%s: the old value is %#x", x.name, old)
			}
			if v := le64(p.bm.get(0x15d, 8)); v != x.want {
				w.t.Errorf("%s: the value is %#x, want %#x", x.name, v, x.want)
			}
		}
	})
}

// TestUnsignaled checks that only signaled requests and errors have
// completions.
func TestUnsignaled(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() {
			p.a.post(wqe{op: prm.OpcodeNOP, silent: true},
				wqe{op: prm.OpcodeWrite, silent: true}.raddr(p.bm, 0).data(p.am, 0, 8), wqe{op: prm.OpcodeNOP})
		})
		p.a.scq.expect("one of three", sent)
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite, silent: true}.raddr(p.bm, 1<<16).data(p.am, 0, 8)) })
		p.a.scq.expect("an error", sendError(transport.RemoteAccess))
	})
}

// TestUC checks SENDs and WRITEs without acknowledgments, and that READ is
// refused.
func TestUC(t *testing.T) {
	inWorlds(t, func(w *world) {
		p := newPair(w, engine.QPAttr{Service: engine.ServiceUC})
		p.am.put(0, pattern(3000, 1))
		w.do(func() {
			p.b.recv(p.bm, 0, 3000)
			p.b.recv(p.bm, 5000, 0x10)
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 3000),
				wqe{op: prm.OpcodeWriteImm, imm: 5}.raddr(p.bm, 4000).data(p.am, 0, 200))
		})
		p.a.scq.expect("sent", sent, sent)
		p.b.rcq.expect("received", received(3000), cqe{op: prm.CQERespWrite, bytes: 200, imm: 5})
		if !bytes.Equal(p.bm.get(0, 3000), pattern(3000, 1)) || !bytes.Equal(p.bm.get(4000, 200), pattern(200, 1)) {
			w.t.Error("other bytes arrived")
		}
		w.do(func() { p.a.post(wqe{op: prm.OpcodeRead}.raddr(p.bm, 0).data(p.am, 0, 8), wqe{op: prm.OpcodeNOP}) })
		p.a.scq.expect("a READ", sendError(transport.LocalQPOp), flushed)
		if r := p.a.h.takeViolations(); len(r) != 1 || r[0] != engine.RuleOpcode {
			w.t.Errorf("violations %v", r)
		}
		if s := p.a.state(); s != engine.SQE {
			w.t.Errorf("state %d, want SQE", s)
		}
		w.do(func() {
			w.must(p.a.h.ModifyQP(p.a.number, engine.SQERR2RTS, 0, engine.QPAttr{}))
			p.b.recv(p.bm, 0, 8)
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
		})
		p.a.scq.expect("after SQE", sent)
		p.b.rcq.expect("after SQE", received(8))
	})
}

// TestUD checks that datagrams have 40 bytes in front, their source in the
// completion, and need the correct Q_Key.
func TestUD(t *testing.T) {
	inWorlds(t, func(w *world) {
		p := newPair(w, engine.QPAttr{Service: engine.ServiceUD})
		p.am.put(0, pattern(2000, 5))
		w.do(func() {
			p.b.recv(p.bm, 0, 3000)
			p.a.post(wqe{op: prm.OpcodeSend, se: true}.av(p.b, 0x12).data(p.am, 0, 100), // the wrong key: dropped
				wqe{op: prm.OpcodeSendImm, imm: 77}.av(p.b, 0x11).data(p.am, 0, 2000))
		})
		p.a.scq.expect("sent", sent, sent)
		got := p.b.rcq.poll()
		if len(got) != 1 || got[0].op != prm.CQERespSendImm || got[0].bytes != 2040 || got[0].imm != 77 {
			w.t.Fatalf("received %+v", got)
		}
		if q := uint32(prm.CQERemoteQPN.Get(got[0].raw)); q != p.a.number {
			w.t.Errorf("from QP %#x, want %#x", q, p.a.number)
		}
		if w.hosts[0].GID(0).Version == 0 {
			if lid := uint16(prm.CQESLID.Get(got[0].raw)); lid != p.a.h.LID() || prm.CQEGRH.Is(got[0].raw) {
				w.t.Errorf("from LID %d, GRH %d", lid, prm.CQEGRH.Get(got[0].raw))
			}
		} else {
			g := p.a.h.GID(0).GID
			if !prm.CQEGRH.Is(got[0].raw) || prm.CQEL3Type.Get(got[0].raw) != prm.CQEL3IPv6 ||
				!bytes.Equal(p.bm.get(8, 16), g[:]) || p.bm.get(7, 1)[0] != 64 {
				w.t.Errorf("GRH %d of type %d, % x", prm.CQEGRH.Get(got[0].raw), prm.CQEL3Type.Get(got[0].raw), p.bm.get(0, 40))
			}
		}
		if !bytes.Equal(p.bm.get(40, 2000), pattern(2000, 5)) {
			w.t.Error("other bytes arrived")
		}
		w.do(func() { p.a.post(wqe{op: prm.OpcodeSend}.av(p.b, 0x11).data(p.am, 0, 5000)) })
		p.a.scq.expect("too long", sendError(transport.LocalLength))
	})
}

// TestSpecialQP checks that management queue pairs receive on numbers 0 and 1
// and send with them, and that a completion has the P_Key.
func TestSpecialQP(t *testing.T) {
	inWorlds(t, func(w *world) {
		a, b := w.hosts[0], w.hosts[len(w.hosts)-1]
		var to, from *qp
		var am, bm *region
		w.do(func() {
			to, from = b.newQP(engine.QPAttr{Service: engine.ServiceQP1}),
				a.newQP(engine.QPAttr{Service: engine.ServiceUD, SourceQPN: 1})
			am, bm = a.register(1000, allRights), b.register(1000, allRights)
			connect(to, from)
			to.recv(bm, 0, 300)
			from.post(wqe{op: prm.OpcodeSend}.avTo(b, 1, 0x80010000&0x7fffffff|1<<31).data(am, 0, 256))
		})
		_ = from
		from.scq.expect("sent", sent)
		if got := to.rcq.poll(); len(got) != 0 { // bit 31 selects the queue pair's own Q_Key, which differs
			w.t.Fatalf("with another Q_Key: %+v", got)
		}
		w.do(func() {
			w.must(a.ModifyQP(from.number, engine.RTS2RTS, engine.ParamQKey, engine.QPAttr{QKey: 0x80010000}))
			from.post(wqe{op: prm.OpcodeSend}.avTo(b, 1, 1<<31).data(am, 0, 256))
		})
		from.scq.expect("sent", sent)
		got := to.rcq.poll()
		if len(got) != 1 || got[0].bytes != 296 || got[0].imm != 0xffff || prm.CQERemoteQPN.Get(got[0].raw) != 1 {
			w.t.Fatalf("received %+v", got)
		}
	})
}

// TestMulticast checks that each member of a group receives a datagram once,
// including the sender unless it blocks loopback.
func TestMulticast(t *testing.T) {
	for _, link := range []engine.LinkLayer{engine.InfiniBand, engine.Ethernet} {
		run(t, 3, engine.Config{CQEVersion: 1, LinkLayer: link}, func(w *world) {
			group := [16]byte{0: 0xff, 1: 0x0e, 15: 9}
			var qs []*qp
			var ms []*region
			w.do(func() {
				for i := range 4 {
					h := w.hosts[i%3]
					qs = append(qs, h.newQP(engine.QPAttr{Service: engine.ServiceUD, BlockLoopback: i == 3}))
					ms = append(ms, h.register(1000, allRights))
				}
				for i, q := range qs {
					q.up(q.attr(q))
					q.recv(ms[i], 0, 200)
					if i != 2 {
						w.must(q.h.AttachMulticast(q.number, group))
						w.must(q.h.AttachMulticast(q.number, group)) // attaching twice has no effect
					}
				}
				s := wqe{op: prm.OpcodeSend}.avTo(w.hosts[0], 0xffffff, 0x11)
				prm.AVDLID.Set(s.segments, 0xc001)
				prm.AVGRH.Set(s.segments, 1)
				copy(prm.AVDGID.Bytes(s.segments), group[:])
				copy(prm.AVDMAC.Bytes(s.segments), []byte{0x33, 0x33, 0, 0, 0, 9})
				qs[0].post(s.data(ms[0], 500, 16))
			})
			qs[0].scq.expect("sent", sent)
			for i, want := range []int{1, 1, 0, 0} {
				if got := qs[i].rcq.poll(); len(got) != want {
					w.t.Errorf("link %d, QP %d: %d messages, want %d", link, i, len(got), want)
				}
			}
			w.do(func() {
				if err := w.hosts[1].DestroyQP(qs[1].number); err == nil {
					w.t.Error("a member of a group was destroyed")
				}
				w.must(w.hosts[1].DetachMulticast(qs[1].number, group))
				w.must(w.hosts[1].DestroyQP(qs[1].number))
				v4 := [16]byte{10: 0xff, 11: 0xff, 12: 224, 15: 7} // an IPv4 group
				w.must(w.hosts[0].AttachMulticast(qs[0].number, v4))
				v4[12] = 223
				if w.hosts[0].AttachMulticast(qs[0].number, v4) == nil {
					w.t.Error("a unicast address was accepted as a group")
				}
				if w.hosts[1].DetachMulticast(qs[1].number, group) == nil {
					w.t.Error("it could be detached twice")
				}
			})
		})
	}
}
