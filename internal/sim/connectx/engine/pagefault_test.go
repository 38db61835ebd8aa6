package engine_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A pager is a host that provides the pages of its regions on demand.
type pager struct {
	h           *host
	faults      []engine.PageFault
	regions     []*region
	unavailable bool // no requests are possible
	lazy        bool // pages are not provided automatically
	fails       bool // pages cannot be provided
}

// PageFault implements engine.Pager.
func (p *pager) PageFault(f engine.PageFault) bool {
	if p.unavailable {
		return false
	}
	p.faults = append(p.faults, f)
	if !p.lazy {
		p.h.w.loop.Post(func() { p.bring(f) })
	}
	return true
}

// bring provides all pages, and resumes.
func (p *pager) bring(f engine.PageFault) {
	for _, r := range p.regions {
		if !p.fails {
			r.fill(3)
		}
	}
	p.h.ResumePageFault(f.Type, f.QPN, p.fails)
}

// kinds returns the types of the faults.
func (p *pager) kinds() (all []uint8) {
	for _, f := range p.faults {
		all = append(all, f.Type)
	}
	return all
}

// fill writes all entries of a region's list, with the given rights. Without
// rights they are empty.
func (r *region) fill(rights uint64) {
	for i, phys := range r.phys {
		if rights == 0 {
			phys = 0
		}
		be.PutUint64(r.Translations[8*i:], phys|rights)
	}
}

// demand registers memory on demand, without any pages.
func (p *pager) demand(n int) *region {
	r := p.h.register(n, allRights)
	r.OnDemand = true
	r.fill(0)
	p.regions = append(p.regions, r)
	return r
}

// runPaged runs a test with two hosts that have memory on demand.
func runPaged(t *testing.T, f func(w *world, pagers [2]*pager)) {
	t.Helper()
	run(t, 0, engine.Config{}, func(w *world) {
		var pagers [2]*pager
		for i := range pagers {
			pagers[i] = &pager{}
			pagers[i].h = w.add(engine.Config{Pager: pagers[i]})
		}
		f(w, pagers)
	})
}

// TestOnDemand checks for each operation that the data is transferred, and
// which pages are requested.
func TestOnDemand(t *testing.T) {
	const n = 5000
	for name, c := range map[string]struct {
		op        uint8
		send      wqe
		recv      bool
		requester []uint8
		responder []uint8
	}{
		"SEND":      {op: prm.OpcodeSend, recv: true, requester: []uint8{1}, responder: []uint8{2}},
		"WRITE":     {op: prm.OpcodeWrite, requester: []uint8{1}, responder: []uint8{6}},
		"READ":      {op: prm.OpcodeRead, requester: []uint8{3}, responder: []uint8{4}},
		"FETCH_ADD": {op: prm.OpcodeAtomicFA, requester: []uint8{3}, responder: []uint8{6}},
	} {
		t.Run(name, func(t *testing.T) {
			runPaged(t, func(w *world, p [2]*pager) {
				var from, to *qp
				var a, b *region
				length := n
				w.do(func() {
					from, to = p[0].h.newQP(engine.QPAttr{}), p[1].h.newQP(engine.QPAttr{})
					connect(from, to)
					a, b = p[0].demand(3*n), p[1].demand(3*n)
					a.put(0, pattern(n, 1))
					b.put(5, pattern(n, 2)) // aligned for an atomic
					x := wqe{op: c.op}
					switch c.op {
					case prm.OpcodeSend:
						to.recv(b, 5, n)
					case prm.OpcodeAtomicFA:
						x, length = x.raddr(b, 5).words(7, 0), 8
					default:
						x = x.raddr(b, 5)
					}
					from.post(x.data(a, 0, length))
				})
				w.later(time.Second)
				from.scq.expect("sent", sent)
				if c.recv {
					to.rcq.expect("received", received(n))
				}
				switch c.op {
				case prm.OpcodeRead:
					if !bytes.Equal(a.get(0, n), pattern(n, 2)) {
						w.t.Error("what was read differs")
					}
				case prm.OpcodeAtomicFA:
					if old := le64(pattern(8, 2)); le64(a.get(0, 8)) != old || le64(b.get(5, 8)) != old+7 {
						w.t.Errorf("from %#x to %#x", le64(a.get(0, 8)), le64(b.get(5, 8)))
					}
				default:
					if !bytes.Equal(b.get(5, n), pattern(n, 1)) {
						w.t.Error("what arrived differs")
					}
				}
				if !slices.Equal(p[0].kinds(), c.requester) || !slices.Equal(p[1].kinds(), c.responder) {
					w.t.Errorf("faults %+v and %+v", p[0].faults, p[1].faults)
				}
				if f := p[1].faults[0]; f.RDMA && (f.QPN != to.number || f.RKey != b.Key() || f.VA != b.addr+5 ||
					f.OpLength != uint32(length)) {
					w.t.Errorf("the responder's fault: %+v", f)
				} else if !f.RDMA && (f.QPN != to.number || f.Queue != to.number || f.Index != 0 || f.Committed != 0) {
					w.t.Errorf("the responder's fault: %+v", f)
				}
				if c := p[0].h.Counters(); c.PageFaults != 1 {
					w.t.Errorf("counters %+v", c)
				}
			})
		})
	}
}

// TestOnDemandLoses checks that removed pages are requested again, and that a
// read-only page is requested before it is written.
func TestOnDemandLoses(t *testing.T) {
	runPaged(t, func(w *world, p [2]*pager) {
		var from, to *qp
		var a, b *region
		write := func(rights uint64) {
			w.do(func() {
				b.fill(rights)
				from.post(wqe{op: prm.OpcodeWrite}.raddr(b, 0).data(a, 0, 100))
			})
			from.scq.expect("written", sent)
		}
		w.do(func() {
			from, to = p[0].h.newQP(engine.QPAttr{}), p[1].h.newQP(engine.QPAttr{})
			connect(from, to)
			a, b = p[0].h.register(100, allRights), p[1].demand(100)
		})
		write(0)
		write(3)
		write(1)
		if got := p[1].kinds(); !slices.Equal(got, []uint8{6, 6}) {
			w.t.Errorf("faults %v", got)
		}
	})
}

// TestOnDemandSRQ checks that a page fault of a receive request of an SRQ
// completes it with the vendor syndrome, while the queue pair continues and the
// message uses the next request. A fault in the middle of a message keeps the
// request.
func TestOnDemandSRQ(t *testing.T) {
	runPaged(t, func(w *world, p [2]*pager) {
		var from, to *qp
		var s *srq
		var a, b *region
		w.do(func() {
			s = p[1].h.newSRQ(engine.SRQAttr{}, 4)
			from, to = p[0].h.newQP(engine.QPAttr{}), p[1].h.newQP(engine.QPAttr{Source: engine.FromSRQ, SRQ: s.Number})
			connect(from, to)
			a, b = p[0].h.register(9000, allRights), p[1].demand(9000)
			a.put(0, pattern(5000, 3))
			for range 3 {
				s.recv(b, 0, 5000)
			}
			from.post(wqe{op: prm.OpcodeSend}.data(a, 0, 5000))
		})
		w.later(time.Second)
		from.scq.expect("sent", sent)
		got := to.rcq.poll()
		if len(got) != 2 || got[0].op != prm.CQERespErr || got[0].syndrome != 0x22 ||
			prm.CQEVendorSyndrome.Get(got[0].raw) != 0x93 ||
			got[0].index != 0 || got[1].op != prm.CQERespSend || got[1].index != 3 {
			w.t.Fatalf("received: %+v", got)
		}
		if !bytes.Equal(b.get(0, 5000), pattern(5000, 3)) {
			w.t.Error("what arrived differs")
		}
		if f := p[1].faults; len(f) != 1 || f[0].Type != 0 || f[0].Queue != s.Number || f[0].QPN != to.number ||
			f[0].Index != 0 {
			w.t.Errorf("faults %+v", f)
		}
		if c := p[1].h.Counters(); c.SRQPageFaults != 1 || c.PageFaults != 1 || to.state() != engine.RTS {
			w.t.Errorf("counters %+v, state %d", c, to.state())
		}
		w.do(func() { // only the second page is missing
			be.PutUint64(b.Translations[8:], 0)
			from.post(wqe{op: prm.OpcodeSend}.data(a, 0, 5000))
		})
		w.later(time.Second)
		from.scq.expect("sent", sent)
		if got := to.rcq.poll(); len(got) != 1 || got[0].op != prm.CQERespSend || got[0].index != 6 {
			w.t.Errorf("received: %+v", got)
		}
		if f := p[1].faults; len(f) != 2 || f[1].Type != 0 || f[1].Index != 6 || f[1].Committed == 0 {
			w.t.Errorf("faults %+v", f)
		}
	})
}

// TestOnDemandXRC checks the same for XRC: the completion is in the SRQ's CQ.
func TestOnDemandXRC(t *testing.T) {
	runPaged(t, func(w *world, p [2]*pager) {
		b := p[1].h
		var from, to *qp
		var c *cq
		w.do(func() {
			domain := must(b.CreateXRCD())
			c = b.newCQ(engine.CQAttr{LogSize: 4})
			s := b.newSRQ(engine.SRQAttr{XRC: true, XRCD: domain, CQ: c.Number}, 3)
			from = p[0].h.newQP(engine.QPAttr{Service: engine.ServiceXRC, Source: engine.FromNone})
			to = b.newQP(engine.QPAttr{Service: engine.ServiceXRC, NoSQ: true, Source: engine.FromSRQ, XRCD: domain})
			connect(from, to)
			m, am := p[1].demand(100), p[0].h.register(100, allRights)
			s.recv(m, 0, 100)
			s.recv(m, 0, 100)
			from.post(wqe{op: prm.OpcodeSend}.words(uint64(s.Number)<<32, 0).data(am, 0, 100))
		})
		w.later(time.Second)
		from.scq.expect("sent", sent)
		c.expect("received", recvError(transport.RemoteAborted), received(100))
	})
}

// TestOnDemandDatagram checks that a datagram for a receive request of an SRQ
// is lost and the request completed, and that one for a queue pair's own
// receive queue fails: adapters have no page faults there.
func TestOnDemandDatagram(t *testing.T) {
	runPaged(t, func(w *world, p [2]*pager) {
		b := p[1].h
		var from, other, shared, own *qp
		var a, m *region
		w.do(func() {
			s := b.newSRQ(engine.SRQAttr{}, 3)
			from = p[0].h.newQP(engine.QPAttr{Service: engine.ServiceUD})
			shared = b.newQP(engine.QPAttr{Service: engine.ServiceUD, Source: engine.FromSRQ, SRQ: s.Number})
			own = b.newQP(engine.QPAttr{Service: engine.ServiceUD})
			other = p[0].h.newQP(engine.QPAttr{Service: engine.ServiceUD})
			connect(from, shared)
			connect(other, own)
			a, m = p[0].demand(100), p[1].demand(200)
			s.recv(m, 0, 140)
			s.recv(m, 0, 140)
			own.recv(m, 0, 140)
			from.post(wqe{op: prm.OpcodeSend}.av(shared, 0x11).data(a, 0, 100))
		})
		shared.rcq.expect("lost", recvError(transport.RemoteAborted))
		w.do(func() { from.post(wqe{op: prm.OpcodeSend}.av(shared, 0x11).data(a, 0, 100)) })
		shared.rcq.expect("received", received(140))
		w.do(func() {
			m.fill(0)
			from.post(wqe{op: prm.OpcodeSend}.av(own, 0x11).data(a, 0, 100))
		})
		own.rcq.expect("no page faults", recvError(transport.LocalProtection))
		from.scq.expect("sent", sent, sent, sent)
		if k := append(p[0].kinds(), p[1].kinds()...); !slices.Equal(k, []uint8{1, 0}) {
			w.t.Errorf("faults %v", k)
		}
	})
}

// TestOnDemandFails checks requests whose pages cannot be provided, or cannot
// be requested.
func TestOnDemandFails(t *testing.T) {
	for name, set := range map[string]func(*pager){
		"cannot be provided": func(p *pager) { p.fails = true },
		"no pager":           func(p *pager) { p.unavailable = true },
	} {
		t.Run(name, func(t *testing.T) {
			runPaged(t, func(w *world, p [2]*pager) {
				set(p[0])
				set(p[1])
				pair := func(a engine.QPAttr) (from, to *qp) {
					from, to = p[0].h.newQP(engine.QPAttr{}), p[1].h.newQP(a)
					connect(from, to)
					return from, to
				}
				var local, remote, own, shared, ownTo, sharedTo *qp
				w.do(func() {
					here, there := p[0].h.register(100, allRights), p[1].demand(100)
					s := p[1].h.newSRQ(engine.SRQAttr{}, 3)
					s.recv(there, 0, 100)
					local, _ = pair(engine.QPAttr{})
					local.post(wqe{op: prm.OpcodeSend}.data(p[0].demand(100), 0, 100))
					remote, _ = pair(engine.QPAttr{})
					remote.post(wqe{op: prm.OpcodeRead}.raddr(there, 0).data(here, 0, 100))
					own, ownTo = pair(engine.QPAttr{})
					ownTo.recv(there, 0, 100)
					own.post(wqe{op: prm.OpcodeSend}.data(here, 0, 100))
					shared, sharedTo = pair(engine.QPAttr{Source: engine.FromSRQ, SRQ: s.Number})
					shared.post(wqe{op: prm.OpcodeSend}.data(here, 0, 100))
				})
				w.later(time.Second)
				local.scq.expect("local", sendError(transport.LocalProtection))
				remote.scq.expect("remote", sendError(transport.RemoteAccess))
				own.scq.expect("own", sendError(transport.RemoteOp))
				ownTo.rcq.expect("own", recvError(transport.LocalProtection))
				shared.scq.expect("shared", sendError(transport.RemoteOp))
				want := recvError(transport.RemoteAborted)
				if p[1].unavailable {
					want = recvError(transport.LocalProtection)
				}
				sharedTo.rcq.expect("shared", want)
			})
		})
	}
}

// TestOnDemandImplicit checks an indirect key with missing pieces: they are
// requested with the key of the request.
func TestOnDemandImplicit(t *testing.T) {
	runPaged(t, func(w *world, p [2]*pager) {
		h := p[0].h
		p[0].lazy = true
		var q *qp
		var k *engine.MKey
		var child *region
		w.do(func() {
			q = h.newQP(engine.QPAttr{})
			connect(q, q)
			child = h.register(4096, allRights)
			k = must(h.CreateMKey(engine.MKeyAttr{Mode: engine.KSM, Rights: allRights, QPN: engine.AnyQPN, PD: h.pd,
				Length64:  true,
				PageShift: 12, Octowords: 1 << 17, Translations: make([]byte, 16*4)}))
			for i := range 4 {
				copy(k.Translations[16*i:], wqe{}.seg(4096, engine.NoMKey, 0).segments)
			}
			q.post(wqe{op: prm.OpcodeWrite}.raddr(child, 0).seg(100, k.Key(), 0x2010))
		})
		if f := p[0].faults; len(f) != 1 || f[0].Type != 1 || f[0].Queue != q.number {
			w.t.Fatalf("faults %+v", f)
		}
		w.do(func() {
			copy(k.Translations[16*2:], wqe{}.seg(4096, child.Key(), child.addr).segments)
			h.ResumePageFault(1, q.number, false)
		})
		q.scq.expect("written", sent)
		// NoMKey itself cannot be used.
		w.do(func() { q.post(wqe{op: prm.OpcodeWrite}.raddr(child, 0).seg(100, engine.NoMKey, 0)) })
		q.scq.expect("no memory", sendError(transport.LocalProtection))
		if len(p[0].faults) != 1 {
			w.t.Errorf("faults %+v", p[0].faults)
		}
	})
}

// TestManyPageFaults checks that the number of reported faults is bounded, that
// waiting ones follow, and that those of a reset queue pair are dropped.
func TestManyPageFaults(t *testing.T) {
	const most, more = 1 << 10, 5
	runPaged(t, func(w *world, p [2]*pager) {
		h := p[0].h
		p[0].lazy = true
		var qps []*qp
		w.do(func() {
			m, there := p[0].demand(100), h.register(100, allRights)
			scq := h.newCQ(engine.CQAttr{LogSize: 11})
			for range most + more {
				q := h.newQP(engine.QPAttr{SendCQ: scq.Number, RecvCQ: scq.Number, LogSQSize: 1, LogRQSize: 1, LogRQStride: 4})
				q.scq = scq
				connect(q, q)
				q.post(wqe{op: prm.OpcodeWrite}.raddr(there, 0).data(m, 0, 1))
				qps = append(qps, q)
			}
		})
		if n := len(p[0].faults); n != most {
			w.t.Fatalf("%d faults, want %d", n, most)
		}
		w.do(func() {
			w.must(h.ModifyQP(qps[most].number, engine.ToReset, 0, engine.QPAttr{}))
			w.must(h.ModifyQP(qps[0].number, engine.ToReset, 0, engine.QPAttr{}))
			p[0].bring(engine.PageFault{Type: 1, QPN: qps[0].number}) // dropped
			p[0].lazy = false
			for _, f := range p[0].faults {
				p[0].bring(f)
			}
		})
		if n := len(p[0].faults); n != most+more-1 {
			w.t.Errorf("%d faults in all, want %d", n, most+more-1)
		}
		if n := len(qps[1].scq.poll()); n != most+more-2 {
			w.t.Errorf("%d requests are done, want %d", n, most+more-2)
		}
	})
}

// TestPageFaultOfUMR checks that the driver's update of a list turns a key into
// memory on demand, and that the room of a list ends at a multiple of 64 bytes.
func TestPageFaultOfUMR(t *testing.T) {
	runPaged(t, func(w *world, p [2]*pager) {
		h := p[0].h
		var driver *qp
		var k *engine.MKey
		w.do(func() {
			driver = h.newQP(engine.QPAttr{Service: engine.ServiceUMR})
			connect(driver, driver)
			k = must(h.CreateMKey(engine.MKeyAttr{Mode: engine.MTT, Rights: allRights, UMR: true, QPN: engine.AnyQPN, PD: h.pd,
				Start: 0x1000, Length: 4096, PageShift: 12, Octowords: 1}))
			driver.post(umr{key: k.Key(), flags: []prm.Field{prm.UMRInline}, list: make([]byte, 64)}.wqe())
		})
		driver.scq.expect("updated", sent)
		if !k.OnDemand || len(k.Translations) != 64 {
			w.t.Errorf("on demand: %v, a list of %d bytes", k.OnDemand, len(k.Translations))
		}
		w.do(func() {
			driver.post(umr{key: k.Key(), flags: []prm.Field{prm.UMRInline}, list: make([]byte, 80)}.wqe())
		})
		driver.scq.expect("too long", sendError(transport.BindError))
	})
}
