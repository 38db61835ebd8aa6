package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// TestTeardown checks that all objects can be destroyed, users first, and only
// once.
func TestTeardown(t *testing.T) {
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		w.do(func() {
			n := h.newNIC(2, engine.TIRAttr{Indirect: true})
			rqt := must(h.TIR(n.tir.Number)).RQT
			table := must(h.CreateFlowTable(engine.FlowTableAttr{Level: 1, LogSize: 2}))
			next := must(h.CreateFlowTable(engine.FlowTableAttr{Level: 2, LogSize: 2}))
			group := must(h.CreateFlowGroup(table, engine.FlowGroup{Last: 3}))
			toTIR := engine.Flow{Group: group, Forward: true,
				Dests: []engine.FlowDest{{Type: engine.FlowToTIR, Number: n.tir.Number}}}
			w.must(h.SetFlow(table, 1, toTIR))
			w.must(h.SetFlow(table, 1, toTIR)) // index 1
			w.must(h.SetFlowTableMiss(table, next))
			w.must(h.SetFlowTableRoot(engine.NICReceive, table))
			if f, err := h.Flow(table, 1); err != nil || f.Dests[0] != toTIR.Dests[0] {
				w.t.Errorf("the flow is %+v, %v", f, err)
			}
			if a, err := h.FlowTable(table); err != nil || a.MissTable != next {
				w.t.Errorf("the table is %+v, %v", a, err)
			}
			q := h.newQP(engine.QPAttr{})
			mw := h.window(1)
			first, other := n.rqs[0].rq.Number, n.rqs[1].rq.Number
			tis := must(h.SQ(n.number)).TIS
			steps := []struct {
				what    string
				destroy func() error
				busy    bool // on the first attempt
				then    func() error
			}{
				{"a table behind another", func() error { return h.DestroyFlowTable(next) }, true,
					func() error { return h.SetFlowTableMiss(table, 0) }},
				{"a group with a flow", func() error { return h.DestroyFlowGroup(table, group) }, true,
					func() error { return h.DeleteFlow(table, 1) }},
				{"a root", func() error { return h.DestroyFlowTable(table) }, false, nil},
				{"a table of queues", func() error { return h.DestroyRQT(rqt) }, true,
					func() error { return h.ModifyTIR(n.tir.Number, engine.TIRAttr{RQ: first}) }},
				{"a queue without users", func() error { return h.DestroyRQ(other) }, false, nil},
				{"a queue of a TIR", func() error { return h.DestroyRQ(first) }, true,
					func() error { return h.DestroyTIR(n.tir.Number) }},
				{"a TIS of a queue", func() error { return h.DestroyTIS(tis) }, true,
					func() error { return h.DestroySQ(n.number) }},
				{"a CQ of a queue pair", func() error { return h.DestroyCQ(q.scq.Number) }, true,
					func() error { return h.DestroyQP(q.number) }},
				{"a CQ of raw Ethernet", func() error { return h.DestroyCQ(n.scq.Number) }, false, nil},
				{"a PD of a key", func() error { return h.DestroyPD(h.pd) }, true, func() error { return h.DestroyMKey(mw.Index) }},
			}
			for _, x := range steps {
				if x.busy {
					if err := x.destroy(); !errors.Is(err, engine.ErrBusy) {
						w.t.Errorf("%s: %v", x.what, err)
					}
					w.must(x.then())
				}
				if err := x.destroy(); err != nil {
					w.t.Errorf("%s: %v", x.what, err)
				}
				if err := x.destroy(); !errors.Is(err, engine.ErrResource) {
					w.t.Errorf("%s, twice: %v", x.what, err)
				}
			}
			h.ReceiveFrame(udp(h.MAC(), h.MAC(), 1, 2, nil)) // no table remains
			for what, err := range map[string]error{
				"RQ": second(h.RQ(first)), "RQT": second(h.RQT(rqt)), "TIR": second(h.TIR(1)), "TIS": second(h.TIS(1)),
				"SQ": second(h.SQ(n.number)),
				"CQ": second(h.CQ(n.scq.Number)), "QP": second(h.QP(q.number)), "table": second(h.FlowTable(table)),
				"SRQ": second(h.SRQ(1)),
			} {
				if !errors.Is(err, engine.ErrResource) {
					w.t.Errorf("%s still exists: %v", what, err)
				}
			}
		})
	})
}

// TestRQT checks that the queues of a table can be replaced.
func TestRQT(t *testing.T) {
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		mac := h.MAC()
		var n *nic
		w.do(func() {
			n = h.newNIC(2, engine.TIRAttr{Indirect: true})
			m := h.register(2000, allRights)
			h.toTIR(mac[:], n.tir.Number)
			for _, q := range n.rqs {
				q.recv(m, 0, 1000)
			}
			w.must(h.ModifyRQT(n.tir.RQT, []uint32{n.rqs[1].rq.Number}))
			if err := h.ModifyRQT(n.tir.RQT, make([]uint32, 2000)); !errors.Is(err, engine.ErrLimit) {
				w.t.Errorf("a large table: %v", err)
			}
			h.ReceiveFrame(udp(mac, mac, 1, 2, nil))
		})
		if a, b := len(n.rqs[0].rcq.poll()), len(n.rqs[1].rcq.poll()); a != 0 || b != 1 {
			w.t.Errorf("%d and %d frames", a, b)
		}
	})
}

// TestMemoryGone checks that a ring, record or buffer in missing memory fails
// its queue, and that the host gets an event.
func TestMemoryGone(t *testing.T) {
	const nowhere = 0x100
	tests := map[string]struct {
		attr  func(a *engine.QPAttr)
		event engine.EventType
	}{
		"record": {func(a *engine.QPAttr) { a.Record = nowhere }, engine.EventQPFatal},
		"send ring": {func(a *engine.QPAttr) { a.Source = engine.FromNone; a.Buffer.Pages = []uint64{nowhere &^ 0xfff} },
			engine.EventQPFatal},
		"receive ring": {func(a *engine.QPAttr) { a.Buffer.Pages[0] = 0 }, engine.EventQPFatal},
	}
	for name, x := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, 1, engine.Config{}, func(w *world) {
				h := w.hosts[0]
				p := newPair(w, engine.QPAttr{})
				w.do(func() {
					a := must(h.QueryQP(p.a.number))
					a.Buffer.Pages = []uint64{h.alloc(4096), h.alloc(4096)}
					record := h.alloc(8)
					be.PutUint32(h.bytes(record, 4), 1)
					be.PutUint32(h.bytes(record+4, 4), 1)
					a.Record = record
					x.attr(&a)
					q := &qp{h: h, number: must(h.CreateQP(a)).Number, uar: 16}
					w.must(h.ModifyQP(p.b.number, engine.ToReset, 0, engine.QPAttr{}))
					connect(q, p.b)
					h.Store(16, 0x800, []byte{0, 0, 0, prm.OpcodeSend, 0, 0, byte(q.number), 1})
					p.b.posted, p.b.head = 0, 0
					clear(h.bytes(p.b.record, 8))
					p.b.post(wqe{op: prm.OpcodeSend}.data(p.bm, 0, 8))
				})
				w.later(10 * time.Millisecond)
				if len(h.events) == 0 || h.events[0].Type != x.event {
					w.t.Errorf("events %+v", h.events)
				}
				h.takeViolations()
			})
		})
	}
}

// TestCQGone checks that a CQ that cannot be written gets an access violation.
func TestCQGone(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		h := w.hosts[0]
		var c *engine.CQ
		w.do(func() {
			c = must(h.CreateCQ(engine.CQAttr{LogSize: 4, Buffer: engine.Buffer{PageShift: 12, Pages: []uint64{0}},
				Record: h.alloc(8)}))
			q := h.newQP(engine.QPAttr{SendCQ: c.Number})
			connect(q, q)
			q.post(wqe{op: prm.OpcodeWrite}.words(0, 0))
		})
		want := engine.AsyncEvent{Type: engine.EventCQError, Number: c.Number, Syndrome: engine.CQAccessViolation}
		if len(h.events) != 2 || h.events[0] != want {
			w.t.Errorf("events %+v", h.events)
		}
	})
}

// TestInjectReceive checks that an injected error of a receive completion fails
// the queue pair.
func TestInjectReceive(t *testing.T) {
	run(t, 2, engine.Config{}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() {
			w.must(p.b.h.InjectCompletion(0, transport.LocalAccess, 0, 1, 1))
			for range 3 {
				p.b.recv(p.bm, 0, 8)
			}
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
		})
		p.b.rcq.expect("the first", received(8))
		w.do(func() { p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8)) })
		p.b.rcq.expect("the second", recvError(transport.LocalAccess), unused)
		if s := p.b.state(); s != engine.Err {
			w.t.Errorf("state %d", s)
		}
	})
}

// TestLateReset checks that work in progress at a device reset has no effect.
func TestLateReset(t *testing.T) {
	run(t, 2, engine.Config{}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() {
			p.b.recv(p.bm, 0, 8)
			w.must(p.b.h.InjectCompletion(p.b.number, transport.LocalAccess, 0, 0, 1))
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
			w.loop.Post(func() { w.loop.Post(p.b.h.Reset) })
		})
		w.later(time.Minute)
		p.a.scq.expect("no peer", sendError(transport.TransportRetry))
		if e := p.b.h.events; len(e) != 0 {
			w.t.Errorf("events after the reset: %+v", e)
		}
	})
}
