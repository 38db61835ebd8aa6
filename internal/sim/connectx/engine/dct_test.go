package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

const dcKey = 0x1122334455667788

// A dct is a target of dynamic connections from the user's side.
type dct struct {
	h      *host
	number uint32
	srq    *srq
	cq     *cq
}

// newDCT creates a DCT with an SRQ of 64 requests.
func (h *host) newDCT(a engine.QPAttr) *dct {
	d := &dct{h: h, srq: h.newSRQ(engine.SRQAttr{}, 6)}
	d.cq = h.newCQ(engine.CQAttr{LogSize: 6, Wide: a.ScatterResponse > 0})
	a.PD, a.SRQ, a.RecvCQ, a.UserIndex = h.pd, d.srq.Number, d.cq.Number, 0xdc
	a.DCKey, a.MTU = dcKey, 1024 // MinRNRTimer 0 is 655 ms
	a.RemoteRead, a.RemoteWrite, a.RemoteAtomic = true, true, true
	a.Primary.HopLimit = 64
	d.number = must(h.CreateDCT(a)).Number
	return d
}

// newDCI creates an initiator of dynamic connections in state RTS.
func (h *host) newDCI(a engine.QPAttr) *qp {
	a.Service, a.Source = engine.ServiceDCI, engine.FromSRQ
	q := h.newQP(a)
	q.upDCI()
	return q
}

func (q *qp) upDCI() {
	q.up(engine.QPAttr{MTU: 1024, SendPSN: 0xfffff0, AckTimeout: 14, RetryCount: 3, RNRRetry: 3, MaxInitiate: 4})
}

// dc adds the address vector of a DCT.
func (w wqe) dc(to *dct) wqe { return w.dcKey(to, dcKey) }

func (w wqe) dcKey(to *dct, key uint64) wqe {
	w = w.avTo(to.h, to.number, 0)
	prm.AVDCKey.Set(w.segments[len(w.segments)-48:], key)
	return w
}

// A dcWorld is an initiator and two targets.
type dcWorld struct {
	*world
	a, b   *host
	q      *qp
	to     [2]*dct
	am, bm *region
}

func inDCWorlds(t *testing.T, a engine.QPAttr, f func(w *dcWorld)) {
	inWorlds(t, func(w *world) { f(newDCWorld(w, a)) })
}

func newDCWorld(w *world, a engine.QPAttr) *dcWorld {
	d := &dcWorld{world: w, a: w.hosts[0], b: w.hosts[len(w.hosts)-1]}
	w.do(func() {
		d.q = d.a.newDCI(a)
		for i := range d.to {
			d.to[i] = d.b.newDCT(engine.QPAttr{})
		}
		d.am, d.bm = d.a.register(1<<16, allRights), d.b.register(1<<16, allRights)
	})
	return d
}

// works checks that the initiator reaches a target.
func (w *dcWorld) works(what string, to *dct) {
	w.t.Helper()
	w.do(func() {
		to.srq.recv(w.bm, 0, 100)
		w.q.post(wqe{op: prm.OpcodeSend}.dc(to).inline([]byte("hello")))
	})
	w.q.scq.expect(what+": sent", sent)
	to.cq.expect(what+": received", received(5))
}

// TestDC transfers messages of all kinds and sizes to two targets in turns.
func TestDC(t *testing.T) {
	inDCWorlds(t, engine.QPAttr{}, func(w *dcWorld) {
		for i, n := range []int{2, 16, 63, 1023, 1024, 1025, 5000, 30000} {
			to, what := w.to[i%2], fmt.Sprintf("%d bytes", n)
			want := pattern(n, i)
			w.am.put(i, want)
			w.do(func() {
				to.srq.recv(w.bm, 3, n+2)
				w.q.post(wqe{op: prm.OpcodeSendImm, imm: 0x1234}.dc(to).data(w.am, i, n))
			})
			w.q.scq.expect(what+" sent", sent)
			got := to.cq.poll()
			if len(got) != 1 || got[0].op != prm.CQERespSendImm || got[0].bytes != uint32(n) || got[0].imm != 0x1234 ||
				got[0].qpn != to.number || prm.CQERemoteQPN.Get(got[0].raw) != uint64(w.q.number) {
				w.t.Fatalf("%s: received %+v", what, got)
			}
			if !bytes.Equal(w.bm.get(3, n), want) {
				w.t.Errorf("SEND of %s: other bytes arrived", what)
			}
			w.do(func() { w.q.post(wqe{op: prm.OpcodeWrite}.dc(to).raddr(w.bm, 7).data(w.am, i, n)) })
			w.q.scq.expect(what+" written", sent)
			if !bytes.Equal(w.bm.get(7, n), want) {
				w.t.Errorf("WRITE of %s: other bytes arrived", what)
			}
			want = pattern(n, 99)
			w.bm.put(11, want)
			w.do(func() { w.q.post(wqe{op: prm.OpcodeRead}.dc(to).raddr(w.bm, 11).data(w.am, 0, n)) })
			w.q.scq.expect(what+" read", cqe{op: prm.CQEReq, bytes: uint32(n)})
			if !bytes.Equal(w.am.get(0, n), want) {
				w.t.Errorf("READ of %s: other bytes arrived", what)
			}
		}
	})
}

// TestDCInTurns posts requests to two targets with one doorbell, while packets are lost, duplicated and late.
// Each must be executed exactly once.
func TestDCInTurns(t *testing.T) {
	const rounds = 60
	run(t, 2, engine.Config{CQEVersion: 1}, func(world *world) {
		w := newDCWorld(world, engine.QPAttr{LogSQSize: 8})
		n, late := 0, []*roce.Packet{}
		w.lose = func(p *roce.Packet) bool {
			n++
			if n%5 == 0 {
				late = append(late, p)
			}
			if n%7 == 0 {
				for _, p := range late {
					w.loop.Post(func() { w.hosts[p.Route.DLID-1].ReceivePacket(p) })
				}
			}
			return n%11 == 0
		}
		w.do(func() {
			w.bm.put(0x05, make([]byte, 16)) // the first aligned address
			for i := range rounds {
				to := w.to[i%2]
				to.srq.recv(w.bm, 100+i, 1)
				w.q.write(wqe{op: prm.OpcodeAtomicFA, silent: true}.dc(to).raddr(w.bm, 5+8*(i%2)).words(1, 0).data(w.am, 0, 8))
				w.q.ring(w.q.write(wqe{op: prm.OpcodeSend}.dc(to).inline([]byte{byte(i)})))
			}
		})
		w.later(time.Minute)
		if got := w.q.scq.poll(); len(got) != rounds || got[rounds-1].op != prm.CQEReq {
			w.t.Fatalf("%d completions", len(got))
		}
		for i, to := range w.to {
			if n := len(to.cq.poll()); n != rounds/2 {
				w.t.Errorf("target %d received %d messages", i, n)
			}
			if got, want := w.bm.get(100+i, 1)[0], byte(i); got != want {
				w.t.Errorf("the first message of target %d is that of round %d", i, got)
			}
		}
		if a, b := le64(w.bm.get(5, 8)), le64(w.bm.get(13, 8)); a != rounds/2 || b != rounds/2 {
			w.t.Errorf("%d and %d were added, want %d", a, b, rounds/2)
		}
	})
}

// TestDCKey checks that requests with a wrong key are dropped, and are counted and reported by the target.
func TestDCKey(t *testing.T) {
	inDCWorlds(t, engine.QPAttr{}, func(w *dcWorld) {
		to := w.to[0]
		w.do(func() {
			w.must(w.b.ArmDCT(to.number))
			w.q.post(wqe{op: prm.OpcodeWrite}.dcKey(to, dcKey+1).raddr(w.bm, 0).data(w.am, 0, 8),
				wqe{op: prm.OpcodeSend}.dc(to).inline([]byte{1}))
		})
		w.later(10 * time.Second)
		w.q.scq.expect("a wrong key", sendError(transport.TransportRetry), flushed)
		if n := must(w.b.QueryDCT(to.number)).Violations; n != 4 {
			w.t.Errorf("%d violations, want those of the request and of its three repetitions", n)
		}
		want := engine.AsyncEvent{Type: engine.EventDCTKeyViolation, Number: to.number}
		if len(w.b.events) != 1 || w.b.events[0] != want {
			w.t.Errorf("events %+v", w.b.events)
		}
		if s := w.q.state(); s != engine.Err {
			w.t.Errorf("state %d", s)
		}
		w.recover()
		w.works("after the reset", to)
	})
}

// recover resets the initiator.
func (w *dcWorld) recover() { w.do(w.recoverNow) }

func (w *dcWorld) recoverNow() {
	w.must(w.a.ModifyQP(w.q.number, engine.ToReset, 0, engine.QPAttr{}))
	w.q.posted = 0
	be.PutUint32(w.a.bytes(w.q.record+4, 4), 0)
	w.q.upDCI()
}

// TestDCErrors checks what each end reports of failing requests, and that the target still serves others.
func TestDCErrors(t *testing.T) {
	for name, c := range map[string]struct {
		request  func(w *dcWorld) wqe
		recv     int // length of the receive request; 0 for none
		want     transport.Syndrome
		received transport.Syndrome
	}{
		"no receive request": {request: func(w *dcWorld) wqe { return wqe{op: prm.OpcodeSend}.dc(w.to[0]).data(w.am, 0, 8) },
			want: transport.RNRRetry},
		"a short one": {request: func(w *dcWorld) wqe { return wqe{op: prm.OpcodeSend}.dc(w.to[0]).data(w.am, 0, 2000) },
			recv: 1500, want: transport.RemoteInvalidRequest, received: transport.LocalLength},
		"a wrong RKey": {request: func(w *dcWorld) wqe {
			return wqe{op: prm.OpcodeWrite}.dc(w.to[0]).words(w.bm.addr, 0x7777<<32).data(w.am, 0, 8)
		}, want: transport.RemoteAccess},
		"an atomic at an odd address": {request: func(w *dcWorld) wqe {
			return wqe{op: prm.OpcodeAtomicFA}.dc(w.to[0]).raddr(w.bm, 6).words(1, 0).data(w.am, 0, 8)
		}, want: transport.RemoteInvalidRequest},
		"a wrong LKey": {request: func(w *dcWorld) wqe {
			return wqe{op: prm.OpcodeSend}.dc(w.to[0]).seg(8, w.am.Key(), w.am.addr+1<<20)
		}, want: transport.LocalProtection},
		"no such DCT": {request: func(w *dcWorld) wqe {
			return wqe{op: prm.OpcodeSend}.dc(&dct{h: w.b, number: 0x9999}).data(w.am, 0, 8)
		}, want: transport.TransportRetry},
		"a DCI": {request: func(w *dcWorld) wqe {
			return wqe{op: prm.OpcodeSend}.dc(&dct{h: w.b, number: w.b.newDCI(engine.QPAttr{}).number}).data(w.am, 0, 8)
		}, want: transport.TransportRetry},
		"a masked atomic": {request: func(w *dcWorld) wqe {
			return wqe{op: prm.OpcodeAtomicMaskedFA}.dc(w.to[0]).raddr(w.bm, 5).words(1, 0).data(w.am, 0, 8)
		}, want: transport.LocalQPOp},
	} {
		t.Run(name, func(t *testing.T) {
			inDCWorlds(t, engine.QPAttr{}, func(w *dcWorld) {
				w.do(func() {
					if c.recv > 0 {
						w.to[0].srq.recv(w.bm, 0, c.recv)
					}
					w.q.post(c.request(w), wqe{op: prm.OpcodeSend}.dc(w.to[1]).inline([]byte{1}))
				})
				w.later(10 * time.Second)
				w.q.scq.expect("failed", sendError(c.want), flushed)
				if c.received != transport.OK {
					w.to[0].cq.expect("failed", recvError(c.received))
				}
				w.a.takeViolations() // of the opcode
				if len(w.b.events) != 0 {
					w.t.Errorf("events %+v", w.b.events)
				}
				w.do(func() { w.q = w.a.newDCI(engine.QPAttr{}) })
				w.works("another initiator", w.to[0])
			})
		})
	}
}

// stream adds a request of a stream.
func (q *qp) stream(id uint16, w wqe) {
	at := uint64(q.posted&(q.sqSize-1)) * 64
	b := q.write(w)
	prm.CtrlStream.Set(q.at(q.rqBytes+at, 16), uint64(id))
	q.ring(b)
}

// TestDCStreams checks that a stream that has failed is flushed, that others are not, that it can be reset, and
// that the initiator fails with too many of them.
func TestDCStreams(t *testing.T) {
	inDCWorlds(t, engine.QPAttr{LogStreams: 3, LogErrored: 1}, func(w *dcWorld) {
		good := wqe{op: prm.OpcodeWrite}.dc(w.to[0]).raddr(w.bm, 0).data(w.am, 0, 8)
		bad := wqe{op: prm.OpcodeWrite}.dc(w.to[0]).words(w.bm.addr, 0x7777<<32).data(w.am, 0, 8)
		w.do(func() {
			w.q.stream(1, good)
			w.q.stream(1, bad)
			w.q.stream(1, good)
			w.q.stream(2, good)
			w.q.stream(1, wqe{op: prm.OpcodeNOP})
			w.q.stream(0, good)
		})
		w.q.scq.expect("streams", sent, sendError(transport.RemoteAccess), flushed, sent, flushed, sent)
		w.do(func() {
			for id, want := range map[uint16]error{2: engine.ErrState, 9: engine.ErrState, 1: nil} {
				if err := w.a.ResetStream(w.q.number, id); !errors.Is(err, want) {
					w.t.Errorf("resetting stream %d: %v, want %v", id, err, want)
				}
			}
			w.q.stream(1, good)
			w.q.stream(1, bad)
			w.q.stream(3, good)
			w.q.stream(3, bad)
			w.q.stream(4, good)
		})
		failed := sendError(transport.RemoteAccess)
		w.q.scq.expect("after a reset", sent, failed, sent, failed, flushed)
		if s := w.q.state(); s != engine.Err {
			w.t.Errorf("state %d with two streams that have failed", s)
		}
		w.recover()
		w.do(func() { w.q.stream(1, good) })
		w.q.scq.expect("after the queue pair's reset", sent)
		if err := w.a.ResetStream(w.a.newQP(engine.QPAttr{}).number, 0); !errors.Is(err, engine.ErrParam) {
			w.t.Errorf("resetting a stream of RC: %v", err)
		}
	})
}

// TestDCStreamOfNoUse checks that a DCI without streams ignores the stream of a request, as adapters do, and that it is
// a mistake in a request of another queue pair.
func TestDCStreamOfNoUse(t *testing.T) {
	run(t, 2, engine.Config{}, func(world *world) {
		w := newDCWorld(world, engine.QPAttr{})
		good := wqe{op: prm.OpcodeWrite}.dc(w.to[0]).raddr(w.bm, 0).data(w.am, 0, 8)
		bad := wqe{op: prm.OpcodeWrite}.dc(w.to[0]).words(w.bm.addr, 0x7777<<32).data(w.am, 0, 8)
		w.do(func() {
			w.q.stream(1, good)
			w.q.stream(2, bad)
			w.q.stream(1, good)
		})
		w.q.scq.expect("streams of a DCI without them", sent, sendError(transport.RemoteAccess), flushed)
		if got := w.a.takeViolations(); len(got) != 0 {
			w.t.Errorf("violations %v", got)
		}
		c, rc := nops(world, engine.CQAttr{LogSize: 3})
		w.do(func() { rc.stream(1, wqe{op: prm.OpcodeNOP}) })
		c.expect("a NOP", sent)
		if got := w.a.takeViolations(); len(got) != 1 || got[0] != engine.RuleReserved {
			w.t.Errorf("violations %v of RC", got)
		}
	})
}

// drained checks that a DCT has reported once that it is drained.
func (w *dcWorld) drained(to *dct) {
	w.t.Helper()
	want := engine.AsyncEvent{Type: engine.EventDCTDrained, Number: to.number}
	if len(w.b.events) != 1 || w.b.events[0] != want {
		w.t.Fatalf("events %+v, want %+v", w.b.events, want)
	}
	w.b.events = nil
	if s := must(w.b.QueryDCT(to.number)).State; s != engine.DCTDrained {
		w.t.Errorf("the DCT is in state %d", s)
	}
}

// TestDCTDrain checks that an idle DCT is drained at once, that it refuses everything then, and that its objects
// can be destroyed.
func TestDCTDrain(t *testing.T) {
	inDCWorlds(t, engine.QPAttr{}, func(w *dcWorld) {
		to := w.to[0]
		w.works("before", to)
		w.do(func() {
			if err := w.b.DestroySRQ(to.srq.Number); !errors.Is(err, engine.ErrBusy) {
				w.t.Errorf("destroying the SRQ of a DCT: %v", err)
			}
			w.must(w.b.DrainDCT(to.number))
		})
		w.drained(to)
		w.do(func() {
			if err := w.b.DrainDCT(to.number); !errors.Is(err, engine.ErrState) {
				w.t.Errorf("draining again: %v", err)
			}
			to.srq.recv(w.bm, 0, 8)
			w.q.post(wqe{op: prm.OpcodeSend}.dc(to).inline([]byte{1}))
		})
		w.later(10 * time.Second)
		w.q.scq.expect("to a drained DCT", sendError(transport.TransportRetry))
		to.cq.expect("nothing")
		w.do(func() {
			w.must(w.b.DestroyDCT(to.number))
			w.must(w.b.DestroySRQ(to.srq.Number))
			w.must(w.b.DestroyCQ(to.cq.Number))
			if err := w.b.DestroyDCT(to.number); !errors.Is(err, engine.ErrResource) {
				w.t.Errorf("destroying again: %v", err)
			}
		})
		w.recover()
		w.works("the other target", w.to[1])
	})
}

// TestDCTDrainInMessage drains a DCT in the middle of a message. If the initiator continues, the message arrives;
// if it does not, draining ends all the same.
func TestDCTDrainInMessage(t *testing.T) {
	for _, continues := range []bool{true, false} {
		t.Run(fmt.Sprint(continues), func(t *testing.T) {
			run(t, 2, engine.Config{CQEVersion: 1}, func(world *world) {
				w := newDCWorld(world, engine.QPAttr{})
				to, blocked, n := w.to[0], true, 0
				w.lose = func(p *roce.Packet) bool {
					n++
					return n > 2 && blocked
				}
				w.do(func() {
					to.srq.recv(w.bm, 0, 9000)
					w.q.post(wqe{op: prm.OpcodeSend}.dc(to).data(w.am, 0, 8000))
				})
				w.do(func() { w.must(w.b.DrainDCT(to.number)) })
				if len(w.b.events) != 0 {
					w.t.Fatalf("drained in the middle of a message: %+v", w.b.events)
				}
				blocked = !continues
				w.later(10 * time.Second)
				w.drained(to)
				if continues {
					w.q.scq.expect("sent", sent)
					to.cq.expect("received", received(8000))
				} else {
					w.q.scq.expect("not sent", sendError(transport.TransportRetry))
					to.cq.expect("flushed", unused)
				}
			})
		})
	}
}

// TestDCTDestroyed destroys a DCT in the middle of a message.
func TestDCTDestroyed(t *testing.T) {
	run(t, 2, engine.Config{}, func(world *world) {
		w := newDCWorld(world, engine.QPAttr{})
		to, n := w.to[0], 0
		w.lose = func(p *roce.Packet) bool {
			if n++; n == 3 {
				w.loop.Post(func() { w.must(w.b.DestroyDCT(to.number)) })
			}
			return false
		}
		w.do(func() {
			to.srq.recv(w.bm, 0, 9000)
			w.q.post(wqe{op: prm.OpcodeSend}.dc(to).data(w.am, 0, 8000))
		})
		w.later(10 * time.Second)
		w.q.scq.expect("to nothing", sendError(transport.TransportRetry))
		if n := w.b.Objects().QPs; n != len(w.hosts)-1 {
			w.t.Errorf("%d queue pairs and DCTs remain", n)
		}
	})
}

// TestDCMessageGivenUp checks that the receive request of a message that its initiator does not end completes
// with an error when the initiator sends another one.
func TestDCMessageGivenUp(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(world *world) {
		w := newDCWorld(world, engine.QPAttr{})
		to, n := w.to[0], 0
		w.lose = func(p *roce.Packet) bool { n++; return n > 2 }
		w.do(func() {
			to.srq.recv(w.bm, 0, 9000)
			w.q.post(wqe{op: prm.OpcodeSend}.dc(to).data(w.am, 0, 8000))
		})
		w.later(10 * time.Second)
		w.q.scq.expect("not sent", sendError(transport.TransportRetry))
		to.cq.expect("nothing")
		w.lose = nil
		w.recover()
		w.do(func() {
			to.srq.recv(w.bm, 0, 100)
			w.q.post(wqe{op: prm.OpcodeSend}.dc(to).inline([]byte("hello")))
		})
		w.q.scq.expect("sent", sent)
		to.cq.expect("given up, received", recvError(transport.RemoteAborted), received(5))
	})
}

// TestDCOnDemand checks for each operation that the data is transferred, and which pages are requested, while a
// second initiator is served.
func TestDCOnDemand(t *testing.T) {
	const n = 5000
	for name, c := range map[string]struct {
		op        uint8
		requester []uint8
		responder []uint8
	}{
		"SEND":      {prm.OpcodeSend, []uint8{1}, []uint8{0}},
		"WRITE":     {prm.OpcodeWrite, []uint8{1}, []uint8{6}},
		"READ":      {prm.OpcodeRead, []uint8{3}, []uint8{4}},
		"FETCH_ADD": {prm.OpcodeAtomicFA, []uint8{3}, []uint8{6}},
	} {
		t.Run(name, func(t *testing.T) {
			runPaged(t, func(world *world, p [2]*pager) {
				w := newDCWorld(world, engine.QPAttr{})
				to, length := w.to[0], n
				a, b := p[0].demand(3*n), p[1].demand(3*n)
				a.put(0, pattern(n, 1))
				b.put(5, pattern(n, 2)) // aligned for an atomic
				p[1].lazy = true
				w.do(func() {
					x := wqe{op: c.op}.dc(to)
					switch c.op {
					case prm.OpcodeSend:
						to.srq.recv(b, 5, n)
						to.srq.recv(b, 5, n)
					case prm.OpcodeAtomicFA:
						x, length = x.raddr(b, 5).words(7, 0), 8
					default:
						x = x.raddr(b, 5)
					}
					w.q.post(x.data(a, 0, length))
				})
				first := w.q
				w.do(func() {
					w.q = w.a.newDCI(engine.QPAttr{})
					w.q.post(wqe{op: prm.OpcodeWrite}.dc(to).raddr(w.bm, 0).data(w.am, 0, 8))
				})
				w.q.scq.expect("another initiator", sent)
				first.scq.expect("a page is missing")
				w.do(func() {
					for _, f := range p[1].faults {
						p[1].bring(f)
					}
				})
				w.later(time.Second)
				first.scq.expect("sent", sent)
				if c.op == prm.OpcodeSend {
					to.cq.expect("received", recvError(transport.RemoteAborted), received(n))
				}
				want, got := pattern(n, 1), b.get(5, n)
				if c.op == prm.OpcodeRead {
					want, got = pattern(n, 2), a.get(0, n)
				}
				if c.op != prm.OpcodeAtomicFA && !bytes.Equal(got, want) {
					w.t.Error("other bytes arrived")
				}
				if !slices.Equal(p[0].kinds(), c.requester) || !slices.Equal(p[1].kinds(), c.responder) {
					w.t.Errorf("page faults %v and %v, want %v and %v", p[0].kinds(), p[1].kinds(), c.requester, c.responder)
				}
			})
		})
	}
}

// TestDCOnDemandEnds checks that a connection that waits for a page ends with its DCT, with a new connection of the
// same initiator, and with a page that cannot be provided.
func TestDCOnDemandEnds(t *testing.T) {
	for name, end := range map[string]func(w *dcWorld, p *pager){
		"destroyed":      func(w *dcWorld, p *pager) { w.must(w.b.DestroyDCT(w.to[0].number)) },
		"drained":        func(w *dcWorld, p *pager) { w.must(w.b.DrainDCT(w.to[0].number)) },
		"unavailable":    func(w *dcWorld, p *pager) { p.fails = true },
		"another number": func(w *dcWorld, p *pager) { w.recoverNow() },
	} {
		t.Run(name, func(t *testing.T) {
			runPaged(t, func(world *world, p [2]*pager) {
				w := newDCWorld(world, engine.QPAttr{})
				b := p[1].demand(100)
				p[1].lazy = true
				w.do(func() { w.q.post(wqe{op: prm.OpcodeRead}.dc(w.to[0]).raddr(b, 0).data(w.am, 0, 8)) })
				if len(p[1].faults) != 1 {
					w.t.Fatalf("faults %+v", p[1].faults)
				}
				w.do(func() { end(w, p[1]) })
				w.later(time.Second)
				w.do(func() { p[1].bring(p[1].faults[0]) })
				w.later(10 * time.Second)
				if name != "another number" {
					w.recover()
				}
				w.q.scq.poll()
				w.works("afterwards", w.to[1])
			})
		})
	}
}

// TestDCScatter checks that small data is in the completions of both ends.
func TestDCScatter(t *testing.T) {
	inDCWorlds(t, engine.QPAttr{ScatterRequest: 32}, func(w *dcWorld) {
		var to *dct
		w.bm.put(0, pattern(32, 5))
		w.do(func() {
			to = w.b.newDCT(engine.QPAttr{ScatterResponse: 64})
			to.srq.recv(w.bm, 100, 64)
			w.q.post(wqe{op: prm.OpcodeRead}.dc(to).raddr(w.bm, 0).data(w.am, 0, 32),
				wqe{op: prm.OpcodeSend}.dc(to).inline(pattern(60, 6)))
		})
		if got := w.q.scq.poll(); len(got) != 2 || !bytes.Equal(got[0].data, pattern(32, 5)) {
			w.t.Errorf("the READ completes as %+v", got)
		}
		if got := to.cq.poll(); len(got) != 1 || !bytes.Equal(got[0].data, pattern(60, 6)) {
			w.t.Errorf("the SEND completes as %+v", got)
		}
	})
}

// TestDCNumbers checks that the number of a DCT is not that of a queue pair, nor the reverse.
func TestDCNumbers(t *testing.T) {
	run(t, 1, engine.Config{}, func(world *world) {
		w := newDCWorld(world, engine.QPAttr{})
		h, to, q := w.a, w.to[0].number, w.q.number
		second := func(_ any, err error) error { return err }
		w.do(func() {
			for what, err := range map[string]error{
				"query as QP": second(h.QueryQP(to)), "destroy as QP": h.DestroyQP(to),
				"modify as QP": h.ModifyQP(to, engine.ToErr, 0, engine.QPAttr{}), "query as DCT": second(h.QueryDCT(q)),
				"drain as DCT": h.DrainDCT(q), "destroy as DCT": h.DestroyDCT(q), "arm as DCT": h.ArmDCT(q),
				"reset a stream": h.ResetStream(to, 0),
			} {
				if !errors.Is(err, engine.ErrResource) {
					w.t.Errorf("%s: %v", what, err)
				}
			}
			for what, a := range map[string]engine.QPAttr{
				"no SRQ": {MTU: 1024, PD: h.pd, RecvCQ: w.to[0].cq.Number},
				"no CQ":  {MTU: 1024, PD: h.pd, SRQ: w.to[0].srq.Number},
				"no PD":  {MTU: 1024, SRQ: w.to[0].srq.Number, RecvCQ: w.to[0].cq.Number},
				"no MTU": {PD: h.pd, SRQ: w.to[0].srq.Number, RecvCQ: w.to[0].cq.Number},
			} {
				if _, err := h.CreateDCT(a); err == nil {
					w.t.Errorf("a DCT with %s", what)
				}
			}
			for _, s := range []engine.Service{engine.ServiceDCT, engine.ServiceDCI} {
				a := engine.QPAttr{Service: s, NoSQ: true, PD: h.pd, RecvCQ: w.to[0].cq.Number}
				if _, err := h.CreateQP(a); !errors.Is(err, engine.ErrParam) {
					w.t.Errorf("%+v: %v", a, err)
				}
			}
		})
	})
}
