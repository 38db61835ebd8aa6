package engine_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// tcp returns the 54 bytes of headers of a TCP segment.
func tcp(dst, src [6]byte) []byte {
	f := udp(dst, src, 1000, 2000, nil)
	f[23] = 6
	return append(f[:38], 0, 0, 1, 0, 0, 0, 0, 0, 0x50, 0x99, 0, 0, 0, 0, 0, 0)
}

// tso returns a request to segment n bytes of a stream.
func tso(header []byte, mss uint16, m *region, n int) wqe {
	w := wqe{op: prm.OpcodeTSO}.eth(0xc0, header)
	be.PutUint16(w.segments[6:], mss)
	return w.data(m, 0, n)
}

// TestSegmentationOfOthers checks that only TCP is segmented, for all header
// layouts.
func TestSegmentationOfOthers(t *testing.T) {
	for name, change := range map[string]func(f []byte){
		"no TCP header": func(f []byte) { clear(f[34:]) },
		"a fragment":    func(f []byte) { f[20] = 0x20 },
		"UDP":           func(f []byte) { f[23] = 17 },
		"no IP":         func(f []byte) { f[12] = 9 },
	} {
		for _, inline := range []bool{false, true} {
			run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
				var n *nic
				w.do(func() {
					n = w.hosts[0].newNIC(1, engine.TIRAttr{})
					m := n.h.register(4096, allRights)
					f := tcp(n.h.MAC(), n.h.MAC())
					change(f)
					m.put(0, f)
					if inline {
						n.post(tso(f, 100, m, 54))
					} else {
						n.post(tso(nil, 100, m, 54))
					}
				})
				if got := n.scq.poll(); len(got) != 1 || got[0].syndrome != uint8(transport.LocalQPOp) {
					w.t.Errorf("%s, inline %t: %+v", name, inline, got)
				}
			})
		}
	}
}

// TestInlineFrame checks frames with inline data, in one or several parts.
func TestInlineFrame(t *testing.T) {
	run(t, 2, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		var a, b *nic
		var am, bm *region
		w.do(func() {
			a, b = w.hosts[0].newNIC(1, engine.TIRAttr{}), w.hosts[1].newNIC(1, engine.TIRAttr{})
			am, bm = a.h.register(4096, allRights), b.h.register(4096, allRights)
			mac := b.h.MAC()
			b.h.toTIR(mac[:], b.tir.Number)
		})
		f := udp(b.h.MAC(), a.h.MAC(), 1000, 2000, pattern(40, 1))
		am.put(0, f)
		for i, x := range []wqe{
			wqe{op: prm.OpcodeSend}.eth(0, f[:18]).inline(f[18:]),
			wqe{op: prm.OpcodeSend}.eth(0, nil).inline(f[:20]).inline(f[20:]),
			wqe{op: prm.OpcodeSend}.eth(0, f[:18]).inline(f[18:30]).data(am, 30, 20).inline(f[50:]),
		} {
			w.do(func() {
				b.rqs[0].recv(bm, 0, 2000)
				a.post(x)
			})
			a.scq.expect("sent", sent)
			b.rqs[0].rcq.expect("received", received(len(f)))
			if got := bm.get(0, len(f)); !bytes.Equal(got, f) {
				w.t.Errorf("%d: received % x", i, got)
			}
		}
		w.do(func() { // longer than its WQE
			x := wqe{op: prm.OpcodeSend}.eth(0, f[:18]).inline(f[18:30])
			be.PutUint32(x.segments[32:], 1<<31|100)
			a.post(x)
		})
		a.scq.expect("too long", sendError(transport.LocalQPOp))
		if r := a.h.takeViolations(); len(r) != 1 || r[0] != engine.RuleInline {
			w.t.Errorf("violations %v", r)
		}
	})
}

// TestTurns checks that a queue with many frames yields the loop, and that it
// stops at once when the queue fails.
func TestTurns(t *testing.T) {
	const frames, perTurn = 1000, 64
	for _, end := range []bool{false, true} {
		run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
			h, sent := w.hosts[0], new(counter)
			h.SetLink(sent)
			var n *nic
			w.loop.Run(func() {
				n = h.newNIC(1, engine.TIRAttr{})
				n.post(tso(tcp(h.MAC(), h.MAC()), 100, h.register(frames*100, allRights), frames*100))
				if sent.frames == 0 || sent.frames > perTurn {
					w.t.Errorf("%d frames in a turn", sent.frames)
				}
				if end {
					w.must(h.ModifySQ(n.number, engine.QueueReady, engine.QueueError))
				}
			})
			w.later(time.Second)
			got := n.scq.poll()
			if end {
				if len(got) != 1 || got[0].syndrome != uint8(transport.Flushed) || sent.frames > perTurn {
					w.t.Errorf("ended after %d frames: %+v", sent.frames, got)
				}
				return
			}
			if len(got) != 1 || got[0].syndrome != 0 || sent.frames != frames || sent.sequence != 256+100*(frames-1) {
				w.t.Errorf("%d frames, the last at %d: %+v", sent.frames, sent.sequence, got)
			}
			w.do(func() { n.post(tso(tcp(h.MAC(), h.MAC()), 1, h.register(4096, allRights), 4096)) })
			n.scq.expect("segments of one byte", sendError(transport.LocalQPOp))
		})
	}
}

// A counter is a link that counts frames.
type counter struct {
	frames   int
	sequence uint32 // of the last frame's TCP header
}

func (c *counter) Packet(*roce.Packet) {}

func (c *counter) Frame(b []byte) {
	c.frames++
	c.sequence = be.Uint32(b[38:])
}

// TestFrameLimit checks that frames longer than the port permits are lost and
// do not affect the buffers.
func TestFrameLimit(t *testing.T) {
	run(t, 2, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		a, b := w.hosts[0], w.hosts[1]
		var from, to *nic
		var m *region
		w.do(func() {
			from, to = a.newNIC(1, engine.TIRAttr{}), b.newNIC(1, engine.TIRAttr{})
			mac := b.MAC()
			b.toTIR(mac[:], to.tir.Number)
			b.SetFrameLimit(1518)
			m = a.register(9000, allRights)
			m.put(0, tcp(b.MAC(), a.MAC()))
			to.rqs[0].recv(b.register(4096, allRights), 0, 1518)
			from.post(wqe{op: prm.OpcodeSend}.eth(0, nil).data(m, 0, 9000), wqe{op: prm.OpcodeSend}.eth(0, nil).data(m, 0, 1519))
		})
		from.scq.expect("sent", sent, sent)
		to.rqs[0].rcq.expect("longer ones")
		w.do(func() { from.post(wqe{op: prm.OpcodeSend}.eth(0, nil).data(m, 0, 1518)) })
		from.scq.expect("sent", sent)
		to.rqs[0].rcq.expect("the longest", received(1518))
		link := new(counter)
		w.do(func() {
			a.SetLink(link)
			a.SetFrameLimit(1000)
			from.post(wqe{op: prm.OpcodeSend}.eth(0, nil).data(m, 0, 1001), tso(tcp(b.MAC(), a.MAC()), 947, m, 5000),
				wqe{op: prm.OpcodeSend}.eth(0, nil).data(m, 0, 1000))
		})
		from.scq.expect("not sent", sent, sent, sent)
		if link.frames != 1+1 { // the last segment is short
			w.t.Errorf("%d frames were sent", link.frames)
		}
	})
}

// TestFailedCQ checks that the raw Ethernet queues and the XRC SRQs that
// complete into a CQ fail with it, and that the host gets an event for each.
func TestFailedCQ(t *testing.T) {
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		var n *nic
		var rq *engine.RQ
		var s *srq
		w.do(func() {
			n = h.newNIC(1, engine.TIRAttr{})
			a := n.rqs[0].rq.RQAttr
			a.CQ = n.scq.Number
			rq = must(h.CreateRQ(a))
			w.must(h.ModifyRQ(rq.Number, engine.QueueReset, engine.QueueReady))
			s = h.newSRQ(engine.SRQAttr{XRC: true, XRCD: must(h.CreateXRCD()), CQ: n.scq.Number}, 3)
		})
		for range 65 { // not polled
			w.do(func() { n.post(wqe{op: prm.OpcodeNOP}) })
		}
		if r := h.takeViolations(); len(r) != 1 || r[0] != engine.RuleCQOverrun {
			t.Errorf("violations %v", r)
		}
		if n.sq.State() != engine.QueueError || rq.State() != engine.QueueError || n.rqs[0].rq.State() != engine.QueueReady {
			t.Errorf("states %d, %d and another's %d", n.sq.State(), rq.State(), n.rqs[0].rq.State())
		}
		want := []engine.AsyncEvent{{Type: engine.EventCQError, Number: n.scq.Number, Syndrome: engine.CQOverrun},
			{Type: engine.EventSRQCatastrophic, Number: s.Number},
			{Type: engine.EventQPFatal, Queue: engine.QueueSQ, Number: n.number},
			{Type: engine.EventQPFatal, Queue: engine.QueueRQ, Number: rq.Number}}
		if !slices.Equal(h.events, want) {
			t.Errorf("events %+v", h.events)
		}
	})
}
