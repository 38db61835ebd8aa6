package engine_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// TestIndirect checks indirect keys with pieces of individual lengths and of
// one length, several levels deep.
func TestIndirect(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		h := w.hosts[0]
		p := newPair(w, engine.QPAttr{})
		indirect := func(mode engine.AccessMode, n int, pieces ...wqe) *engine.MKey {
			a := engine.MKeyAttr{Mode: mode, Rights: allRights, QPN: engine.AnyQPN, PD: h.pd, Start: 0x5000, Length: uint64(n),
				PageShift: 7, Octowords: uint32(len(pieces))}
			for _, s := range pieces {
				a.Translations = append(a.Translations, s.segments...)
			}
			return must(h.CreateMKey(a))
		}
		src := pattern(1000, 1)
		p.am.put(0, src)
		at := func(off int) uint64 { return p.am.addr + uint64(off) }
		klm := indirect(engine.KLM, 300, wqe{}.seg(100, p.am.Key(), at(500)), wqe{}.seg(0, 0, 0),
			wqe{}.seg(50, p.am.Key(), at(0)), wqe{}.seg(150, p.am.Key(), at(700)))
		deeper := indirect(engine.KLM, 200, wqe{}.seg(120, klm.Key(), 0x5000+90), wqe{}.seg(80, engine.NullMKey, 0))
		ksm := indirect(engine.KSM, 256, wqe{}.seg(0, p.am.Key(), at(256)), wqe{}.seg(0, p.am.Key(), at(0)))
		want := map[*engine.MKey][]byte{
			klm: bytes.Join([][]byte{src[500:600], src[:50], src[700:850]}, nil),
			ksm: append(append([]byte{}, src[256:384]...), src[:128]...),
		}
		want[deeper] = append(append([]byte{}, want[klm][90:210]...), make([]byte, 80)...)
		for k, want := range want {
			w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).seg(uint32(len(want)), k.Key(), 0x5000)) })
			p.a.scq.expect("gather", sent)
			if got := p.bm.get(0, len(want)); !bytes.Equal(got, want) {
				w.t.Errorf("%+v: got % x, want % x", k.Mode, got, want)
			}
		}
		short := indirect(engine.KLM, 500, wqe{}.seg(100, p.am.Key(), at(0)))
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).seg(101, short.Key(), 0x5000)) })
		p.a.scq.expect("a list that is shorter than its key", sendError(transport.LocalProtection))
		w.do(func() {
			for _, q := range []*qp{p.a, p.b} {
				w.must(q.h.ModifyQP(q.number, engine.ToReset, 0, engine.QPAttr{}))
				clear(q.h.bytes(q.record, 8))
				q.posted, q.head = 0, 0
			}
			connect(p.a, p.b)
		})
		// A key that refers to itself.
		loop := indirect(engine.KLM, 100, wqe{}.seg(100, 0, 0))
		be.PutUint32(loop.Translations[4:], loop.Key())
		be.PutUint64(loop.Translations[8:], 0x5000)
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).seg(10, loop.Key(), 0x5000)) })
		p.a.scq.expect("a key that refers to itself", sendError(transport.LocalProtection))
	})
}

// TestReservedKey checks the reserved key, for queue pairs with and without
// permission.
func TestReservedKey(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		run(t, 1, engine.Config{}, func(w *world) {
			p := newPair(w, engine.QPAttr{ReservedLKey: allowed})
			addr := p.a.h.alloc(100)
			copy(p.a.h.bytes(addr, 100), pattern(100, 3))
			w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).seg(100, engine.ReservedLKey, addr)) })
			if !allowed {
				p.a.scq.expect("not allowed", sendError(transport.LocalProtection))
				if r := p.a.h.takeViolations(); len(r) != 1 || r[0] != engine.RuleKey {
					w.t.Errorf("violations %v", r)
				}
				return
			}
			p.a.scq.expect("allowed", sent)
			if !bytes.Equal(p.bm.get(0, 100), pattern(100, 3)) {
				w.t.Error("other bytes arrived")
			}
		})
	}
}

// TestPhysical checks a key without a list.
func TestPhysical(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		h := p.a.h
		k := must(h.CreateMKey(engine.MKeyAttr{Mode: engine.Physical, Rights: allRights, QPN: engine.AnyQPN, PD: h.pd,
			Length64: true}))
		addr := h.alloc(70000)
		want := pattern(50000, 1)
		copy(h.bytes(addr+10, 50000), want)
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).seg(50000, k.Key(), addr+10)) })
		p.a.scq.expect("physical", sent)
		if !bytes.Equal(p.bm.get(0, 50000), want) {
			w.t.Error("other bytes arrived")
		}
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).seg(8, k.Key(), memoryBase+memorySize-4)) })
		p.a.scq.expect("no memory there", sendError(transport.LocalProtection))
	})
}

// TestMKeyErrors checks keys that cannot be created, and the use of a destroyed
// key.
func TestMKeyErrors(t *testing.T) {
	run(t, 1, engine.Config{Limits: engine.Limits{MKeys: 3, Translations: 4096, Octowords: 1000}}, func(w *world) {
		h := w.hosts[0]
		w.do(func() {
			for _, x := range []struct {
				a    engine.MKeyAttr
				want error
			}{
				{engine.MKeyAttr{PD: 99}, engine.ErrResource},
				{engine.MKeyAttr{PD: h.pd, Mode: 4}, engine.ErrParam},
				{engine.MKeyAttr{PD: h.pd, Mode: engine.OnDevice, Length: 64}, engine.ErrParam},
				{engine.MKeyAttr{PD: h.pd, Mode: engine.MTT, PageShift: 63}, engine.ErrParam},
				{engine.MKeyAttr{PD: h.pd, Octowords: 1001}, engine.ErrLimit},
				{engine.MKeyAttr{PD: h.pd, Octowords: 1, Translations: make([]byte, 17)}, engine.ErrParam},
				{engine.MKeyAttr{PD: h.pd, Octowords: 1000, Translations: make([]byte, 5000)}, engine.ErrLimit},
				{engine.MKeyAttr{PD: h.pd, Start: 1 << 63, Length: 1<<63 + 1}, engine.ErrParam},
			} {
				if _, err := h.CreateMKey(x.a); !errors.Is(err, x.want) {
					w.t.Errorf("%+v: %v, want %v", x.a, err, x.want)
				}
			}
			var last *engine.MKey
			for range 3 {
				last = must(h.CreateMKey(engine.MKeyAttr{PD: h.pd}))
			}
			if _, err := h.CreateMKey(engine.MKeyAttr{PD: h.pd}); !errors.Is(err, engine.ErrLimit) {
				w.t.Errorf("a fourth key: %v", err)
			}
			if err := h.DestroyPD(h.pd); !errors.Is(err, engine.ErrBusy) {
				w.t.Errorf("destroying a PD in use: %v", err)
			}
			w.must(h.DestroyMKey(last.Index))
			if err := h.DestroyMKey(last.Index); !errors.Is(err, engine.ErrResource) {
				w.t.Errorf("destroying a key twice: %v", err)
			}
			if _, err := h.QueryMKey(last.Index); !errors.Is(err, engine.ErrResource) {
				w.t.Errorf("querying a destroyed key: %v", err)
			}
		})
	})
}

// TestManyPieces checks the maximum number of pieces of an indirect key, that
// empty pieces cost nothing, and the maximum number of pieces per frame.
func TestManyPieces(t *testing.T) {
	const most = 1 << 16
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		var n *nic
		var m *region
		klm := func(pieces int, list []byte) (*engine.MKey, error) {
			return h.CreateMKey(engine.MKeyAttr{Mode: engine.KLM, Rights: allRights, QPN: engine.AnyQPN, PD: h.pd, Length: most,
				Octowords: uint32(pieces), Translations: list})
		}
		w.do(func() {
			n, m = h.newNIC(1, engine.TIRAttr{}), h.register(4096, allRights)
			for mode, pieces := range map[engine.AccessMode]uint32{engine.KLM: most + 1, engine.KSM: 1<<22 + 1} {
				a := engine.MKeyAttr{Mode: mode, PageShift: 12, PD: h.pd, Octowords: pieces}
				if _, err := h.CreateMKey(a); !errors.Is(err, engine.ErrLimit) {
					t.Errorf("a key of %d pieces: %v", pieces, err)
				}
			}
			bytes, empty := make([]byte, 16*most), make([]byte, 16*most)
			for i := range most {
				copy(bytes[16*i:], wqe{}.seg(1, m.Key(), m.addr).segments)
			}
			copy(empty[16*(most-1):], wqe{}.seg(4096, m.Key(), m.addr).segments)
			each, last := must(klm(most, bytes)), must(klm(most, empty))
			x, y := tso(tcp(h.MAC(), h.MAC()), 1000, m, 1), tso(tcp(h.MAC(), h.MAC()), 1000, m, 1)
			for range 4 {
				x = x.seg(4096, last.Key(), 0)
			}
			n.post(x.seg(most/2, each.Key(), 0), y.seg(most-10, each.Key(), 0).seg(20, each.Key(), 0))
		})
		w.later(time.Second)
		n.scq.expect("pieces", sent, sendError(transport.LocalProtection))
	})
}
