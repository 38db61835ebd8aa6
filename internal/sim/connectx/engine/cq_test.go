package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// nops returns a queue pair of which only the send queue is used.
func nops(w *world, a engine.CQAttr) (*cq, *qp) {
	var c *cq
	var q *qp
	w.do(func() {
		h := w.hosts[0]
		c = h.newCQ(a)
		q = h.newQP(engine.QPAttr{SendCQ: c.Number})
		connect(q, q)
	})
	return c, q
}

// complete posts n requests that only complete.
func (w *world) complete(q *qp, n int) {
	for range n {
		w.do(func() { q.post(wqe{op: prm.OpcodeNOP}) })
	}
}

// TestArm checks that an armed CQ generates one event for the next completion,
// or at once if there are completions that the host had not polled when it
// armed, and only for errors and solicited messages if so armed.
func TestArm(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		h := w.hosts[0]
		events := func(what string, want int) {
			t.Helper()
			if len(h.completed) != want {
				w.t.Errorf("%s: %d events, want %d", what, len(h.completed), want)
			}
			h.completed = nil
		}
		send := func(se bool) {
			w.do(func() {
				p.b.recv(p.bm, 0, 8)
				p.a.post(wqe{op: prm.OpcodeSend, se: se, silent: true}.data(p.am, 0, 8))
			})
		}
		send(false)
		events("not armed", 0)
		w.do(func() { p.b.rcq.arm(true) })
		events("armed with one not polled", 1)
		send(false)
		events("no more without arming", 0)
		p.b.rcq.poll()
		w.do(func() { p.b.rcq.arm(true) })
		events("armed with all polled", 0)
		send(false)
		send(false)
		events("two completions", 1)
		w.do(func() { p.b.rcq.arm(false) })
		events("solicited with others not polled", 0)
		send(false)
		events("not solicited", 0)
		send(true)
		events("solicited", 1)
		w.do(func() { p.b.rcq.arm(false) })
		events("solicited not polled", 1)
		p.b.rcq.poll()
		w.do(func() { p.b.rcq.arm(false) })
		events("all polled", 0)
		w.do(func() {
			p.b.recv(p.bm, 0, 8)
			w.must(h.ModifyQP(p.b.number, engine.ToErr, 0, engine.QPAttr{}))
		})
		events("an error", 1)
	})
}

// TestModeration checks that an event waits for the number of completions or
// the time.
func TestModeration(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		c, q := nops(w, engine.CQAttr{LogSize: 6, MaxCount: 3, Period: 50000})
		h := w.hosts[0]
		w.do(func() { c.arm(true) })
		w.complete(q, 2)
		if len(h.completed) != 0 {
			w.t.Error("an event after two completions")
		}
		w.complete(q, 1)
		if len(h.completed) != 1 {
			w.t.Errorf("%d events after three completions", len(h.completed))
		}
		c.poll()
		w.do(func() { c.arm(true) })
		w.complete(q, 1)
		w.later(48 * time.Millisecond)
		if len(h.completed) != 1 {
			w.t.Error("an event before its time")
		}
		w.later(3 * time.Millisecond)
		if len(h.completed) != 2 {
			w.t.Errorf("%d events after the time", len(h.completed))
		}
		w.do(func() { c.Moderate(0, 0); c.poll(); c.arm(true) })
		w.complete(q, 1)
		if len(h.completed) != 3 {
			w.t.Errorf("%d events without moderation", len(h.completed))
		}
	})
}

// TestWide checks completions of 128 bytes, across the end of the queue.
func TestWide(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		c, q := nops(w, engine.CQAttr{LogSize: 2, Wide: true})
		for range 11 {
			w.complete(q, 1)
			c.expect("wide", sent)
		}
	})
}

// TestOverrun checks that an overrun fails the CQ and its queue pairs, unless
// the CQ ignores overruns.
func TestOverrun(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		h := w.hosts[0]
		c, q := nops(w, engine.CQAttr{LogSize: 2})
		w.do(func() {
			for range 5 {
				q.post(wqe{op: prm.OpcodeWrite}.words(0, 0).words())
			}
		})
		w.later(time.Second)
		if len(h.events) < 2 || h.events[0] != (engine.AsyncEvent{Type: engine.EventCQError, Number: c.Number,
			Syndrome: engine.CQOverrun}) ||
			h.events[1].Type != engine.EventQPFatal || h.events[1].Number != q.number || len(h.events) > 2 {
			w.t.Errorf("events %+v", h.events)
		}
		if r := h.takeViolations(); len(r) != 1 || r[0] != engine.RuleCQOverrun {
			w.t.Errorf("violations %v", r)
		}
		if s, _, _ := c.State(); s != engine.CQFailed || q.state() != engine.Err {
			w.t.Errorf("CQ in state %d, QP in state %d", s, q.state())
		}
		c, q = nops(w, engine.CQAttr{LogSize: 2, NoCheck: true})
		w.complete(q, 9)
		if s, n, _ := c.State(); s != engine.CQIdle || n != 9 {
			w.t.Errorf("without the check: state %d after %d completions", s, n)
		}
	})
}

// TestFreshBeforeUse checks that a host may mark the entries of a buffer after it has created the CQ, until a queue
// refers to the CQ.
func TestFreshBeforeUse(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		h := w.hosts[0]
		w.do(func() {
			b, at := h.buffer(64 << 3)
			c := must(h.CreateCQ(engine.CQAttr{LogSize: 3, Buffer: b, Record: h.alloc(8)}))
			for i := range uint64(8) {
				at(i*64, 64)[63] = prm.CQEInvalid << 4
			}
			h.newQP(engine.QPAttr{SendCQ: c.Number})
			at(0, 64)[63] = 0 // the host has polled this entry, and the CQ is in use
			h.newQP(engine.QPAttr{SendCQ: c.Number})
		})
		if got := h.takeViolations(); len(got) != 0 {
			w.t.Errorf("violations %v", got)
		}
	})
}

// TestResize checks that completions not polled stay in the old buffer, which
// ends with a resize CQE, and that later ones are written to the new buffer.
func TestResize(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		c, q := nops(w, engine.CQAttr{LogSize: 3})
		w.complete(q, 5)
		c.poll()
		w.complete(q, 4)
		w.do(func() {
			if err := c.Resize(2, false, engine.Buffer{}); !errors.Is(err, engine.ErrParam) {
				w.t.Errorf("a resize without a buffer: %v", err)
			}
			b, _ := w.hosts[0].fresh(2, 64)
			if err := c.Resize(2, false, b); !errors.Is(err, engine.ErrParam) {
				w.t.Errorf("a resize to 4 with 4 not polled: %v", err)
			}
			old := *c
			b, at := w.hosts[0].fresh(5, 64)
			w.must(c.Resize(5, false, b))
			// As the driver does: the old entries move by one.
			i := old.consumer
			for ; ; i++ {
				src := old.at(uint64(i&7)*64, 64)
				if prm.CQEOpcode.Get(src) == prm.CQEResize {
					break
				}
				dst := at(uint64((i+1)&31)*64, 64)
				copy(dst, src)
				prm.CQEOwner.Set(dst, uint64((i+1)/32&1))
			}
			if i != old.consumer+4 {
				w.t.Errorf("the resize CQE is at %d", i)
			}
			c.at, c.size = at, 32
			c.consumer++
			be.PutUint32(w.hosts[0].bytes(c.record, 4), c.consumer)
		})
		w.complete(q, 3)
		var want []cqe
		for range 7 {
			want = append(want, sent)
		}
		c.expect("after the resize", want...)
	})
}

// TestScatterToCQE checks that small messages and responses are in the
// completion and larger ones in memory.
func TestScatterToCQE(t *testing.T) {
	for _, limit := range []uint8{32, 64} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) { scatterToCQE(w, limit) })
		})
	}
}

func scatterToCQE(w *world, limit uint8) {
	a, b := w.hosts[0], w.hosts[1]
	var p pair
	w.do(func() {
		cqs := [2]*cq{a.newCQ(engine.CQAttr{LogSize: 6, Wide: limit == 64}),
			b.newCQ(engine.CQAttr{LogSize: 6, Wide: limit == 64})}
		p.a = a.newQP(engine.QPAttr{SendCQ: cqs[0].Number, ScatterRequest: limit})
		p.b = b.newQP(engine.QPAttr{RecvCQ: cqs[1].Number, ScatterResponse: limit})
		p.a.scq, p.b.rcq = cqs[0], cqs[1]
		p.am, p.bm = a.register(4096, allRights), b.register(4096, allRights)
		connect(p.a, p.b)
	})
	for _, n := range []int{1, 31, 32, 33, 64, 65, 2000} {
		want := pattern(n, n)
		p.am.put(0, want)
		p.bm.put(0, make([]byte, n))
		w.do(func() {
			p.b.recv(p.bm, 0, n)
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, n))
		})
		p.a.scq.poll()
		got := p.b.rcq.poll()
		if len(got) != 1 || got[0].bytes != uint32(n) {
			w.t.Fatalf("%d bytes: %+v", n, got)
		}
		if data, in := p.bm.get(0, n), n <= int(limit); in && !bytes.Equal(got[0].data, want) ||
			in != (got[0].data != nil) || in && bytes.Equal(data, want) || !in && !bytes.Equal(data, want) {
			w.t.Errorf("a message of %d bytes: in the completion %t", n, got[0].data != nil)
		}
		p.bm.put(0, want)
		p.am.put(0, make([]byte, n))
		w.do(func() { p.a.post(wqe{op: prm.OpcodeRead}.raddr(p.bm, 0).data(p.am, 0, n)) })
		got = p.a.scq.poll()
		if in := n <= int(limit); len(got) != 1 || in && !bytes.Equal(got[0].data, want) || in != (got[0].data != nil) ||
			!in && !bytes.Equal(p.am.get(0, n), want) {
			w.t.Errorf("a response of %d bytes: %+v", n, got)
		}
	}
}

// TestTimestamp checks that completions contain the device's time.
func TestTimestamp(t *testing.T) {
	now := uint64(0x123456789a)
	run(t, 1, engine.Config{Now: func() uint64 { return now }}, func(w *world) {
		c, q := nops(w, engine.CQAttr{LogSize: 2})
		w.complete(q, 1)
		if e, _ := c.pollOne(); prm.CQETimestamp.Get(e.raw) != now {
			w.t.Errorf("time stamp %#x", prm.CQETimestamp.Get(e.raw))
		}
	})
}
