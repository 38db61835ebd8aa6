package engine_test

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// TestErrors checks, for each kind of error, the completions at both ends, the
// asynchronous events, and that everything behind is flushed.
func TestErrors(t *testing.T) {
	none := engine.EventType(0)
	tests := []struct {
		name       string
		do         func(p *pair)
		send, recv cqe
		event      engine.EventType
		rule       engine.Rule
	}{
		{"unknown local key", func(p *pair) { p.a.post(wqe{op: prm.OpcodeSend}.seg(8, 0xdead00, 0)) },
			sendError(transport.LocalProtection), cqe{}, none, engine.RuleKey},
		{"local memory ends", func(p *pair) { p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 1<<16-7, 8)) },
			sendError(transport.LocalProtection), cqe{}, none, ""},
		{"local memory may not be written", func(p *pair) {
			r := p.a.h.register(64, engine.LocalRead)
			p.a.post(wqe{op: prm.OpcodeRead}.raddr(p.bm, 0).data(r, 0, 64))
		}, sendError(transport.LocalProtection), cqe{}, none, ""},
		{"another PD's memory", func(p *pair) {
			h := p.a.h
			own := h.pd
			h.pd = must(h.CreatePD())
			r := h.register(64, allRights)
			h.pd = own
			p.a.post(wqe{op: prm.OpcodeSend}.data(r, 0, 64))
		}, sendError(transport.LocalProtection), cqe{}, none, ""},
		{"receive buffer too short", func(p *pair) {
			p.b.recv(p.bm, 0, 99)
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 100))
		}, sendError(transport.RemoteInvalidRequest), recvError(transport.LocalLength), none, ""},
		{"receive buffer of a wrong key", func(p *pair) {
			r := p.b.h.register(100, engine.LocalRead)
			p.b.recv(r, 0, 100)
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 100))
		}, sendError(transport.RemoteOp), recvError(transport.LocalProtection), none, ""},
		{"remote key", func(p *pair) {
			w := wqe{op: prm.OpcodeWrite}.words(p.bm.addr, uint64(p.bm.Key()^1)<<32)
			p.a.post(w.data(p.am, 0, 8))
		}, sendError(transport.RemoteAccess), cqe{}, engine.EventQPAccess, ""},
		{"remote bounds", func(p *pair) { p.a.post(wqe{op: prm.OpcodeRead}.raddr(p.bm, 1<<16-7).data(p.am, 0, 8)) },
			sendError(transport.RemoteAccess), cqe{}, engine.EventQPAccess, ""},
		{"remote rights", func(p *pair) {
			r := p.b.h.register(64, allRights&^engine.RemoteWrite)
			p.a.post(wqe{op: prm.OpcodeWrite}.raddr(r, 0).data(p.am, 0, 8))
		}, sendError(transport.RemoteAccess), cqe{}, engine.EventQPAccess, ""},
		{"the queue pair does not permit READs", func(p *pair) {
			p.b.h.w.must(p.b.h.ModifyQP(p.b.number, engine.RTS2RTS, engine.ParamRemoteRead, engine.QPAttr{}))
			p.a.post(wqe{op: prm.OpcodeRead}.raddr(p.bm, 0).data(p.am, 0, 8))
		}, sendError(transport.RemoteAccess), cqe{}, engine.EventQPAccess, ""},
		{"an atomic that is not aligned", func(p *pair) {
			p.a.post(wqe{op: prm.OpcodeAtomicFA}.raddr(p.bm, 0).words(1, 0).data(p.am, 0, 8))
		}, sendError(transport.RemoteInvalidRequest), cqe{}, engine.EventQPRequest, ""},
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
				p := newPair(w, engine.QPAttr{})
				w.do(func() {
					x.do(p)
					p.a.post(wqe{op: prm.OpcodeNOP}, wqe{op: prm.OpcodeNOP, silent: true})
				})
				p.a.scq.expect("sender", x.send, flushed, flushed)
				w.do(func() {
					p.a.recv(p.am, 0, 8)
					p.b.recv(p.bm, 0, 8)
				})
				w.later(time.Second)
				p.a.rcq.expect("sender's receives", unused)
				if want := []cqe{x.recv, unused}; p.b.state() == engine.Err {
					if x.recv.op == 0 {
						want = want[1:]
					}
					p.b.rcq.expect("receiver", want...)
				} else if x.recv.op != 0 || x.event != none {
					w.t.Errorf("the receiver is in state %d", p.b.state())
				}
				if p.a.state() != engine.Err {
					w.t.Errorf("the sender is in state %d", p.a.state())
				}
				got := none
				if len(p.b.h.events) > 0 {
					got = p.b.h.events[0].Type
				}
				if got != x.event || len(p.b.h.events) > 1 || len(p.a.h.events) > 0 {
					w.t.Errorf("events %+v and %+v, want %#x", p.a.h.events, p.b.h.events, x.event)
				}
				if r := p.a.h.takeViolations(); x.rule != "" && (len(r) != 1 || r[0] != x.rule) {
					w.t.Errorf("violations %v, want %s", r, x.rule)
				}
			})
		})
	}
}

// TestRetries checks a peer that does not exist, and one without receive
// requests.
func TestRetries(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() { p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8)) })
		w.later(time.Second) // the number of retries is not limited
		w.do(func() { p.b.recv(p.bm, 0, 8) })
		w.later(time.Second)
		p.a.scq.expect("a late receive", sent)
		p.b.rcq.expect("a late receive", received(8))
		w.lose = func(*roce.Packet) bool { return true }
		w.do(func() { p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8)) })
		w.later(time.Minute)
		p.a.scq.expect("no peer", sendError(transport.TransportRetry))
	})
}

// TestPortDown checks that packets are lost and that the host gets an event.
func TestPortDown(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() {
			p.b.h.SetUp(false)
			p.b.h.SetUp(false)
			p.b.recv(p.bm, 0, 8)
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
		})
		p.a.scq.expect("down")
		w.do(func() { p.b.h.SetUp(true) })
		w.later(time.Second)
		p.a.scq.expect("up again", sent)
		p.b.rcq.expect("up again", received(8))
		want := []engine.AsyncEvent{{Type: engine.EventPort, SubType: engine.PortDown, Number: 1},
			{Type: engine.EventPort, SubType: engine.PortActive, Number: 1}}
		if got := p.b.h.events; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			w.t.Errorf("events %+v", got)
		}
	})
}

// TestInject checks completions with an injected syndrome.
func TestInject(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() {
			w.must(p.a.h.InjectCompletion(p.a.number, transport.RemoteAborted, 0x42, 2, 1))
			for range 4 {
				p.a.post(wqe{op: prm.OpcodeNOP})
			}
		})
		got := p.a.scq.poll()
		if len(got) != 4 || got[1].syndrome != 0 || got[2].syndrome != uint8(transport.RemoteAborted) ||
			prm.CQEVendorSyndrome.Get(got[2].raw) != 0x42 || got[3].syndrome != uint8(transport.Flushed) {
			w.t.Errorf("completions %+v", got)
		}
		w.do(func() {
			w.must(p.b.h.InjectCompletion(p.b.number, transport.LocalAccess, 0x43, 0, 1))
			for _, bad := range []error{
				p.a.h.InjectCompletion(0xfffff, transport.LocalAccess, 0, 0, 1),
				p.a.h.InjectCompletion(0, transport.OK, 0, 0, 1),
				p.a.h.InjectCompletion(0, transport.LocalAccess, 0, -1, 1),
			} {
				if bad == nil {
					w.t.Error("a bad injection was accepted")
				}
			}
		})
	})
}
