package engine_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// Keys for the fuzzed queue pairs: all memory, indirect keys, an SRQ.
const (
	fuzzKey     = 0x105a
	fuzzWindow  = 0x1101
	fuzzKLM     = 0x125a
	fuzzKSM     = 0x135a
	fuzzAddress = memoryBase + 0x3000
	fuzzScatter = 0x80 // in the service: scatter to CQE
)

// A fuzzSeed is a service and send requests.
type fuzzSeed struct {
	service engine.Service
	wqes    []wqe
}

func fuzzSeeds() []fuzzSeed {
	const key, klm, ksm, addr = fuzzKey, fuzzKLM, fuzzKSM, fuzzAddress
	list := wqe{}.seg(100, key, addr).segments
	xrc := wqe{op: prm.OpcodeSend}.words(1<<32, 0)
	return []fuzzSeed{
		{engine.ServiceRC, []wqe{wqe{op: prm.OpcodeSend}.seg(8, key, addr),
			wqe{op: prm.OpcodeWrite}.words(addr, key<<32).seg(100, key, addr)}},
		{engine.ServiceRC, []wqe{wqe{op: prm.OpcodeRead}.words(addr, key<<32).seg(5000, key, addr),
			wqe{op: prm.OpcodeAtomicFA}.words(addr, key<<32, 1, 0).seg(8, key, addr)}},
		{engine.ServiceRC, []wqe{wqe{op: prm.OpcodeWrite}.words(0, klm<<32).seg(300, ksm, 0),
			wqe{op: prm.OpcodeRead}.words(0, ksm<<32).seg(300, klm, 0)}},
		{engine.ServiceRC | fuzzScatter, []wqe{wqe{op: prm.OpcodeRead}.words(addr, key<<32).seg(32, key, addr)}},
		{engine.ServiceRC | fuzzScatter, []wqe{wqe{op: prm.OpcodeSend}.seg(30, key, addr)}},
		{engine.ServiceRC, []wqe{umr{key: fuzzWindow, mask: bindMask, flags: []prm.Field{prm.UMRInline}, list: list}.wqe()}},
		{engine.ServiceUC, []wqe{wqe{op: prm.OpcodeSendImm}.inline([]byte("hello"))}},
		{engine.ServiceUD, []wqe{wqe{op: prm.OpcodeSend, segments: make([]byte, 48)}.seg(8, key, addr)}},
		{engine.ServiceXRC, []wqe{xrc.seg(8, key, addr),
			wqe{op: prm.OpcodeRead}.words(1<<32, 0, addr, key<<32).seg(8, key, addr)}},
		{engine.ServiceDCI, []wqe{wqe{op: prm.OpcodeSend}.words(dcKey, 1<<63|0x41<<32|1, 0, 0, 0, 0).seg(8, key, addr),
			wqe{op: prm.OpcodeWrite}.words(dcKey, 1<<63|0x41<<32|1, 0, 0, 0, 0).words(addr, key<<32).seg(8, key, addr)}},
		{engine.ServiceUMR, []wqe{umr{key: fuzzWindow, mask: ^uint64(0), flags: []prm.Field{prm.UMRInline},
			list: list}.wqe()}},
	}
}

// fuzzRing returns requests as bytes of a ring.
func fuzzRing(number uint32, ws []wqe) (all []byte) {
	for _, w := range ws {
		b := make([]byte, 16, 64)
		prm.CtrlWQEIndex.Set(b, uint64(len(all)/64))
		prm.CtrlOpcode.Set(b, uint64(w.op))
		prm.CtrlQPN.Set(b, uint64(number))
		prm.CtrlDS.Set(b, uint64(len(w.segments)+16)/16)
		prm.CtrlCompletion.Set(b, prm.CompletionAlways)
		prm.CtrlImm.Set(b, uint64(w.imm))
		b = append(b, w.segments...)
		all = append(all, append(b, make([]byte, -len(b)&63)...)...)
	}
	return all
}

// FuzzWQE fills the rings, a CQ and the doorbell record of queue pairs of all
// services with the input, and rings the doorbell. The device must not panic
// and must come to an end.
func FuzzWQE(f *testing.F) {
	for _, s := range fuzzSeeds() {
		ring := fuzzRing(0x40, s.wqes)
		f.Add(uint8(s.service), uint16(len(ring)/64), uint16(4), ring)
	}
	f.Fuzz(func(t *testing.T, service uint8, producer, posted uint16, ring []byte) {
		fuzzWQEs(t, engine.Service(service), producer, posted, ring)
	})
}

// TestFuzzSeeds checks that the seeds are executed, not only flushed.
func TestFuzzSeeds(t *testing.T) {
	for i, s := range fuzzSeeds() {
		ring := fuzzRing(0x40, s.wqes)
		got := fuzzWQEs(t, s.service, uint16(len(ring)/64), 4, ring)
		if len(got) == 0 || got[0].syndrome == uint8(transport.Flushed) {
			t.Errorf("seed %d: %+v", i, got)
		}
	}
}

func fuzzWQEs(t testing.TB, service engine.Service, producer, posted uint16, ring []byte) (all []cqe) {
	w := &world{t: t, loop: &loop.Loop{}, less: 6}
	h := w.addFuzzed()
	var q *qp
	w.loop.Run(func() { q = h.fuzz(service&^fuzzScatter, service&fuzzScatter != 0, producer, posted, ring) })
	if q == nil {
		return nil
	}
	w.loop.Run(func() {
		w.must(h.ModifyQP(q.number, engine.ToErr, 0, engine.QPAttr{}))
		all = q.scq.poll()
	})
	w.loop.Run(h.Reset)
	return all
}

func (w *world) addFuzzed() *host {
	p := &pager{fails: true} // otherwise a missing page would be requested for ever
	p.h = w.add(engine.Config{CQEVersion: 1, Pager: p})
	return p.h
}

// fuzzKeys creates the keys, in the order of their numbers.
func (h *host) fuzzKeys() {
	key := func(mode engine.AccessMode, list []byte) {
		must(h.CreateMKey(engine.MKeyAttr{Mode: mode, Rights: allRights, QPN: engine.AnyQPN, PD: h.pd, Variant: 0x5a,
			Length64:  true,
			PageShift: 7, Octowords: 4, Translations: list}))
	}
	key(engine.Physical, nil)
	h.window(1)
	key(engine.KLM, wqe{}.seg(100, fuzzKey, fuzzAddress).seg(0, 0, 0).seg(1000, fuzzKSM, 0).segments)
	key(engine.KSM, wqe{}.seg(0, fuzzKey, fuzzAddress).seg(0, fuzzKLM, 0).seg(0, fuzzKey, fuzzAddress).segments)
}

// fuzz creates a queue pair that is its own peer, fills its rings, and rings
// its doorbell.
func (h *host) fuzz(service engine.Service, scatter bool, producer, posted uint16, ring []byte) *qp {
	h.fuzzKeys()
	a := engine.QPAttr{Service: service}
	if scatter {
		a.ScatterRequest, a.ScatterResponse = 64, 64
	}
	var peer *qp
	switch service {
	case engine.ServiceXRC:
		a.Source = engine.FromNone
		domain := must(h.CreateXRCD())
		s := h.newSRQ(engine.SRQAttr{XRC: true, XRCD: domain, CQ: h.newCQ(engine.CQAttr{LogSize: 4}).Number}, 3)
		copy(s.at(0, srqStride)[16:], ring)
		be.PutUint32(h.bytes(s.record, 4), uint32(posted))
	case engine.ServiceDCI:
		a.Source, a.LogStreams, a.LogErrored = engine.FromSRQ, 3, 1
		q := h.newQP(a)
		to := h.newDCT(engine.QPAttr{})
		copy(to.srq.at(0, srqStride)[16:], ring)
		be.PutUint32(h.bytes(to.srq.record, 4), uint32(posted))
		q.upDCI()
		h.ringFuzzed(q, producer, posted, ring)
		return q
	case engine.ServiceRC, engine.ServiceUC, engine.ServiceUD, engine.ServiceUMR:
	default:
		return nil
	}
	q := h.newQP(a)
	if peer = q; service == engine.ServiceXRC {
		peer = h.newQP(engine.QPAttr{Service: engine.ServiceXRC, NoSQ: true, Source: engine.FromSRQ, XRCD: 1})
	}
	connect(q, peer)
	h.ringFuzzed(q, producer, posted, ring)
	return q
}

// ringFuzzed fills the rings of a queue pair, and rings its doorbell.
func (h *host) ringFuzzed(q *qp, producer, posted uint16, ring []byte) {
	for i := 0; i < len(ring) && i < int(q.sqSize)*64; i += 16 {
		copy(q.at(q.rqBytes+uint64(i), 16), ring[i:])
	}
	for i := 16; i < len(ring) && uint64(i) <= q.rqBytes; i += 16 { // the segments behind the control segment
		copy(q.at(uint64(i-16), 16), ring[i:])
	}
	be.PutUint32(h.bytes(q.record, 4), uint32(posted))
	be.PutUint32(h.bytes(q.record+4, 4), uint32(producer))
	h.Store(16, 0x800, append(append([]byte{}, ring...), make([]byte, -len(ring)&7)...)[:min(256, (len(ring)+7)&^7)])
	h.Store(16, 0x900, []byte{0, 0, 0, prm.OpcodeSend, 0, 0, byte(q.number), 1})
}

// FuzzStore stores arbitrary bytes at arbitrary offsets.
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
