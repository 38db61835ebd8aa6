package engine_test

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// A nic is a set of raw Ethernet queues from the user's side.
type nic struct {
	*qp // the send queue
	sq  *engine.SQ
	rqs []*rawRQ
	tir *engine.TIR
	m   *region
}

type rawRQ struct {
	*qp
	rq *engine.RQ
}

// newNIC creates a send queue, receive queues, and a TIR for them.
func (h *host) newNIC(rqs int, a engine.TIRAttr) *nic {
	n := &nic{qp: &qp{h: h, uar: 16, flame: 0x800, sqSize: 16, scq: h.newCQ(engine.CQAttr{LogSize: 6})}}
	attr := engine.SQAttr{CQ: n.scq.Number, UserIndex: 7, PD: h.pd, UAR: 16, LogSize: 4, TIS: must(h.CreateTIS(5)).Number}
	attr.Buffer, n.at = h.buffer(1024)
	n.record = h.alloc(8)
	attr.Record = n.record
	n.sq = must(h.CreateSQ(attr))
	n.number = n.sq.Number
	h.w.must(h.ModifySQ(n.number, engine.QueueReset, engine.QueueReady))
	var numbers []uint32
	for range rqs {
		r := &rawRQ{qp: &qp{h: h, rqSize: 8, rqStride: 64, rqBytes: 512, rcq: h.newCQ(engine.CQAttr{LogSize: 6})}}
		ra := engine.RQAttr{CQ: r.rcq.Number, UserIndex: 9, PD: h.pd, LogSize: 3, LogStride: 6, StripVLAN: true}
		ra.Buffer, r.at = h.buffer(512)
		r.record = h.alloc(8)
		ra.Record = r.record
		r.rq = must(h.CreateRQ(ra))
		h.w.must(h.ModifyRQ(r.rq.Number, engine.QueueReset, engine.QueueReady))
		n.rqs = append(n.rqs, r)
		numbers = append(numbers, r.rq.Number)
	}
	if a.Indirect {
		a.RQT = must(h.CreateRQT(numbers)).Number
	} else {
		a.RQ = numbers[0]
	}
	n.tir = must(h.CreateTIR(a))
	return n
}

// toTIR steers frames to a TIR by destination address: the exact address first,
// then all groups, then everything.
func (h *host) toTIR(dmac []byte, tir uint32) {
	root := must(h.CreateFlowTable(engine.FlowTableAttr{Level: 1, LogSize: 4}))
	h.w.must(h.SetFlowTableRoot(engine.NICReceive, root))
	g := engine.FlowGroup{First: 0, Last: 3, Criteria: 1}
	copy(prm.FlowHeadersDMAC.Bytes(g.Mask[:]), bytes.Repeat([]byte{0xff}, 6))
	group := must(h.CreateFlowGroup(root, g))
	f := engine.Flow{Group: group, Forward: true, Tag: 0x1234,
		Dests: []engine.FlowDest{{Type: engine.FlowToTIR, Number: tir}}}
	copy(prm.FlowHeadersDMAC.Bytes(f.Match[:]), dmac)
	h.w.must(h.SetFlow(root, 0, f))
}

// eth appends an Ethernet segment with a header.
func (w wqe) eth(flags byte, header []byte) wqe {
	s := make([]byte, 14, 64)
	s[4] = flags
	be.PutUint16(s[12:], uint16(len(header)))
	s = append(s, header...)
	for len(s)%16 != 0 || len(s) < 16 {
		s = append(s, 0)
	}
	w.segments = append(w.segments, s...)
	return w
}

// udp returns a frame of UDP over IPv4 without the checksums of layers 3 and 4.
func udp(dst, src [6]byte, sport, dport uint16, payload []byte) []byte {
	b := append(append(append([]byte{}, dst[:]...), src[:]...), 8, 0)
	b = append(b, 0x45, 0)
	b = be.AppendUint16(b, uint16(28+len(payload)))
	b = append(b, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	b = be.AppendUint16(be.AppendUint16(b, sport), dport)
	b = append(be.AppendUint16(b, uint16(8+len(payload))), 0, 0)
	return append(b, payload...)
}

// TestEthernet sends a frame from one host's send queue to the other's receive
// queue, with checksums computed and verified by the devices.
func TestEthernet(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1, LinkLayer: engine.Ethernet}, func(w *world) {
		var a, b *nic
		var am, bm *region
		w.do(func() {
			a, b = w.hosts[0].newNIC(1, engine.TIRAttr{}), w.hosts[1].newNIC(1, engine.TIRAttr{})
			am, bm = a.h.register(4096, allRights), b.h.register(4096, allRights)
			mac := b.h.MAC()
			b.h.toTIR(mac[:], b.tir.Number)
		})
		frame := udp(b.h.MAC(), a.h.MAC(), 1000, 2000, pattern(101, 1))
		am.put(0, frame)
		for _, inline := range []int{0, 2, 14, 18, 60} {
			w.do(func() {
				b.rqs[0].recv(bm, 0, 2000)
				a.post(wqe{op: prm.OpcodeSend}.eth(0xc0, frame[:inline]).data(am, inline, len(frame)-inline))
			})
			if got := a.scq.poll(); len(got) != 1 || got[0].op != prm.CQEReq || got[0].user != 7 || got[0].qpn != a.number {
				w.t.Fatalf("sent: %+v", got)
			}
			got := b.rqs[0].rcq.poll()
			if len(got) != 1 || got[0].op != prm.CQERespSend || int(got[0].bytes) != len(frame) || got[0].user != 9 ||
				got[0].qpn != 0x1234 {
				w.t.Fatalf("received: %+v", got)
			}
			raw := got[0].raw
			if !prm.CQEL3OK.Is(raw) || !prm.CQEL4OK.Is(raw) || prm.CQEL3HdrType.Get(raw) != 2 || prm.CQEL4HdrType.Get(raw) != 2 {
				w.t.Errorf("layers: % x", raw[28:32])
			}
			if data := bm.get(0, len(frame)); !bytes.Equal(data[42:], frame[42:]) {
				w.t.Errorf("received % x", data)
			}
		}
		w.do(func() { // unknown address: dropped; no buffer: dropped
			frame[5] = 99
			a.post(wqe{op: prm.OpcodeSend}.eth(0, frame), wqe{op: prm.OpcodeNOP})
		})
		b.rqs[0].rcq.expect("another's frame")
		a.scq.expect("sent", sent, sent)
	})
}

// TestVLAN checks that the sender's device inserts a tag and the receiver's
// removes it.
func TestVLAN(t *testing.T) {
	run(t, 2, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		var a, b *nic
		var am, bm *region
		frame := []byte{}
		w.do(func() {
			a, b = w.hosts[0].newNIC(1, engine.TIRAttr{}), w.hosts[1].newNIC(1, engine.TIRAttr{})
			am, bm = a.h.register(4096, allRights), b.h.register(4096, allRights)
			mac := b.h.MAC()
			b.h.toTIR(mac[:], b.tir.Number)
			frame = udp(b.h.MAC(), a.h.MAC(), 1, 2, []byte("tagged"))
			am.put(0, frame)
			b.rqs[0].recv(bm, 0, 2000)
			s := make([]byte, 16)
			s[12], s[14], s[15] = 0x80, 0x20, 0x7b
			a.post(wqe{op: prm.OpcodeSend, segments: s}.data(am, 0, len(frame)))
		})
		got := b.rqs[0].rcq.poll()
		if len(got) != 1 || int(got[0].bytes) != len(frame) || !prm.CQEVLAN.Is(got[0].raw) ||
			prm.CQEVLANInfo.Get(got[0].raw) != 0x207b || !bytes.Equal(bm.get(0, len(frame)), frame) {
			w.t.Errorf("received %+v: % x", got, bm.get(0, len(frame)))
		}
	})
}

// TestSegmentation checks that the device segments a part of a TCP stream into
// frames, and computes the checksums that the WQE requests.
func TestSegmentation(t *testing.T) {
	const layer3, layer4 = 0x40, 0x80
	run(t, 2, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		var a, b *nic
		var am, bm *region
		payload := pattern(2500, 1)
		w.do(func() {
			a, b = w.hosts[0].newNIC(1, engine.TIRAttr{}), w.hosts[1].newNIC(1, engine.TIRAttr{})
			am, bm = a.h.register(8192, allRights), b.h.register(8192, allRights)
			mac := b.h.MAC()
			b.h.toTIR(mac[:], b.tir.Number)
			am.put(0, payload)
		})
		for _, flags := range []byte{0, layer3, layer4, layer3 | layer4} {
			w.do(func() {
				for i := range 3 {
					b.rqs[0].recv(bm, i*2000, 2000)
				}
				s := tso(tcp(b.h.MAC(), a.h.MAC()), 1000, am, len(payload))
				s.segments[4] = flags
				a.post(s)
			})
			a.scq.expect("sent", sent)
			got := b.rqs[0].rcq.poll()
			if len(got) != 3 {
				w.t.Fatalf("%d frames", len(got))
			}
			for i, e := range got {
				f := bm.get(i*2000, int(e.bytes))
				last := i == 2
				if prm.CQEL3OK.Is(e.raw) != (flags&layer3 != 0) || prm.CQEL4OK.Is(e.raw) != (flags&layer4 != 0) ||
					be.Uint32(f[38:]) != uint32(256+1000*i) || f[47]&1 == 1 != last || f[47]&0x80 != 0 != (i == 0) {
					w.t.Errorf("flags %#x, frame %d: % x", flags, i, f[:54])
				}
				if !bytes.Equal(f[54:], payload[1000*i:min(1000*i+1000, 2500)]) {
					w.t.Errorf("flags %#x, frame %d has other bytes", flags, i)
				}
			}
		}
	})
}

// TestRSS compares the hash with published Toeplitz hashes, and checks that it
// distributes frames to the queues.
func TestRSS(t *testing.T) {
	key, _ := hex.DecodeString("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		var n *nic
		var m *region
		mac := h.MAC()
		w.do(func() {
			n = h.newNIC(2, engine.TIRAttr{Indirect: true, Hash: engine.HashToeplitz, Key: [40]byte(key), UDP: true,
				Fields: engine.HashSrcIP | engine.HashDstIP | engine.HashSrcPort | engine.HashDstPort})
			m = h.register(8192, allRights)
			h.toTIR(mac[:], n.tir.Number)
			for _, q := range n.rqs {
				for i := range 8 {
					q.recv(m, i*1000, 1000)
				}
			}
		})
		for _, x := range []struct {
			src, dst     [4]byte
			sport, dport uint16
			want         uint32
		}{ // from the documentation of receive side scaling
			{[4]byte{66, 9, 149, 187}, [4]byte{161, 142, 100, 80}, 2794, 1766, 0x51ccc178},
			{[4]byte{199, 92, 111, 2}, [4]byte{65, 69, 140, 83}, 14230, 4739, 0xc626b0ea},
			{[4]byte{24, 19, 198, 95}, [4]byte{12, 22, 207, 184}, 12898, 38024, 0x5c2b394a},
		} {
			f := udp(mac, mac, x.sport, x.dport, nil)
			copy(f[26:], x.src[:])
			copy(f[30:], x.dst[:])
			w.do(func() { h.ReceiveFrame(f) })
			got := n.rqs[x.want%2].rcq.poll()
			if len(got) != 1 || uint32(prm.CQERSSHash.Get(got[0].raw)) != x.want {
				w.t.Errorf("ports %d and %d: %+v, want hash %#x", x.sport, x.dport, got, x.want)
			}
		}
		// Packets that the TIR does not hash go to the first queue.
		for name, change := range map[string]func(f []byte){
			"ICMP": func(f []byte) { f[23] = 1 }, "TCP": func(f []byte) { f[23], f[46] = 6, 0x50 },
			"no IP":      func(f []byte) { f[13] = 6 },
			"a fragment": func(f []byte) { f[20] |= 0x20 }, "options beyond the frame": func(f []byte) { f[14] = 0x4f },
		} {
			f := udp(mac, mac, 1, 2, make([]byte, 12))
			change(f)
			w.do(func() { h.ReceiveFrame(f) })
			got := n.rqs[0].rcq.poll()
			if len(got) != 1 || prm.CQERSSHash.Get(got[0].raw) != 0 || prm.CQERSSType.Get(got[0].raw) != 0 ||
				prm.CQEL4OK.Is(got[0].raw) ||
				name != "TCP" && prm.CQEL4HdrType.Get(got[0].raw) != 0 {
				w.t.Errorf("%s: %+v", name, got)
			}
		}
	})
}

// TestSteering checks the order of flow tables: the first entry that matches,
// then the table it leads to, then the miss table.
func TestSteering(t *testing.T) {
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		mac := h.MAC()
		var ns []*nic
		var m *region
		w.do(func() {
			m = h.register(8192, allRights)
			for range 3 {
				n := h.newNIC(1, engine.TIRAttr{})
				ns = append(ns, n)
				for range 8 {
					n.rqs[0].recv(m, 0, 1000)
				}
			}
			tir := func(i int) engine.FlowDest { return engine.FlowDest{Type: engine.FlowToTIR, Number: ns[i].tir.Number} }
			last := must(h.CreateFlowTable(engine.FlowTableAttr{Level: 3, LogSize: 2}))
			second := must(h.CreateFlowTable(engine.FlowTableAttr{Level: 2, LogSize: 2, MissTable: last}))
			root := must(h.CreateFlowTable(engine.FlowTableAttr{Level: 1, LogSize: 4}))
			w.must(h.SetFlowTableRoot(engine.NICReceive, root))
			all := must(h.CreateFlowGroup(root, engine.FlowGroup{First: 8, Last: 9}))
			w.must(h.SetFlow(root, 9, engine.Flow{Group: all, Forward: true,
				Dests: []engine.FlowDest{{Type: engine.FlowToTable, Number: second}}}))
			group := func(table uint32, first uint32, fields ...prm.Field) (uint32, engine.FlowGroup) {
				g := engine.FlowGroup{First: first, Last: first + 1, Criteria: 1}
				for _, f := range fields {
					f.Set(g.Mask[:], ^uint64(0))
				}
				return must(h.CreateFlowGroup(table, g)), g
			}
			flow := func(table, place, g uint32, dests []engine.FlowDest, drop bool, set map[prm.Field]uint64) {
				f := engine.Flow{Group: g, Forward: !drop, Drop: drop, Dests: dests}
				for field, v := range set {
					field.Set(f.Match[:], v)
				}
				w.must(h.SetFlow(table, place, f))
			}
			ports, _ := group(root, 0, prm.FlowHeadersUDPDport, prm.FlowHeadersIPProtocol)
			flow(root, 0, ports, []engine.FlowDest{tir(0), tir(1)}, false,
				map[prm.Field]uint64{prm.FlowHeadersUDPDport: 1000, prm.FlowHeadersIPProtocol: 17})
			flow(root, 1, ports, nil, true, map[prm.Field]uint64{prm.FlowHeadersUDPDport: 1001, prm.FlowHeadersIPProtocol: 17})
			source, _ := group(second, 0, prm.FlowHeadersIPVersion, prm.FlowHeadersUDPSport)
			flow(second, 0, source, []engine.FlowDest{tir(1)}, false,
				map[prm.Field]uint64{prm.FlowHeadersIPVersion: 4, prm.FlowHeadersUDPSport: 5})
			rest := must(h.CreateFlowGroup(last, engine.FlowGroup{First: 0, Last: 0}))
			flow(last, 0, rest, []engine.FlowDest{tir(2)}, false, nil)

			for what, err := range map[string]error{
				"a table in use":              h.DestroyFlowTable(second),
				"a group in use":              h.DestroyFlowGroup(root, all),
				"a TIR in use":                h.DestroyTIR(ns[0].tir.Number),
				"an RQ in use":                h.DestroyRQ(ns[0].rqs[0].rq.Number),
				"a loop":                      h.SetFlowTableMiss(last, root),
				"an entry outside all groups": h.SetFlow(root, 15, engine.Flow{Group: all}),
				"an unknown TIR": h.SetFlow(root, 8,
					engine.Flow{Group: all, Dests: []engine.FlowDest{{Type: engine.FlowToTIR, Number: 99}}}),
				"an unknown flow":      h.DeleteFlow(root, 8),
				"a destination's kind": h.SetFlow(root, 8, engine.Flow{Group: all, Dests: []engine.FlowDest{{Type: 9}}}),
			} {
				if err == nil {
					w.t.Errorf("%s was accepted", what)
				}
			}
		})
		for _, x := range []struct {
			sport, dport uint16
			want         []int
		}{{5, 1000, []int{1, 1, 0}}, {5, 1001, []int{0, 0, 0}}, {5, 1002, []int{0, 1, 0}}, {6, 1002, []int{0, 0, 1}}} {
			w.do(func() { h.ReceiveFrame(udp(mac, mac, x.sport, x.dport, nil)) })
			var got []int
			for _, n := range ns {
				got = append(got, len(n.rqs[0].rcq.poll()))
			}
			if !slices.Equal(got, x.want) {
				w.t.Errorf("ports %d and %d: %v, want %v", x.sport, x.dport, got, x.want)
			}
		}
	})
}
