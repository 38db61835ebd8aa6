package engine_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// TestLocalLoopback checks that the port receives its own frames if enabled,
// except for those of a TIR's transport domain unless it accepts them.
func TestLocalLoopback(t *testing.T) {
	for _, x := range []struct {
		on, own bool
		domain  uint32 // of the TIR; that of the SQ is 5
		want    bool
	}{{false, true, 5, false}, {true, false, 5, false}, {true, true, 5, true}, {true, false, 6, true}} {
		run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
			h := w.hosts[0]
			mac := h.MAC()
			var n *nic
			w.do(func() {
				n = h.newNIC(1, engine.TIRAttr{TransportDomain: x.domain, OwnUnicast: x.own})
				n.m = h.register(2000, allRights)
				n.rqs[0].recv(n.m, 0, 1000)
				h.toTIR(mac[:], n.tir.Number)
				h.SetLocalLoopback(x.on, false)
				n.post(wqe{op: prm.OpcodeSend}.eth(0, udp(mac, mac, 1, 2, []byte("me"))))
			})
			n.scq.expect("sent", sent)
			if got := n.rqs[0].rcq.poll(); len(got) == 1 != x.want {
				w.t.Errorf("%+v: %d frames", x, len(got))
			}
			w.do(func() {
				w.must(h.SetFlowTableRoot(engine.NICReceive, 0))
				n.rqs[0].recv(n.m, 0, 1000)
				h.ReceiveFrame(udp(mac, mac, 1, 2, nil))
			})
			n.rqs[0].rcq.expect("without a root")
		})
	}
}

// TestEthernetErrors checks errors of raw Ethernet queues, and objects that
// cannot be created.
func TestEthernetErrors(t *testing.T) {
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		h := w.hosts[0]
		mac := h.MAC()
		var n *nic
		w.do(func() {
			n = h.newNIC(1, engine.TIRAttr{})
			m := h.register(2000, allRights)
			h.toTIR(mac[:], n.tir.Number)
			n.rqs[0].recv(m, 0, 20)
			n.rqs[0].recv(m, 0, 2000)
			h.ReceiveFrame(udp(mac, mac, 1, 2, nil))
			n.post(wqe{op: prm.OpcodeRead}.eth(0, nil), wqe{op: prm.OpcodeSend}.eth(0, nil).data(m, 0, 60))
		})
		n.rqs[0].rcq.expect("too long", recvError(1), unused)
		n.scq.expect("unsupported operation", sendError(2), flushed)
		if n.sq.State() != engine.QueueError || n.rqs[0].rq.State() != engine.QueueError {
			w.t.Errorf("states %d and %d", n.sq.State(), n.rqs[0].rq.State())
		}
		if len(h.events) != 2 || h.events[0].Queue != engine.QueueRQ || h.events[1].Queue != engine.QueueSQ {
			w.t.Errorf("events %+v", h.events)
		}
		if r := h.takeViolations(); len(r) != 1 || r[0] != engine.RuleOpcode {
			w.t.Errorf("violations %v", r)
		}
		w.do(func() {
			if err := h.ModifySQ(n.number, engine.QueueError, engine.QueueReady); !errors.Is(err, engine.ErrState) {
				w.t.Errorf("from error to ready: %v", err)
			}
			w.must(h.ModifySQ(n.number, engine.QueueError, engine.QueueReset))
			w.must(h.DestroySQ(n.number))
			for what, err := range map[string]error{
				"SQ":  second(h.CreateSQ(engine.SQAttr{})),
				"RQ":  second(h.CreateRQ(engine.RQAttr{})),
				"RQT": second(h.CreateRQT([]uint32{99})),
				"TIR": second(h.CreateTIR(engine.TIRAttr{RQ: 99})),
			} {
				if !errors.Is(err, engine.ErrResource) {
					w.t.Errorf("%s of nothing: %v", what, err)
				}
			}
		})
	})
}

func second[T any](_ T, err error) error { return err }

// TestIPv6 checks that the checksums of UDP over IPv6 are computed and
// verified.
func TestIPv6(t *testing.T) {
	run(t, 2, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		var a, b *nic
		w.do(func() {
			a, b = w.hosts[0].newNIC(1, engine.TIRAttr{}), w.hosts[1].newNIC(1, engine.TIRAttr{})
			m := b.h.register(2000, allRights)
			mac, from := b.h.MAC(), a.h.MAC()
			b.h.toTIR(mac[:], b.tir.Number)
			f := append(append(append([]byte{}, mac[:]...), from[:]...), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 11, 17, 64)
			f = append(append(f, pattern(32, 1)...), 0, 1, 0, 2, 0, 11, 0, 0, 'a', 'b', 'c')
			for _, flags := range []byte{0x80, 0} {
				b.rqs[0].recv(m, 0, 1000)
				a.post(wqe{op: prm.OpcodeSend}.eth(flags, f))
			}
		})
		got := b.rqs[0].rcq.poll()
		if len(got) != 2 {
			w.t.Fatalf("%d frames", len(got))
		}
		for i, e := range got { // the second has none
			if !prm.CQEL3OK.Is(e.raw) || prm.CQEL3HdrType.Get(e.raw) != 1 || prm.CQEL4HdrType.Get(e.raw) != 2 ||
				prm.CQEL4OK.Is(e.raw) != (i == 0) {
				w.t.Errorf("frame %d: % x", i, e.raw[28:32])
			}
		}
		a.scq.expect("sent", sent, sent)
	})
}

// TestHash checks that both directions of a connection have the same symmetric
// hash, and that the XOR hash is the inverted XOR.
func TestHash(t *testing.T) {
	for _, x := range []struct {
		fn        engine.HashFunction
		symmetric bool
		same      bool
	}{{engine.HashToeplitz, true, true}, {engine.HashToeplitz, false, false}, {engine.HashXOR8, false, true}} {
		run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
			h := w.hosts[0]
			mac := h.MAC()
			var n *nic
			w.do(func() {
				a := engine.TIRAttr{Indirect: true, Hash: x.fn, Symmetric: x.symmetric, UDP: true,
					Fields: engine.HashSrcIP | engine.HashDstIP | engine.HashSrcPort | engine.HashDstPort}
				copy(a.Key[:], pattern(40, 3))
				n = h.newNIC(1, a)
				m := h.register(2000, allRights)
				h.toTIR(mac[:], n.tir.Number)
				for range 2 {
					n.rqs[0].recv(m, 0, 1000)
				}
				f := udp(mac, mac, 0x1234, 0x5678, nil)
				back := slices.Clone(f)
				copy(back[26:], f[30:34])
				copy(back[30:], f[26:30])
				copy(back[34:], []byte{0x56, 0x78, 0x12, 0x34})
				h.ReceiveFrame(f)
				h.ReceiveFrame(back)
			})
			got := n.rqs[0].rcq.poll()
			if len(got) != 2 {
				w.t.Fatalf("%d frames", len(got))
			}
			a, b := prm.CQERSSHash.Get(got[0].raw), prm.CQERSSHash.Get(got[1].raw)
			if (a == b) != x.same || a == 0 {
				w.t.Errorf("function %d, symmetric %t: hashes %#x and %#x", x.fn, x.symmetric, a, b)
			}
			const sum = 0x12 ^ 0x34 ^ 0x56 ^ 0x78 ^ 10 ^ 1 ^ 10 ^ 2
			if x.fn == engine.HashXOR8 && a != ^uint64(sum)&0xff {
				w.t.Errorf("hash %#x, want %#x", a, ^uint64(sum)&0xff)
			}
		})
	}
}

// TestForeignFrames checks that the NIC receives frames for other addresses and
// RoCE packets that are not for the port, but no damaged RoCE packets.
func TestForeignFrames(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1, LinkLayer: engine.Ethernet}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		h := w.hosts[1]
		var n *nic
		w.do(func() {
			n = h.newNIC(1, engine.TIRAttr{})
			mac := h.MAC()
			h.toTIR(mac[:], n.tir.Number)
			m := h.register(4096, allRights)
			for range 8 {
				n.rqs[0].recv(m, 0, 2000)
			}
		})
		for name, x := range map[string]struct {
			to     byte
			change func(b []byte) []byte
			want   int
		}{
			"for another address": {9, func(b []byte) []byte { return b }, 1},
			"another port of UDP": {2, func(b []byte) []byte { b[57]++; return b }, 1},
			"a wrong ICRC":        {2, func(b []byte) []byte { b[len(b)-6] ^= 1; return b }, 0},
			"cut":                 {2, func(b []byte) []byte { return b[:len(b)-9] }, 0},
		} {
			r := &roce.Packet{Opcode: roce.RC | roce.SendOnly, DestQPN: p.b.number, PKey: 0xffff, Payload: make([]byte, 8)}
			r.Route = roce.Route{Version: roce.V2, SGID: gid(1), DGID: gid(x.to), DMAC: h.MAC(), HopLimit: 64,
				SourcePort: 0xc000}
			w.do(func() { h.ReceiveFrame(x.change(must(r.AppendFrame(nil)))) })
			if got := len(n.rqs[0].rcq.poll()); got != x.want {
				w.t.Errorf("%s: %d frames, want %d", name, got, x.want)
			}
		}
	})
}

// FuzzFrame receives arbitrary frames.
func FuzzFrame(f *testing.F) {
	mac, none := [6]byte{2, 0, 0, 0, 0, 1}, []wqe{}
	seed := func(frame []byte, ws []wqe) { f.Add(frame, fuzzRing(firstSQ, ws)) }
	memory := func(op uint8, inline, n int) []wqe {
		w := wqe{op: op}.eth(0xc0, tcp(mac, mac)[:inline])
		be.PutUint16(w.segments[6:], 100)
		return []wqe{w.seg(uint32(n), fuzzKey, fuzzAddress+uint64(inline))}
	}
	seed(udp(mac, [6]byte{2}, 1, 2, []byte("x")), none)
	seed(udp(mac, [6]byte{2}, 1, 4791, make([]byte, 40)), none)
	seed(tcp(mac, mac), memory(prm.OpcodeTSO, 0, 2000))
	seed(tcp(mac, mac), memory(prm.OpcodeTSO, 54, 2000))
	seed(tcp(mac, mac), memory(prm.OpcodeSend, 18, 100))
	f.Fuzz(func(t *testing.T, frame, ring []byte) { fuzzFrame(t, frame, ring) })
}

// firstSQ is the number of the first send queue: SQs follow the queue pairs.
const firstSQ = 0x40 + 1<<17

// TestFuzzFrame checks that the seed of the fuzzer is sent.
func TestFuzzFrame(t *testing.T) {
	mac := [6]byte{2, 0, 0, 0, 0, 1}
	for _, op := range []uint8{prm.OpcodeTSO, prm.OpcodeSend} {
		w := wqe{op: op}.eth(0xc0, nil)
		be.PutUint16(w.segments[6:], 100)
		got := fuzzFrame(t, tcp(mac, mac), fuzzRing(firstSQ, []wqe{w.seg(2000, fuzzKey, fuzzAddress)}))
		if len(got) != 1 || got[0].syndrome != 0 {
			t.Errorf("opcode %#x: %+v", op, got)
		}
	}
}

// fuzzFrame receives a frame at a NIC with the same frame in its memory and
// arbitrary WQEs in its ring.
func fuzzFrame(t testing.TB, frame, ring []byte) (all []cqe) {
	w := &world{t: t, less: 6}
	w.newLoop()
	h := w.add(engine.Config{LinkLayer: engine.Ethernet})
	var n *nic
	w.loop.Run(func() {
		h.fuzzKeys()
		h.SetLocalLoopback(true, true)
		n = h.newNIC(2, engine.TIRAttr{Indirect: true, Hash: engine.HashToeplitz, Fields: 15, Symmetric: true})
		root := must(h.CreateFlowTable(engine.FlowTableAttr{LogSize: 1}))
		g := must(h.CreateFlowGroup(root, engine.FlowGroup{}))
		w.must(h.SetFlowTableRoot(engine.NICReceive, root))
		w.must(h.SetFlow(root, 0, engine.Flow{Group: g, Forward: true,
			Dests: []engine.FlowDest{{Type: engine.FlowToTIR, Number: n.tir.Number}}}))
		m := h.register(2000, allRights)
		for _, q := range n.rqs {
			q.recv(m, 0, 2000)
		}
		copy(h.bytes(fuzzAddress, 4096), frame)
		for i := 0; i < len(ring) && i < int(n.sqSize)*64; i += 16 {
			copy(n.at(uint64(i), 16), ring[i:])
		}
		h.ReceiveFrame(slices.Clone(frame))
	})
	w.loop.Run(func() {
		be.PutUint32(h.bytes(n.record+4, 4), uint32(min(len(ring)/64, int(n.sqSize))))
		h.Store(16, 0x800, []byte{0, 0, 0, prm.OpcodeSend, 2, 0, 0x40, 1})
	})
	w.loop.Run(func() { all = n.scq.poll() })
	w.loop.Run(h.Reset)
	return all
}
