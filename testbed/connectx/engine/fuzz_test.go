package engine_test

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx/loop"
	"github.com/goverbs/goverbs/testbed/connectx/prm"
)

// FuzzWQE fills rings, a CQ and the doorbell record of queue pairs of all services
// with the input, rings, and answers whatever comes. Nothing may panic or go on
// without end.
func FuzzWQE(f *testing.F) {
	seed := func(service engine.Service, ws ...wqe) {
		var all []byte
		for i, w := range ws {
			b := make([]byte, 16, 64)
			prm.CtrlWQEIndex.Set(b, uint64(i))
			prm.CtrlOpcode.Set(b, uint64(w.op))
			prm.CtrlQPN.Set(b, 0x40)
			prm.CtrlDS.Set(b, uint64(len(w.segments)+16)/16)
			prm.CtrlCompletion.Set(b, prm.CompletionAlways)
			prm.CtrlImm.Set(b, uint64(w.imm))
			b = append(b, w.segments...)
			all = append(all, append(b, make([]byte, -len(b)&63)...)...)
		}
		f.Add(uint8(service), uint16(len(all)/64), uint16(4), all)
	}
	const key, addr = 0x105a, 0x1000
	seed(engine.ServiceRC, wqe{op: prm.OpcodeSend}.seg(8, key, addr), wqe{op: prm.OpcodeWrite}.words(addr, key<<32).seg(100, key, addr))
	seed(engine.ServiceRC, wqe{op: prm.OpcodeRead}.words(addr, key<<32).seg(5000, key, addr), wqe{op: prm.OpcodeAtomicFA}.words(addr, key<<32, 1, 0).seg(8, key, addr))
	seed(engine.ServiceUC, wqe{op: prm.OpcodeSendImm}.inline([]byte("hello")))
	seed(engine.ServiceUD, wqe{op: prm.OpcodeSend, segments: make([]byte, 48)}.seg(8, key, addr))
	seed(engine.ServiceXRC, wqe{op: prm.OpcodeSend}.words(1<<32, 0).seg(8, key, addr))
	list := wqe{}.seg(100, key, addr).segments
	seed(engine.ServiceRC, umr{key: 0x1101, mask: bindMask, flags: []prm.Field{prm.UMRInline}, list: list}.wqe())
	seed(engine.ServiceUMR, umr{key: 0x1101, mask: ^uint64(0), flags: []prm.Field{prm.UMRInline}, list: list}.wqe())
	f.Fuzz(func(t *testing.T, service uint8, producer, posted uint16, ring []byte) {
		w := &world{t: t, loop: &loop.Loop{}, less: 6}
		h := w.addFuzzed()
		w.loop.Run(func() { h.fuzz(engine.Service(service), producer, posted, ring) })
		w.loop.Run(h.Reset)
	})
}

func (w *world) addFuzzed() *host { return w.add(engine.Config{CQEVersion: 1}) }

func (h *host) fuzz(service engine.Service, producer, posted uint16, ring []byte) {
	k := must(h.CreateMKey(engine.MKeyAttr{Mode: engine.Physical, Rights: allRights, QPN: engine.AnyQPN, PD: h.pd, Variant: 0x5a, Length64: true}))
	h.window(1)
	a := engine.QPAttr{Service: service}
	switch service {
	case engine.ServiceXRC:
		a.Source = engine.FromNone
	case engine.ServiceRC, engine.ServiceUC, engine.ServiceUD, engine.ServiceUMR:
	default:
		return
	}
	q := h.newQP(a)
	q.up(q.attr(q))
	for i := 0; i < len(ring) && i < int(q.sqSize)*64; i += 16 {
		copy(q.at(q.rqBytes+uint64(i), 16), ring[i:])
	}
	for i := 0; i < len(ring) && uint64(i) < q.rqBytes; i += 16 {
		copy(q.at(uint64(i), 16), ring[i:])
	}
	_ = k
	be.PutUint32(h.bytes(q.record, 4), uint32(posted))
	be.PutUint32(h.bytes(q.record+4, 4), uint32(producer))
	h.Store(16, 0x800, append(append([]byte{}, ring...), make([]byte, -len(ring)&7)...)[:min(256, (len(ring)+7)&^7)])
	h.Store(16, 0x900, []byte{0, 0, 0, prm.OpcodeSend, 0, 0, byte(q.number), 1})
	w := h.w
	w.must(h.ModifyQP(q.number, engine.ToErr, 0, engine.QPAttr{}))
}

// FuzzStore stores arbitrary bytes to arbitrary places.
func FuzzStore(f *testing.F) {
	f.Add([]byte{0x20, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8, 8, 0, 0, 0, 1, 0, 0, 0x40, 1})
	f.Fuzz(func(t *testing.T, stores []byte) {
		w := &world{t: t, loop: &loop.Loop{}, less: 6}
		h := w.addFuzzed()
		w.loop.Run(func() {
			q := h.newQP(engine.QPAttr{})
			connect(q, q)
			for len(stores) >= 3 {
				at, n := uint32(stores[0])|uint32(stores[1])<<8, int(stores[2])
				n = min(n, len(stores)-3)
				h.Store(16, at, stores[3:3+n])
				stores = stores[3+n:]
			}
		})
		w.loop.Run(h.Reset)
	})
}
