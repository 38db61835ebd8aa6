package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// ruleTests break each rule once. The tests check only that the violation is
// reported, with its place.
var ruleTests = []struct {
	rule engine.Rule
	name string
	do   func(w *world, p *pair)
}{
	{engine.RuleReserved, "a bit of the control segment", func(w *world, p *pair) {
		b := p.a.write(wqe{op: prm.OpcodeNOP})
		b[7] |= 0x40
		p.a.rewrite(0, b)
		p.a.ring(b)
	}},
	{engine.RuleReserved, "an inline length of more than ten bits", func(w *world, p *pair) {
		x := wqe{op: prm.OpcodeSend}.inline([]byte{1})
		be.PutUint32(x.segments, 1<<31|1<<12|1)
		p.b.recv(p.bm, 0, 8)
		p.a.post(x)
	}},
	{engine.RuleReserved, "the fence mode", func(w *world, p *pair) { p.a.post(wqe{op: prm.OpcodeNOP, fence: 7}) }},
	{engine.RuleRecord, "the record after the doorbell", func(w *world, p *pair) {
		b := p.a.write(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
		p.b.recv(p.bm, 0, 8)
		p.a.h.Store(p.a.uar, 0x800, b[:8])
		p.a.ring(b)
	}},
	{engine.RuleDoorbell, "other bytes than the WQE's", func(w *world, p *pair) {
		b := slices.Clone(p.a.write(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).data(p.am, 0, 8)))
		b[3] = prm.OpcodeRead
		p.a.ring(b)
	}},
	{engine.RuleUAR, "another page", func(w *world, p *pair) {
		p.a.uar = 17
		p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).data(p.am, 0, 8))
	}},
	{engine.RuleUAR, "another page to arm", func(w *world, p *pair) {
		word := be.AppendUint32(nil, 1<<24)
		copy(p.a.h.bytes(p.a.scq.record+4, 4), word)
		p.a.h.Store(17, 0x20, be.AppendUint32(word, p.a.scq.Number))
	}},
	{engine.RuleIndex, "the index of another pass", func(w *world, p *pair) {
		b := p.a.write(wqe{op: prm.OpcodeNOP})
		b[2] += 16
		p.a.rewrite(0, b)
		b[2] -= 16
		p.a.posted = 1
		be.PutUint32(p.a.h.bytes(p.a.record+4, 4), 1)
		b[2] += 16
		p.a.h.Store(p.a.uar, 0x800, b[:8])
	}},
	{engine.RuleQPN, "another queue's WQE", func(w *world, p *pair) {
		b := p.a.write(wqe{op: prm.OpcodeNOP})
		door := slices.Clone(b)
		b[6]++
		p.a.rewrite(0, b)
		p.a.ring(door)
	}},
	{engine.RuleBlueFlame, "half a burst", func(w *world, p *pair) {
		b := p.a.write(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).inline(make([]byte, 28)))
		be.PutUint32(p.a.h.bytes(p.a.record+4, 4), 1)
		p.a.h.Store(p.a.uar, 0x800, b[:32])
	}},
	{engine.RuleBlueFlame, "more than the WQE", func(w *world, p *pair) {
		b := p.a.write(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).inline(make([]byte, 28)))
		be.PutUint32(p.a.h.bytes(p.a.record+4, 4), 1)
		p.a.h.Store(p.a.uar, 0x800, append(b, make([]byte, 64)...))
	}},
	{engine.RuleBlueFlame, "other bytes than in memory", func(w *world, p *pair) {
		b := p.a.write(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).inline(make([]byte, 12)))
		b = append(b, make([]byte, 64-len(b))...)
		b[40] = 1
		be.PutUint32(p.a.h.bytes(p.a.record+4, 4), 1)
		p.a.h.Store(p.a.uar, 0x800, b)
	}},
	{engine.RuleBlueFlame, "a burst without its beginning",
		func(w *world, p *pair) { p.a.h.Store(p.a.uar, 0x808, make([]byte, 8)) }},
	{engine.RuleBlueFlame, "a burst with a hole", func(w *world, p *pair) {
		b := p.a.write(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).inline(make([]byte, 28)))
		be.PutUint32(p.a.h.bytes(p.a.record+4, 4), 1)
		p.a.h.Store(p.a.uar, 0x800, b[:8])
		p.a.h.Store(p.a.uar, 0x810, b[16:24])
	}},
	{engine.RuleConsumer, "a counter ahead of the device", func(w *world, p *pair) {
		p.a.scq.consumer = 7
		p.a.scq.arm(true)
	}},
	{engine.RuleArmRecord, "the record of another command", func(w *world, p *pair) { p.a.scq.armPosted(0, 1<<24) }},
	{engine.RuleArmRecord, "the record of an earlier event", func(w *world, p *pair) { p.a.scq.armPosted(1<<28, 0) }},
	{engine.RuleArmRecord, "the record of an earlier completion",
		func(w *world, p *pair) { p.a.scq.armPosted(0, 0xffffff) }},
	{engine.RuleCQFresh, "a CQ of zeros", func(w *world, p *pair) {
		b, _ := p.a.h.buffer(4096)
		c := must(p.a.h.CreateCQ(engine.CQAttr{LogSize: 6, Buffer: b, Record: p.a.h.alloc(8)}))
		p.a.h.newQP(engine.QPAttr{SendCQ: c.Number})
	}},
	{engine.RuleCQOverrun, "more completions than room", func(w *world, p *pair) {
		c := p.a.h.newCQ(engine.CQAttr{LogSize: 1})
		q := p.a.h.newQP(engine.QPAttr{SendCQ: c.Number})
		connect(q, q)
		x := wqe{op: prm.OpcodeWrite}.words(0, 0)
		q.post(x, x, x)
	}},
	{engine.RuleKey, "a local key that does not exist",
		func(w *world, p *pair) { p.a.post(wqe{op: prm.OpcodeSend}.seg(8, p.am.Key()^1, 0)) }},
	{engine.RuleKey, "a receive key that does not exist", func(w *world, p *pair) {
		p.b.recvSegs(wqe{}.seg(8, 0x123400, 0))
		p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
	}},
	{engine.RuleSegments, "inline data for a response",
		func(w *world, p *pair) { p.a.post(wqe{op: prm.OpcodeRead}.raddr(p.bm, 0).inline(make([]byte, 8))) }},
	{engine.RuleSegments, "no XRC segment", func(w *world, p *pair) {
		q := p.a.h.newQP(engine.QPAttr{Service: engine.ServiceXRC, Source: engine.FromNone})
		connect(q, q)
		q.post(wqe{op: prm.OpcodeWrite}.words(1<<56, 0).raddr(p.bm, 0).data(p.am, 0, 8))
	}},
	{engine.RuleDS, "segments beyond the size", func(w *world, p *pair) { p.a.post(wqe{op: prm.OpcodeWrite}) }},
	{engine.RuleDS, "a size of 0", func(w *world, p *pair) {
		b := p.a.write(wqe{op: prm.OpcodeSend})
		b[7] &^= 0x3f
		p.a.rewrite(0, b)
		p.a.ring(b)
	}},
	{engine.RuleDS, "a UMR without its context",
		func(w *world, p *pair) { p.a.post(wqe{op: prm.OpcodeUMR}.words(0, 0, 0, 0)) }},
	{engine.RuleOpcode, "an unknown opcode", func(w *world, p *pair) { p.a.post(wqe{op: 0x77}) }},
	{engine.RuleZeroLength, "a segment of length 0",
		func(w *world, p *pair) { p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 0)) }},
	{engine.RuleZeroLength, "a receive segment of length 0", func(w *world, p *pair) {
		p.b.recv(p.bm, 0, 0)
		p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
	}},
	{engine.RuleSQOverrun, "more than the ring has", func(w *world, p *pair) {
		for range 17 { // no receive request: no request completes
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
		}
	}},
	{engine.RuleRQOverrun, "more than the ring has", func(w *world, p *pair) {
		for range 9 {
			p.b.recv(p.bm, 0, 8)
		}
		p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
	}},
	{engine.RuleSRQLink, "a link out of the list", func(w *world, p *pair) {
		s := p.a.h.newSRQ(engine.SRQAttr{}, 2)
		q := p.a.h.newQP(engine.QPAttr{Source: engine.FromSRQ, SRQ: s.Number})
		connect(q, q)
		be.PutUint16(s.at(0, 4)[2:], 4)
		s.posted = 0
		be.PutUint32(s.h.bytes(s.record, 4), 1)
		q.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 8))
	}},
	{engine.RuleUnknownQueue, "a send queue", func(w *world,
		p *pair) {
		p.a.h.Store(16, 0x800, []byte{0, 0, 0, 8, 0xff, 0, 0, 1})
	}},
	{engine.RuleUnknownQueue, "a CQ", func(w *world,
		p *pair) {
		p.a.h.Store(16, 0x20, []byte{0, 0, 0, 0, 0, 0xff, 0, 0})
	}},
	{engine.RuleStore, "an invalid offset", func(w *world, p *pair) { p.a.h.Store(16, 0x28, make([]byte, 8)) }},
	{engine.RuleStore, "three bytes", func(w *world, p *pair) { p.a.h.Store(16, 0x800, make([]byte, 3)) }},
	{engine.RuleStore, "half a doorbell", func(w *world, p *pair) { p.a.h.Store(16, 0x804, make([]byte, 4)) }},
	{engine.RuleStore, "a doorbell of two stores", func(w *world, p *pair) {
		b := p.a.write(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0))
		be.PutUint32(p.a.h.bytes(p.a.record+4, 4), uint32(p.a.posted))
		p.a.h.Store(p.a.uar, p.a.flame, b[:4])
		p.a.h.Store(p.a.uar, p.a.flame+4, b[4:8])
		p.a.post(wqe{op: prm.OpcodeNOP})
	}},
	{engine.RuleInline, "more than the WQE", func(w *world, p *pair) {
		x := wqe{op: prm.OpcodeSend}.inline(make([]byte, 12))
		be.PutUint32(x.segments, 1<<31|13)
		p.a.post(x)
	}},
	{engine.RuleAtomicAddress, "a response of sixteen bytes", func(w *world, p *pair) {
		p.a.post(wqe{op: prm.OpcodeAtomicFA}.raddr(p.bm, 0x15d).words(1, 0).data(p.am, 0, 16))
	}},
}

// rewrite changes the bytes of a WQE in the ring.
func (q *qp) rewrite(index uint16, b []byte) {
	posted := q.posted
	q.posted = index
	q.raw(b)
	q.posted = posted
}

// TestRules checks that each rule is reported when broken, with its place.
func TestRules(t *testing.T) {
	seen := map[engine.Rule]bool{}
	for _, x := range ruleTests {
		seen[x.rule] = true
		t.Run(string(x.rule)+"/"+x.name, func(t *testing.T) {
			run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
				p := newPair(w, engine.QPAttr{})
				w.do(func() { x.do(w, p) })
				w.later(61 * time.Second)
				var got []engine.Violation
				for _, h := range w.hosts {
					got = append(got, h.violations...)
					h.violations = nil
				}
				if !slices.ContainsFunc(got, func(v engine.Violation) bool { return v.Rule == x.rule && v.Text != "" }) {
					w.t.Errorf("violations %+v", got)
				}
			})
		})
	}
	for _, r := range engine.Rules {
		if !seen[r] {
			t.Errorf("no test breaks rule %s", r)
		}
	}
}

// armPosted stores an arm doorbell that arrives when its record has changed.
func (c *cq) armPosted(word, record uint32) {
	be.PutUint32(c.h.bytes(c.record+4, 4), record)
	c.h.Store(16, 0x20, be.AppendUint32(be.AppendUint32(nil, word), c.Number))
}

// TestArmedAgain checks that a doorbell may arrive when its record is already
// that of the next one. A violation would fail the test.
func TestArmedAgain(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		w.do(func() {
			c := w.hosts[0].newCQ(engine.CQAttr{})
			for _, record := range []uint32{1, 1 << 28, 1<<28 | 3, 1<<28 | 1<<24, 2 << 28} {
				c.armPosted(0, record)
			}
			c.armPosted(3<<28, 0)
			c.armPosted(1<<24, 0)
		})
	})
}

// TestArmRecordAtOnce checks that a doorbell agrees with its record if the host's stores are not posted.
func TestArmRecordAtOnce(t *testing.T) {
	run(t, 1, engine.Config{WholeBursts: true}, func(w *world) {
		h := w.hosts[0]
		w.do(func() {
			c := h.newCQ(engine.CQAttr{})
			c.arm(false)
			c.arm(true)
			if r := h.takeViolations(); len(r) > 0 {
				t.Errorf("violations %v", r)
			}
			for _, x := range []struct {
				what         string
				word, record uint32
			}{{"an arm doorbell without its record", 1 << 24, 0}, {"the record of a later event", 0, 1 << 28}} {
				c.armPosted(x.word, x.record)
				if r := h.takeViolations(); len(r) != 1 || r[0] != engine.RuleArmRecord {
					t.Errorf("%s: violations %v", x.what, r)
				}
			}
		})
	})
}

// TestEventsLeft checks that a guest may process several events before its doorbell arrives, if it has not processed
// them earlier.
func TestEventsLeft(t *testing.T) {
	for left, want := range map[int]int{0: 1, 2: 1, 3: 0, 4: 0} {
		run(t, 1, engine.Config{}, func(w *world) {
			h := w.hosts[0]
			c := h.newCQ(engine.CQAttr{})
			w.do(func() {
				q := h.newQP(engine.QPAttr{SendCQ: c.Number})
				connect(q, q)
				q.post(wqe{op: prm.OpcodeWrite}.words(0, 0))
			})
			w.later(time.Second)
			w.do(func() {
				for range left {
					c.armPosted(0, 0) // an event, for the completion that has not been polled
				}
				c.armPosted(0, 3<<28)
				if n := len(h.violations); n != want {
					t.Errorf("%d events left: violations %+v", left, h.violations)
				}
				h.violations = nil
			})
		})
	}
}

// TestRelaxed checks that nothing is reported without strict mode.
func TestRelaxed(t *testing.T) {
	for _, x := range ruleTests {
		runWorld(t, &world{relaxed: true}, 2, engine.Config{CQEVersion: 1}, func(w *world) {
			p := newPair(w, engine.QPAttr{})
			w.do(func() { x.do(w, p) })
		})
	}
}
