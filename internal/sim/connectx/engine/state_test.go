package engine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// TestTransitions checks, in every state, that exactly the valid transitions
// are accepted.
func TestTransitions(t *testing.T) {
	all := []engine.Transition{engine.RST2INIT, engine.INIT2INIT, engine.INIT2RTR, engine.RTR2RTS, engine.RTS2RTS,
		engine.RTS2SQD,
		engine.SQD2SQD, engine.SQD2RTS, engine.SQERR2RTS, engine.ToErr, engine.ToReset}
	ways := map[engine.QPState]map[engine.Transition]engine.QPState{
		engine.Reset: {engine.RST2INIT: engine.Init},
		engine.Init:  {engine.INIT2INIT: engine.Init, engine.INIT2RTR: engine.RTR},
		engine.RTR:   {engine.RTR2RTS: engine.RTS},
		engine.RTS:   {engine.RTS2RTS: engine.RTS, engine.RTS2SQD: engine.SQD},
		engine.SQD:   {engine.SQD2SQD: engine.SQD, engine.SQD2RTS: engine.RTS},
		engine.SQE:   {engine.SQERR2RTS: engine.RTS},
		engine.Err:   {},
	}
	path := map[engine.QPState][]engine.Transition{
		engine.Init: {engine.RST2INIT}, engine.RTR: {engine.RST2INIT, engine.INIT2RTR},
		engine.RTS: {engine.RST2INIT, engine.INIT2RTR, engine.RTR2RTS},
		engine.SQD: {engine.RST2INIT, engine.INIT2RTR, engine.RTR2RTS, engine.RTS2SQD}, engine.Err: {engine.ToErr},
	}
	for from, to := range ways {
		to[engine.ToErr], to[engine.ToReset] = engine.Err, engine.Reset
		for _, way := range all {
			run(t, 1, engine.Config{}, func(w *world) {
				q := w.hosts[0].newQP(engine.QPAttr{Service: engine.ServiceUD})
				w.do(func() {
					for _, step := range path[from] {
						w.must(q.h.ModifyQP(q.number, step, 0, q.attr(q)))
					}
				})
				if from == engine.SQE {
					w.do(func() {
						q.up(q.attr(q))
						q.post(wqe{op: prm.OpcodeSend}.av(q, 0).seg(1, 1, 1))
					})
					q.h.takeViolations()
				}
				if s := q.state(); s != from {
					w.t.Fatalf("state %d, want %d", s, from)
				}
				w.do(func() {
					want, ok := to[way]
					switch err := q.h.ModifyQP(q.number, way, 0, q.attr(q)); {
					case ok && err != nil || !ok && !errors.Is(err, engine.ErrState):
						w.t.Errorf("transition %d in state %d: %v", way, from, err)
					case ok && q.state() != want && want != engine.SQD:
						w.t.Errorf("transition %d in state %d led to %d", way, from, q.state())
					}
				})
			})
		}
	}
}

// TestModifyErrors checks invalid attributes.
func TestModifyErrors(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		q := w.hosts[0].newQP(engine.QPAttr{})
		good := q.attr(q)
		w.do(func() {
			for name, x := range map[string]struct {
				at     []engine.Transition
				change func(a *engine.QPAttr)
			}{
				"MTU": {[]engine.Transition{engine.RST2INIT, engine.INIT2RTR}, func(a *engine.QPAttr) { a.MTU = 1000 }},
				"P_Key": {[]engine.Transition{engine.RST2INIT, engine.INIT2RTR},
					func(a *engine.QPAttr) { a.Primary.PKeyIndex = 200 }},
				"RNR timer": {[]engine.Transition{engine.RST2INIT, engine.INIT2RTR},
					func(a *engine.QPAttr) { a.MinRNRTimer = 32 }},
				"responder": {[]engine.Transition{engine.RST2INIT, engine.INIT2RTR},
					func(a *engine.QPAttr) { a.MaxRespond = 1000 }},
				"retries": {[]engine.Transition{engine.RST2INIT, engine.INIT2RTR, engine.RTR2RTS},
					func(a *engine.QPAttr) { a.RetryCount = 8 }},
				"RNR retries": {[]engine.Transition{engine.RST2INIT, engine.INIT2RTR, engine.RTR2RTS},
					func(a *engine.QPAttr) { a.RNRRetry = 8 }},
				"timeout": {[]engine.Transition{engine.RST2INIT, engine.INIT2RTR, engine.RTR2RTS},
					func(a *engine.QPAttr) { a.AckTimeout = 32 }},
			} {
				w.must(q.h.ModifyQP(q.number, engine.ToReset, 0, engine.QPAttr{}))
				var err error
				for i, step := range x.at {
					a := good
					if i == len(x.at)-1 || name == "P_Key" {
						x.change(&a)
					}
					if err = q.h.ModifyQP(q.number, step, 0, a); err != nil {
						break
					}
				}
				if !errors.Is(err, engine.ErrParam) && !errors.Is(err, engine.ErrLimit) {
					w.t.Errorf("%s: %v", name, err)
				}
			}
			if err := q.h.ModifyQP(0x9999, engine.ToErr, 0, good); !errors.Is(err, engine.ErrResource) {
				w.t.Errorf("an unknown queue pair: %v", err)
			}
			if err := q.h.ModifyQP(q.number, 99, 0, good); !errors.Is(err, engine.ErrParam) {
				w.t.Errorf("an unknown transition: %v", err)
			}
		})
	})
}

// TestQuery checks that QueryQP returns the attributes that were set.
func TestQuery(t *testing.T) {
	run(t, 2, engine.Config{}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		want := p.a.attr(p.b)
		got := must(p.a.h.QueryQP(p.a.number))
		if got.State != engine.RTS || got.MTU != want.MTU || got.RemoteQPN != want.RemoteQPN ||
			got.SendPSN != want.SendPSN || got.RecvPSN != want.RecvPSN ||
			got.AckTimeout != want.AckTimeout || got.RetryCount != want.RetryCount || got.RNRRetry != want.RNRRetry ||
			got.MinRNRTimer != want.MinRNRTimer ||
			got.MaxInitiate != want.MaxInitiate || got.MaxRespond != want.MaxRespond || got.Primary != want.Primary ||
			!got.RemoteRead || !got.RemoteWrite || !got.RemoteAtomic {
			w.t.Errorf("%+v", got)
		}
		w.do(func() {
			a := engine.QPAttr{MinRNRTimer: 3, MTU: 256, RetryCount: 1}
			w.must(p.a.h.ModifyQP(p.a.number, engine.RTS2RTS, engine.ParamRNRTimer|engine.ParamRemoteRead, a))
		})
		got = must(p.a.h.QueryQP(p.a.number))
		if got.MinRNRTimer != 3 || got.RemoteRead || !got.RemoteWrite || got.MTU != want.MTU ||
			got.RetryCount != want.RetryCount {
			w.t.Errorf("after a change of two: %+v", got)
		}
	})
}

// TestDrain checks that in SQD requests that have begun complete, the host gets
// an event, and posted requests wait for RTS.
func TestDrain(t *testing.T) {
	run(t, 2, engine.Config{}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() {
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8)) // waits for a receive request
		})
		w.do(func() {
			w.must(p.a.h.ModifyQP(p.a.number, engine.RTS2SQD, 0, engine.QPAttr{DrainEvent: true}))
			p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).data(p.am, 0, 8))
		})
		w.later(100 * time.Millisecond)
		if s := p.a.state(); s != engine.Draining || len(p.a.h.events) > 0 {
			w.t.Errorf("state %d, events %+v", s, p.a.h.events)
		}
		w.do(func() { p.b.recv(p.bm, 0, 8) })
		w.later(100 * time.Millisecond)
		p.a.scq.expect("drained", sent)
		if s := p.a.state(); s != engine.SQD || len(p.a.h.events) != 1 ||
			p.a.h.events[0] != (engine.AsyncEvent{Type: engine.EventSQDrained, Number: p.a.number}) {
			w.t.Errorf("state %d, events %+v", s, p.a.h.events)
		}
		w.do(func() { w.must(p.a.h.ModifyQP(p.a.number, engine.SQD2RTS, 0, engine.QPAttr{})) })
		p.a.scq.expect("posted meanwhile", sent)
	})
}

// TestEstablished checks that a message in RTR generates an event.
func TestEstablished(t *testing.T) {
	run(t, 2, engine.Config{}, func(w *world) {
		var a, b *qp
		w.do(func() {
			a, b = w.hosts[0].newQP(engine.QPAttr{}), w.hosts[1].newQP(engine.QPAttr{})
			a.up(a.attr(b))
			for _, step := range []engine.Transition{engine.RST2INIT, engine.INIT2RTR} {
				w.must(b.h.ModifyQP(b.number, step, 0, b.attr(a)))
			}
			m := b.h.register(100, allRights)
			b.recv(m, 0, 100)
			a.post(wqe{op: prm.OpcodeSend}.inline([]byte{1}))
		})
		a.scq.expect("sent", sent)
		b.rcq.expect("received", received(1))
		if e := b.h.events; len(e) != 1 || e[0] != (engine.AsyncEvent{Type: engine.EventEstablished, Number: b.number}) {
			w.t.Errorf("events %+v", e)
		}
	})
}

// TestMigration checks that the armed alternate path is used when the path
// fails, and that both hosts get an event.
func TestMigration(t *testing.T) {
	run(t, 2, engine.Config{}, func(w *world) {
		var p pair
		w.do(func() {
			p.a, p.b = w.hosts[0].newQP(engine.QPAttr{}), w.hosts[1].newQP(engine.QPAttr{})
			p.am, p.bm = p.a.h.register(100, allRights), p.b.h.register(100, allRights)
			for _, x := range [][2]*qp{{p.a, p.b}, {p.b, p.a}} {
				a := x[0].attr(x[1])
				a.Alternate = a.Primary
				a.Alternate.SL = 3
				a.Migration = transport.Rearm
				for _, step := range []engine.Transition{engine.RST2INIT, engine.INIT2RTR, engine.RTR2RTS} {
					w.must(x[0].h.ModifyQP(x[0].number, step, engine.ParamAlternate|engine.ParamMigration, a))
				}
			}
		})
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).data(p.am, 0, 8)) })
		w.do(func() { p.b.post(wqe{op: prm.OpcodeWrite}.raddr(p.am, 0).data(p.bm, 0, 8)) })
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).data(p.am, 0, 8)) })
		p.a.scq.expect("on the first path", sent, sent)
		if m := must(p.a.h.QueryQP(p.a.number)).Migration; m != transport.Armed {
			w.t.Fatalf("migration state %d, want armed", m)
		}
		w.lose = func(pkt *roce.Packet) bool { return pkt.Route.SL == 0 }
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).data(p.am, 0, 8)) })
		w.later(time.Minute)
		p.a.scq.expect("on the other path", sent)
		for _, x := range []*qp{p.a, p.b} {
			if e := x.h.events; len(e) != 1 || e[0] != (engine.AsyncEvent{Type: engine.EventPathMigrated, Number: x.number}) {
				w.t.Errorf("events %+v", e)
			}
		}
	})
}

// TestResetQP checks that a queue pair works again after a reset.
func TestResetQP(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() { p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8), wqe{op: prm.OpcodeNOP}) })
		w.do(func() {
			for _, q := range []*qp{p.a, p.b} {
				w.must(q.h.ModifyQP(q.number, engine.ToReset, 0, engine.QPAttr{}))
				clear(q.h.bytes(q.record, 8))
				q.posted, q.head = 0, 0
			}
			connect(p.a, p.b)
			p.b.recv(p.bm, 0, 8)
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
		})
		p.a.scq.expect("sent", sent)
		p.b.rcq.expect("received", received(8))
	})
}

// TestCreateErrors checks objects that cannot be created and objects that
// cannot be destroyed.
func TestCreateErrors(t *testing.T) {
	run(t, 1, engine.Config{Limits: engine.Limits{QPs: 4, CQs: 8, SRQs: 2}}, func(w *world) {
		h := w.hosts[0]
		q := h.newQP(engine.QPAttr{})
		c := q.scq
		buffer, _ := h.buffer(1 << 16)
		base := engine.QPAttr{PD: h.pd, SendCQ: c.Number, RecvCQ: c.Number, LogSQSize: 2, LogRQSize: 2, LogRQStride: 6,
			Buffer: buffer}
		for name, change := range map[string]func(a *engine.QPAttr) error{
			"service":    func(a *engine.QPAttr) error { a.Service = 0x33; return engine.ErrParam },
			"PD":         func(a *engine.QPAttr) error { a.PD = 77; return engine.ErrResource },
			"send CQ":    func(a *engine.QPAttr) error { a.SendCQ = 77; return engine.ErrResource },
			"receive CQ": func(a *engine.QPAttr) error { a.RecvCQ = 77; return engine.ErrResource },
			"SRQ":        func(a *engine.QPAttr) error { a.Source, a.SRQ = engine.FromSRQ, 77; return engine.ErrResource },
			"XRC domain": func(a *engine.QPAttr) error {
				a.Service, a.NoSQ = engine.ServiceXRC,
					true
				return engine.ErrResource
			},
			"large SQ":        func(a *engine.QPAttr) error { a.LogSQSize = 16; return engine.ErrLimit },
			"large RQ":        func(a *engine.QPAttr) error { a.LogRQSize = 16; return engine.ErrLimit },
			"stride":          func(a *engine.QPAttr) error { a.LogRQStride = 3; return engine.ErrLimit },
			"buffer":          func(a *engine.QPAttr) error { a.Buffer.Pages = nil; return engine.ErrParam },
			"buffer's offset": func(a *engine.QPAttr) error { a.Buffer.Offset = 1 << 16; return engine.ErrParam },
			"record":          func(a *engine.QPAttr) error { a.Record = 2; return engine.ErrParam },
		} {
			a := base
			want := change(&a)
			if _, err := h.CreateQP(a); !errors.Is(err, want) {
				w.t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		for range 3 {
			must(h.CreateQP(base))
		}
		if _, err := h.CreateQP(base); !errors.Is(err, engine.ErrLimit) {
			w.t.Errorf("one too many: %v", err)
		}
		for name, x := range map[string]struct{ err, want error }{
			"a CQ in use":     {h.DestroyCQ(c.Number), engine.ErrBusy},
			"an unknown CQ":   {h.DestroyCQ(77), engine.ErrResource},
			"an unknown QP":   {h.DestroyQP(77), engine.ErrResource},
			"an unknown SRQ":  {h.DestroySRQ(77), engine.ErrResource},
			"an unknown PD":   {h.DestroyPD(77), engine.ErrResource},
			"an unknown XRCD": {h.DestroyXRCD(77), engine.ErrResource},
			"arming an SRQ":   {h.ArmSRQ(77, 1), engine.ErrResource},
			"a GID index":     {h.SetGID(64, engine.GIDEntry{}), engine.ErrParam},
			"a P_Key index":   {h.SetPKey(-1, 1), engine.ErrParam},
			"a group":         {h.AttachMulticast(q.number, [16]byte{0xff}), engine.ErrParam},
			"a group's QP":    {h.AttachMulticast(77, [16]byte{0xff}), engine.ErrResource},
			"destroying a QP": {h.DestroyQP(q.number), nil},
		} {
			if !errors.Is(x.err, x.want) {
				w.t.Errorf("%s: %v, want %v", name, x.err, x.want)
			}
		}
		for name, a := range map[string]engine.CQAttr{
			"large": {LogSize: 23}, "no buffer": {LogSize: 2}, "record": {LogSize: 2, Buffer: buffer, Record: 4},
		} {
			if _, err := h.CreateCQ(a); err == nil {
				w.t.Errorf("a CQ: %s", name)
			}
		}
		for name, a := range map[string]engine.SRQAttr{
			"no PD": {LogSize: 2, LogStride: 6, Buffer: buffer}, "large": {PD: h.pd, LogSize: 16, LogStride: 6, Buffer: buffer},
			"no buffer": {PD: h.pd, LogSize: 2, LogStride: 6},
			"record":    {PD: h.pd, LogSize: 2, LogStride: 6, Buffer: buffer, Record: 2},
			"no domain": {PD: h.pd, LogSize: 2, LogStride: 6, Buffer: buffer, XRC: true},
			"stride":    {PD: h.pd, LogSize: 2, LogStride: 4, Buffer: buffer},
		} {
			if _, err := h.CreateSRQ(a); err == nil {
				w.t.Errorf("an SRQ: %s", name)
			}
		}
	})
}

// TestLateRawReceives checks the same for a raw Ethernet receive queue, until
// it is reset.
func TestLateRawReceives(t *testing.T) {
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		n := h.newNIC(2, engine.TIRAttr{Indirect: true})
		m := h.register(64, allRights)
		for _, q := range n.rqs {
			w.do(func() { w.must(h.ModifyRQ(q.rq.Number, engine.QueueReady, engine.QueueError)) })
			w.later(time.Second)
			w.do(func() { q.recv(m, 0, 60) })
			w.later(100 * time.Millisecond)
			q.rcq.expect("after a second", unused)
		}
		q := n.rqs[0]
		w.do(func() {
			w.must(h.ModifyRQ(q.rq.Number, engine.QueueError, engine.QueueReset))
			clear(h.bytes(q.record, 8))
			q.head = 0
			q.recv(m, 0, 60)
		})
		w.later(time.Second)
		q.rcq.expect("after a reset")
	})
}

// TestRawRingGone checks that a raw Ethernet receive queue whose ring cannot be
// read fails, and that its posted requests are flushed.
func TestRawRingGone(t *testing.T) {
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		n := h.newNIC(1, engine.TIRAttr{})
		q, mac, m := n.rqs[0], h.MAC(), h.register(64, allRights)
		h.toTIR(mac[:], n.tir.Number)
		w.do(func() {
			q.recv(m, 0, 60)
			q.recv(m, 0, 60)
			page := q.rq.Buffer.Pages[0]
			q.rq.Buffer.Pages[0] = 0
			h.ReceiveFrame(udp(mac, mac, 1, 2, nil))
			q.rq.Buffer.Pages[0] = page
		})
		q.rcq.expect("posted before", unused, unused)
		want := []engine.AsyncEvent{{Type: engine.EventQPFatal, Queue: engine.QueueRQ, Number: q.rq.Number}}
		if !slices.Equal(h.events, want) {
			t.Errorf("events %+v", h.events)
		}
		w.do(func() { q.recv(m, 0, 60) })
		w.later(time.Second)
		q.rcq.expect("posted later", unused)
	})
}

// TestLateReceives checks that requests posted to a queue pair in its error
// state are flushed, although they have no doorbell. If the host is idle for
// long, this stops until its next store to any register.
func TestLateReceives(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		h := w.hosts[0]
		q, other := h.newQP(engine.QPAttr{}), h.newQP(engine.QPAttr{})
		m := h.register(64, allRights)
		w.do(func() { w.must(h.ModifyQP(q.number, engine.ToErr, 0, engine.QPAttr{})) })
		post := func(what string, wait time.Duration, want ...cqe) {
			w.t.Helper()
			w.do(func() { q.recv(m, 0, 8) })
			w.later(wait)
			q.rcq.expect(what, want...)
		}
		for range 3 {
			w.later(4 * time.Second)
			post("after some seconds", 100*time.Millisecond, unused)
		}
		w.later(time.Minute)
		post("after a minute", time.Minute)
		w.do(func() { other.rcq.arm(true) })
		q.rcq.expect("with a store to another queue's register", unused)
		for range 20 { // an active host
			w.later(4 * time.Second)
			w.do(func() { other.rcq.arm(true) })
		}
		post("with others' stores", 100*time.Millisecond, unused)
	})
}
