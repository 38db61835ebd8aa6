package engine_test

import (
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// indices returns the WQE indices of completions.
func indices(all []cqe) (list []uint16) {
	for _, e := range all {
		list = append(list, e.index)
	}
	return list
}

// TestShuffleRQ checks that a receive queue with ShuffleRQ uses receive requests in
// lots from the end to the beginning, that the data of each message is in the
// request that its completion names, and that the rest of a lot is flushed.
func TestShuffleRQ(t *testing.T) {
	run(t, 2, engine.Config{ShuffleRQ: 3}, func(w *world) {
		a, b := w.hosts[0], w.hosts[1]
		var from, to *qp
		var m *region
		w.do(func() {
			from, to = a.newQP(engine.QPAttr{}), b.newQP(engine.QPAttr{})
			connect(from, to)
			m = b.register(4096, allRights)
			for i := range 6 {
				to.recv(m, i*16, 16)
			}
		})
		for i := range 4 {
			w.do(func() { from.post(wqe{op: prm.OpcodeSend}.inline([]byte{byte(i + 1)})) })
		}
		got := to.rcq.poll()
		if want := []uint16{2, 1, 0, 5}; !slices.Equal(indices(got), want) {
			w.t.Fatalf("received in %v, want %v", indices(got), want)
		}
		for i, e := range got {
			if b := m.get(int(e.index)*16, 1)[0]; b != byte(i+1) {
				w.t.Errorf("request %d has message %d, want %d", e.index, b, i+1)
			}
		}
		from.scq.poll()
		w.do(func() { w.must(b.ModifyQP(to.number, engine.ToErr, 0, engine.QPAttr{})) })
		got = to.rcq.poll()
		if want := []uint16{3, 4}; !slices.Equal(indices(got), want) || got[0].syndrome != uint8(transport.Flushed) {
			w.t.Errorf("flushed %+v, want %v", got, want)
		}
	})
}

// TestShuffleSRQ checks the same for an SRQ, and the counters of its order: the
// list of newSRQ goes through the ring in steps of three, so that each receive
// request but the first is a jump.
func TestShuffleSRQ(t *testing.T) {
	run(t, 2, engine.Config{ShuffleSRQ: 4}, func(w *world) {
		a, b := w.hosts[0], w.hosts[1]
		var from, to *qp
		var s *srq
		w.do(func() {
			s = b.newSRQ(engine.SRQAttr{}, 4)
			from, to = a.newQP(engine.QPAttr{}), b.newQP(engine.QPAttr{Source: engine.FromSRQ, SRQ: s.Number})
			connect(from, to)
			m := b.register(4096, allRights)
			for i := range 6 {
				s.recv(m, i*16, 16)
			}
			for range 6 {
				from.post(wqe{op: prm.OpcodeSend}.inline([]byte{1}))
			}
		})
		if got, want := indices(to.rcq.poll()), []uint16{9, 6, 3, 0, 15, 12}; !slices.Equal(got, want) {
			w.t.Errorf("received in %v, want %v", got, want)
		}
		from.scq.poll()
		if c := b.Counters(); c != (engine.Counters{SRQReceives: 6, SRQJumps: 5}) || s.Receives != 6 || s.Jumps != 5 {
			w.t.Errorf("counters %+v, of the SRQ %d and %d", c, s.Receives, s.Jumps)
		}
	})
}

// TestSRQNeighbours checks that receive requests in ascending slots are no jumps,
// the step from the last slot to the first included.
func TestSRQNeighbours(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		h := w.hosts[0]
		var a, b *qp
		var s *srq
		var m *region
		w.do(func() {
			s = h.newSRQ(engine.SRQAttr{}, 2)
			for i := range uint16(4) {
				be.PutUint16(s.at(uint64(i)*srqStride, 16)[2:], (i+1)%4)
			}
			m = h.register(100, allRights)
			a, b = h.newQP(engine.QPAttr{}), h.newQP(engine.QPAttr{Source: engine.FromSRQ, SRQ: s.Number})
			connect(a, b)
			for range 3 {
				s.recv(m, 0, 8)
			}
		})
		for range 6 {
			w.do(func() {
				a.post(wqe{op: prm.OpcodeSend}.data(m, 0, 8))
				s.recv(m, 0, 8)
			})
		}
		b.rcq.poll()
		a.scq.poll()
		if c := h.Counters(); c != (engine.Counters{SRQReceives: 6}) {
			w.t.Errorf("counters %+v", c)
		}
		w.do(h.Reset)
		if c := h.Counters(); c.SRQReceives != 6 {
			w.t.Errorf("counters after a reset: %+v", c)
		}
	})
}

// TestStaleSRQN checks that completions of send requests name an SRQ: the queue
// pair's, or else the lowest number that exists.
func TestStaleSRQN(t *testing.T) {
	run(t, 1, engine.Config{StaleSRQN: true}, func(w *world) {
		h := w.hosts[0]
		var first, second *srq
		var a, b *qp
		var m *region
		w.do(func() {
			a = h.newQP(engine.QPAttr{})
			m = h.register(100, allRights)
			connect(a, a)
			a.post(wqe{op: prm.OpcodeWrite}.raddr(m, 0).data(m, 0, 8))
		})
		if got := a.scq.poll(); len(got) != 1 || got[0].user != 0 {
			w.t.Errorf("without an SRQ: %+v", got)
		}
		w.do(func() {
			first, second = h.newSRQ(engine.SRQAttr{}, 3), h.newSRQ(engine.SRQAttr{}, 3)
			b = h.newQP(engine.QPAttr{Source: engine.FromSRQ, SRQ: second.Number})
			connect(b, b)
			a.post(wqe{op: prm.OpcodeWrite}.raddr(m, 0).data(m, 0, 8))
			b.post(wqe{op: prm.OpcodeWrite}.raddr(m, 0).data(m, 0, 8), wqe{op: prm.OpcodeWrite}.words(0, 0).data(m, 0, 8))
		})
		if got := a.scq.poll(); len(got) != 1 || got[0].user != first.Number {
			w.t.Errorf("of a queue pair without an SRQ: %+v", got)
		}
		got := b.scq.poll()
		if len(got) != 2 || got[0].user != second.Number || got[1].user != second.Number || got[1].op != prm.CQEReqErr {
			w.t.Errorf("of a queue pair with SRQ %#x: %+v", second.Number, got)
		}
	})
}
