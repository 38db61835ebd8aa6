package engine_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// burst posts a request by BlueFlame, in stores of step bytes.
func (q *qp) burst(w wqe, step int) {
	b := q.write(w)
	for len(b)%64 != 0 {
		b = append(b, 0)
	}
	be.PutUint32(q.h.bytes(q.record+4, 4), uint32(q.posted))
	for i := 0; i < len(b); i += step {
		q.h.Store(q.uar, q.flame+uint32(i), b[i:min(i+step, len(b))])
	}
	q.flame ^= 0x100
}

// TestBlueFlame writes bursts of one to four blocks, whole and in stores of
// eight bytes, between doorbells, to alternating registers.
func TestBlueFlame(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		for i, n := range []int{1, 12, 28, 29, 92, 93, 200, 220} {
			for _, step := range []int{1, 4, 8, 64, 256} {
				want := pattern(n, i+step)
				w.do(func() {
					p.a.post(wqe{op: prm.OpcodeWrite, silent: true}.raddr(p.bm, 1000).inline([]byte{1}))
					p.a.burst(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 5).inline(want), step)
				})
				p.a.scq.expect("a burst", sent)
				if got := p.bm.get(5, n); !bytes.Equal(got, want) {
					w.t.Errorf("%d bytes in steps of %d: got % x", n, step, got)
				}
			}
		}
	})
}

// TestWriteCombining does the driver's test of BlueFlame: a NOP requests a
// completion in the burst, but not in memory.
func TestWriteCombining(t *testing.T) {
	for _, whole := range []bool{true, false} {
		run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
			c, q := nops(w, engine.CQAttr{LogSize: 4})
			w.do(func() {
				b := q.write(wqe{op: prm.OpcodeNOP, silent: true})
				be.PutUint32(q.h.bytes(q.record+4, 4), 1)
				b = append(b, make([]byte, 48)...)
				prm.CtrlCompletion.Set(b, prm.CompletionAlways)
				if !whole {
					b = b[:8]
				}
				q.h.Store(q.uar, 0x800, b)
			})
			w.later(25 * time.Millisecond)
			if n := len(c.poll()); whole != (n == 1) {
				w.t.Errorf("whole burst %t: %d completions", whole, n)
			}
		})
	}
}

// TestRecordAhead checks that a doorbell whose record is already that of the next one executes nothing beyond its own
// WQE, since stores of the host may not have arrived on which the next WQE depends, and that the next WQE is executed
// without its doorbell some time later.
func TestRecordAhead(t *testing.T) {
	for _, rings := range []bool{true, false} {
		run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
			c, q := nops(w, engine.CQAttr{LogSize: 4})
			var first, second [64]byte // bursts: a doorbell of a NOP alone would wait for one
			w.loop.Run(func() {
				copy(first[:], q.write(wqe{op: prm.OpcodeNOP}))
				copy(second[:], q.write(wqe{op: prm.OpcodeNOP}))
				be.PutUint32(q.h.bytes(q.record+4, 4), 2)
				q.h.Store(q.uar, 0x800, first[:])
			})
			w.later(time.Millisecond)
			if n := len(c.poll()); n != 1 {
				w.t.Errorf("after the first doorbell: %d completions", n)
			}
			if rings {
				w.loop.Run(func() { q.h.Store(q.uar, 0x900, second[:]) })
				w.later(time.Millisecond)
			} else {
				w.later(25 * time.Millisecond)
			}
			if n := len(c.poll()); n != 1 {
				w.t.Errorf("with a second doorbell %t: %d completions", rings, n)
			}
		})
	}
}

// TestResetAhead checks that a queue which was reset executes nothing of a record that was ahead of its doorbell.
func TestResetAhead(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1, LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		c, q := nops(w, engine.CQAttr{LogSize: 4})
		w.resetAhead(c, q, func() { w.must(h.ModifyQP(q.number, engine.ToReset, 0, engine.QPAttr{})) },
			func() { q.up(q.attr(q)) })
		var n *nic
		w.do(func() { n = h.newNIC(1, engine.TIRAttr{}) })
		w.resetAhead(n.scq, n.qp, func() {
			w.must(h.ModifySQ(n.number, engine.QueueReady, engine.QueueReset))
		}, func() { w.must(h.ModifySQ(n.number, engine.QueueReset, engine.QueueReady)) })
	})
}

// resetAhead resets a queue of which only the first of six requests has rung its doorbell, and uses it again. The
// driver zeroes the record some time after the command.
func (w *world) resetAhead(c *cq, q *qp, reset, ready func()) {
	w.t.Helper()
	w.loop.Run(func() {
		var first [64]byte // a burst: a doorbell of a NOP alone would wait for one
		copy(first[:], q.write(wqe{op: prm.OpcodeNOP}))
		for range 5 {
			q.write(wqe{op: prm.OpcodeNOP})
		}
		be.PutUint32(q.h.bytes(q.record+4, 4), 6)
		q.h.Store(q.uar, q.flame, first[:])
	})
	w.later(time.Millisecond)
	if n := len(c.poll()); n != 1 {
		w.t.Errorf("after the first doorbell: %d completions", n)
	}
	w.loop.Run(reset)
	w.later(25 * time.Millisecond)
	w.do(func() {
		be.PutUint32(q.h.bytes(q.record+4, 4), 0)
		q.posted = 0
		ready()
		q.post(wqe{op: prm.OpcodeNOP})
	})
	if n := len(c.poll()); n != 1 {
		w.t.Errorf("%d completions of one request after a reset", n)
	}
}

// TestLargestRing checks that one doorbell may be for as many WQEs as the largest queue has blocks.
func TestLargestRing(t *testing.T) {
	const log, n = 15, 1 << 15
	run(t, 1, engine.Config{CQEVersion: 1, WholeBursts: true}, func(w *world) {
		c := w.hosts[0].newCQ(engine.CQAttr{LogSize: log})
		q := w.hosts[0].newQP(engine.QPAttr{SendCQ: c.Number, LogSQSize: log})
		for round := range 2 { // the counter wraps
			w.do(func() {
				if round == 0 {
					connect(q, q)
				}
				q.post(slices.Repeat([]wqe{{op: prm.OpcodeNOP}}, n)...)
			})
			if got := len(c.poll()); got != n {
				w.t.Errorf("doorbell %d: %d completions of %d requests", round+1, got, n)
			}
		}
	})
}

// TestUnfinishedBurst checks that a WQE is executed once, from memory, if its
// burst is incomplete.
func TestUnfinishedBurst(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() {
			b := p.a.write(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).inline([]byte("0123456789abcdef")))
			be.PutUint32(p.a.h.bytes(p.a.record+4, 4), 1)
			p.a.h.Store(p.a.uar, 0x800, b[:8])
			p.a.h.Store(p.a.uar, 0x808, b[8:16])
			p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 20).inline([]byte("next")))
		})
		p.a.scq.expect("both", sent, sent)
		if got := string(p.bm.get(0, 24)); got[:16] != "0123456789abcdef" || got[20:] != "next" {
			w.t.Errorf("got %q", got)
		}
		if r := p.a.h.takeViolations(); len(r) != 1 || r[0] != engine.RuleBlueFlame {
			w.t.Errorf("violations %v", r)
		}
	})
}

// TestSlowBurst checks that there may be milliseconds between the stores of a
// burst, that a NOP is executed from memory if only its doorbell arrives, and
// that a burst ends after a timeout.
func TestSlowBurst(t *testing.T) {
	const pause = 30 * time.Millisecond
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		c, q := nops(w, engine.CQAttr{LogSize: 4})
		for i, v := range []struct {
			first, last int // bytes: without a pause, and in total
			want        int // completions: requested in the burst, not in memory
			violations  int
		}{{8, 64, 0, 0}, {16, 64, 1, 0}, {64, 64, 1, 0}, {8, 8, 0, 0}, {16, 16, 0, 1}, {8, 24, 0, 1}} {
			b := append(q.write(wqe{op: prm.OpcodeNOP, silent: true}), make([]byte, 48)...)
			prm.CtrlCompletion.Set(b, prm.CompletionAlways)
			be.PutUint32(q.h.bytes(q.record+4, 4), uint32(i+1))
			w.do(func() {
				for at := range v.first / 8 {
					q.h.Store(q.uar, 0x800+uint32(at)*8, b[at*8:at*8+8])
				}
			})
			for at := v.first / 8; at < v.last/8; at++ {
				w.later(pause)
				w.do(func() { q.h.Store(q.uar, 0x800+uint32(at)*8, b[at*8:at*8+8]) })
			}
			w.later(61 * time.Second)
			if n, r := len(c.poll()), q.h.takeViolations(); n != v.want || len(r) != v.violations {
				w.t.Errorf("%d: %d completions, violations %v", i, n, r)
			}
		}
	})
}

// TestWholeBursts checks that a NOP whose doorbell is not followed by a burst is
// executed at once if bursts arrive whole, and that bursts still are executed.
func TestWholeBursts(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1, WholeBursts: true}, func(w *world) {
		c, q := nops(w, engine.CQAttr{LogSize: 4})
		w.do(func() { q.post(wqe{op: prm.OpcodeNOP}) })
		if n := len(c.poll()); n != 1 {
			t.Errorf("%d completions of a doorbell, want 1", n)
		}
		b := append(q.write(wqe{op: prm.OpcodeNOP, silent: true}), make([]byte, 48)...)
		prm.CtrlCompletion.Set(b, prm.CompletionAlways)
		be.PutUint32(q.h.bytes(q.record+4, 4), 2)
		w.do(func() { q.h.Store(q.uar, 0x900, b) })
		if n, r := len(c.poll()), q.h.takeViolations(); n != 1 || len(r) != 0 {
			t.Errorf("%d completions of a burst, want 1; violations %v", n, r)
		}
	})
}

// TestDoorbellBeforeDestroy checks that a NOP whose doorbell still waits for a
// burst is executed before a command destroys its queue.
func TestDoorbellBeforeDestroy(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1, LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		_, q := nops(w, engine.CQAttr{LogSize: 4})
		w.do(func() {
			n := h.newNIC(1, engine.TIRAttr{})
			n.post(wqe{op: prm.OpcodeNOP})
			w.must(h.DestroySQ(n.number))
			q.post(wqe{op: prm.OpcodeNOP})
			w.must(h.DestroyQP(q.number))
		})
		if r := h.takeViolations(); len(r) != 0 {
			t.Errorf("violations %v", r)
		}
	})
}

// TestBurstsOfTwo writes bursts to two registers of a page at the same time, as
// two processors do.
func TestBurstsOfTwo(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		hello := []byte("0123456789ab")
		w.do(func() {
			var bursts [2][]byte
			for i, q := range []*qp{p.a, p.b} {
				b := q.write(wqe{op: prm.OpcodeWrite}.raddr([]*region{p.bm, p.am}[i], 0).inline(hello))
				bursts[i] = append(b, make([]byte, -len(b)&63)...)
				be.PutUint32(q.h.bytes(q.record+4, 4), 1)
			}
			for i := 0; i < 64; i += 8 {
				p.a.h.Store(16, uint32(0x800+i), bursts[0][i:i+8])
				p.a.h.Store(16, uint32(0xa00+i), bursts[1][i:i+8])
			}
		})
		w.later(time.Second)
		p.a.scq.expect("the first", sent)
		p.b.scq.expect("the second", sent)
	})
}
