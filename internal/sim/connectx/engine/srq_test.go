package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// An srq is a shared receive queue from the user's side: a list of free WQEs.
type srq struct {
	*engine.SRQ
	h      *host
	at     func(off, n uint64) []byte
	record uint64
	tail   uint16 // the slot of the next WQE
	posted uint16
}

const srqStride = 64

func (h *host) newSRQ(a engine.SRQAttr, log uint8) *srq {
	s := &srq{h: h}
	a.PD, a.LogSize, a.LogStride = h.pd, log, 6
	a.Buffer, s.at = h.buffer(srqStride << log)
	// The list is linked in steps of three.
	n := uint16(1) << log
	for i := range n {
		be.PutUint16(s.at(uint64(i)*srqStride, 16)[2:], (i+3)%n)
	}
	s.record = h.alloc(8)
	a.Record = s.record
	s.SRQ = must(h.CreateSRQ(a))
	return s
}

func (s *srq) recv(r *region, off, n int) {
	slot := s.at(uint64(s.tail)*srqStride, srqStride)
	clear(slot[16:])
	copy(slot[16:], wqe{}.data(r, off, n).segments)
	be.PutUint32(slot[36:], engine.EndOfList)
	s.tail = be.Uint16(slot[2:])
	s.posted++
	be.PutUint32(s.h.bytes(s.record, 4), uint32(s.posted))
}

// TestSRQ checks that two queue pairs use one list in order, that the limit
// generates one event, and that a queue pair that fails generates a last WQE
// event.
func TestSRQ(t *testing.T) {
	inWorlds(t, func(w *world) {
		a, b := w.hosts[0], w.hosts[len(w.hosts)-1]
		var s *srq
		var from, to []*qp
		var am, bm *region
		w.do(func() {
			s = b.newSRQ(engine.SRQAttr{}, 4)
			am, bm = a.register(4096, allRights), b.register(4096, allRights)
			for i := range 2 {
				from = append(from, a.newQP(engine.QPAttr{}))
				to = append(to, b.newQP(engine.QPAttr{Source: engine.FromSRQ, SRQ: s.Number}))
				connect(from[i], to[i])
			}
			for i := range 10 {
				s.recv(bm, i*16, 16)
			}
			w.must(b.ArmSRQ(s.Number, 3))
		})
		for i := range 7 {
			w.do(func() { from[i%2].post(wqe{op: prm.OpcodeSend}.inline([]byte{byte(i), 1, 2})) })
			from[i%2].scq.expect("sent", sent)
			got := to[i%2].rcq.poll()
			if len(got) != 1 || got[0].index != uint16(i*3%16) || got[0].user != 0xabc || bm.get(i*16, 1)[0] != byte(i) {
				w.t.Fatalf("message %d: %+v", i, got)
			}
		}
		if len(b.events) != 0 {
			w.t.Fatalf("events with three left: %+v", b.events)
		}
		w.do(func() { from[0].post(wqe{op: prm.OpcodeSend}.data(am, 0, 1)) })
		if len(b.events) != 1 || b.events[0].Type != engine.EventSRQLimit || b.events[0].Number != s.Number || s.Limit != 0 {
			w.t.Fatalf("events with two left: %+v, limit %d", b.events, s.Limit)
		}
		w.do(func() {
			b.events = nil
			w.must(b.ArmSRQ(s.Number, 3)) // fewer are left already
			w.must(b.ModifyQP(to[1].number, engine.ToErr, 0, engine.QPAttr{}))
			w.must(b.ModifyQP(to[1].number, engine.ToErr, 0, engine.QPAttr{}))
		})
		if len(b.events) != 2 || b.events[0].Type != engine.EventSRQLimit || b.events[1].Type != engine.EventLastWQE ||
			b.events[1].Number != to[1].number {
			w.t.Errorf("events %+v", b.events)
		}
		to[1].rcq.expect("nothing is flushed of an SRQ")
		w.do(func() {
			if err := b.DestroySRQ(s.Number); !errors.Is(err, engine.ErrBusy) {
				w.t.Errorf("destroying an SRQ in use: %v", err)
			}
			for _, q := range to {
				w.must(b.DestroyQP(q.number))
			}
			w.must(b.DestroySRQ(s.Number))
		})
	})
}

// TestXRC checks that requests select the SRQ, that completions go to its CQ
// with its user index, and that its protection domain is used for memory.
func TestXRC(t *testing.T) {
	inWorlds(t, func(w *world) {
		a, b := w.hosts[0], w.hosts[len(w.hosts)-1]
		var ss [2]*srq
		var cqs [2]*cq
		var from, to *qp
		var am, bm *region
		w.do(func() {
			domain := must(b.CreateXRCD())
			qpPD := b.pd
			b.pd = must(b.CreatePD())
			for i := range ss {
				cqs[i] = b.newCQ(engine.CQAttr{LogSize: 4})
				ss[i] = b.newSRQ(engine.SRQAttr{XRC: true, XRCD: domain, CQ: cqs[i].Number, UserIndex: 0x100 + uint32(i)}, 3)
			}
			bm = b.register(4096, allRights)
			b.pd = qpPD
			am = a.register(4096, allRights)
			from = a.newQP(engine.QPAttr{Service: engine.ServiceXRC, Source: engine.FromNone})
			to = b.newQP(engine.QPAttr{Service: engine.ServiceXRC, NoSQ: true, Source: engine.FromSRQ, XRCD: domain})
			connect(from, to)
			if err := b.DestroyXRCD(domain); !errors.Is(err, engine.ErrBusy) {
				w.t.Errorf("destroying a domain in use: %v", err)
			}
		})
		xrc := func(op uint8, i int) wqe { return wqe{op: op}.words(uint64(ss[i].Number)<<32, 0) }
		w.do(func() {
			ss[0].recv(bm, 0, 16)
			ss[1].recv(bm, 100, 2000)
			from.post(xrc(prm.OpcodeSend, 1).data(am, 0, 1500), xrc(prm.OpcodeSend, 0).data(am, 0, 16),
				xrc(prm.OpcodeWrite, 0).raddr(bm, 3000).inline([]byte("written")),
				xrc(prm.OpcodeAtomicFA, 1).raddr(bm, 0x15d+32).words(1, 0).data(am, 64, 8))
		})
		from.scq.expect("sent", sent, sent, sent, sent)
		for i, n := range []uint32{16, 1500} {
			got := cqs[i].poll()
			if len(got) != 1 || got[0].bytes != n || got[0].user != 0x100+uint32(i) || got[0].qpn != to.number {
				w.t.Errorf("SRQ %d: %+v", i, got)
			}
		}
		if s := string(bm.get(3000, 7)); s != "written" {
			w.t.Errorf("written: %q", s)
		}
		w.do(func() { from.post(wqe{op: prm.OpcodeSend}.words(0x123456<<32, 0).data(am, 0, 1)) })
		from.scq.expect("an unknown SRQ", sendError(transport.RemoteOp))
	})
}

// TestSRQBroken checks that an invalid link fails the SRQ and generates an
// event.
func TestSRQBroken(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		h := w.hosts[0]
		var s *srq
		var a, b *qp
		w.do(func() {
			s = h.newSRQ(engine.SRQAttr{}, 3)
			m := h.register(100, allRights)
			a, b = h.newQP(engine.QPAttr{}), h.newQP(engine.QPAttr{Source: engine.FromSRQ, SRQ: s.Number})
			connect(a, b)
			be.PutUint16(s.at(0, 16)[2:], 8)
			slot := s.at(0, srqStride)
			copy(slot[16:], wqe{}.data(m, 0, 8).segments)
			be.PutUint32(slot[36:], engine.EndOfList)
			be.PutUint32(h.bytes(s.record, 4), 2)
			a.post(wqe{op: prm.OpcodeSend}.data(m, 0, 8))
		})
		w.later(time.Millisecond)
		if len(h.events) != 1 || h.events[0].Type != engine.EventSRQCatastrophic || h.events[0].Number != s.Number {
			w.t.Errorf("events %+v", h.events)
		}
		if r := h.takeViolations(); len(r) != 1 || r[0] != engine.RuleSRQLink {
			w.t.Errorf("violations %v", r)
		}
	})
}

// TestSRQOfBothKinds checks an XRC SRQ used by a queue pair that is not XRC:
// completions go to that one's CQ with its index. The first interface creates
// all SRQs like this.
func TestSRQOfBothKinds(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		h := w.hosts[0]
		var a, b *qp
		other := h.newCQ(engine.CQAttr{})
		w.do(func() {
			s := h.newSRQ(engine.SRQAttr{XRC: true, XRCD: must(h.CreateXRCD()), CQ: other.Number, UserIndex: 0x100}, 3)
			m := h.register(100, allRights)
			a, b = h.newQP(engine.QPAttr{}), h.newQP(engine.QPAttr{Source: engine.FromSRQ, SRQ: s.Number})
			connect(a, b)
			s.recv(m, 0, 8)
			a.post(wqe{op: prm.OpcodeSend}.data(m, 0, 8))
		})
		if got := b.rcq.poll(); len(got) != 1 || got[0].user != 0xabc {
			w.t.Errorf("received: %+v", got)
		}
		other.expect("the SRQ's own CQ")
	})
}

// TestSRQVersion0 checks that completions without user indices have the SRQ's
// number.
func TestSRQVersion0(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 0}, func(w *world) {
		h := w.hosts[0]
		var s *srq
		var a, b *qp
		w.do(func() {
			s = h.newSRQ(engine.SRQAttr{}, 3)
			m := h.register(100, allRights)
			a, b = h.newQP(engine.QPAttr{}), h.newQP(engine.QPAttr{Source: engine.FromSRQ, SRQ: s.Number})
			connect(a, b)
			s.recv(m, 0, 8)
			a.post(wqe{op: prm.OpcodeSend}.data(m, 0, 8))
		})
		if got := a.scq.poll(); len(got) != 1 || got[0].user != 0 {
			w.t.Errorf("sent: %+v", got)
		}
		if got := b.rcq.poll(); len(got) != 1 || got[0].user != s.Number {
			w.t.Errorf("received: %+v, want the number %#x", got, s.Number)
		}
	})
}
