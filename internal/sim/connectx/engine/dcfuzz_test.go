package engine_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// dcInput supplies decisions from a fuzzer's input, to the test and to the device's timers.
type dcInput struct {
	mu sync.Mutex
	b  []byte
}

func (s *dcInput) more() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.b) > 0
}

func (s *dcInput) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return int(v)
}

// packet returns an arbitrary packet for a number, which is close to a valid one of DC. latest is a recent packet
// with that destination, or nil.
func (s *dcInput) packet(number uint32, key uint32, addr uint64, latest *roce.Packet) *roce.Packet {
	p := &roce.Packet{Opcode: roce.Opcode(s.next()), PKey: 0xffff, DestQPN: number, AckReq: s.next()&1 != 0}
	if s.next()%8 != 0 {
		p.Opcode = roce.DC.Of(p.Opcode & 0x1f)
	}
	p.Route.SLID, p.Route.DLID = uint16(1+s.next()&3), 2
	p.PSN = uint32(s.next()-8) & 0xffffff
	p.DC = roce.DCETH{Key: dcKey, Connection: uint64(s.next()), SrcQPN: uint32(s.next() & 3)}
	if latest != nil && s.next()&1 != 0 {
		p.DC, p.Route = latest.DC, latest.Route
		p.PSN = (latest.PSN + uint32(s.next()&7) - 3) & 0xffffff
		p.DC.Connection += uint64(s.next()&3) - 1
	}
	if s.next()%16 == 0 {
		p.DC.Key++
	}
	p.RETH = roce.RETH{VA: addr + uint64(s.next()), RKey: key, Length: uint32(s.next()) << (s.next() & 15)}
	p.Atomic = roce.AtomicETH{VA: addr + uint64(s.next()), RKey: key, Swap: uint64(s.next())}
	p.AETH.Syndrome, p.InvRKey = uint8(s.next()), key
	if p.Opcode.Carries() {
		p.Payload = make([]byte, []int{0, 1, 4, 256, 1024, 1024, 1024, 4096}[s.next()&7])
	}
	return p
}

// FuzzDCPackets sends arbitrary packets to a DCT and to a DCI that are in use, and modifies, drains and destroys
// them. The device must not panic. Afterwards a new initiator must reach a new target.
func FuzzDCPackets(f *testing.F) {
	for i := range uint64(100) {
		b := make([]byte, 500)
		r := rand.New(rand.NewPCG(i, 1))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, loop: &loop.Loop{}, relaxed: true, less: 4}
			for range 2 {
				w.add(engine.Config{CQEVersion: 1})
			}
			fuzzDC(&dcInput{b: b[:min(len(b), 2000)]}, newDCWorld(w, engine.QPAttr{LogStreams: 2, LogErrored: 2}))
			w.loop.Run(func() {
				for _, h := range w.hosts {
					h.Reset()
				}
			})
		})
	})
}

func fuzzDC(s *dcInput, w *dcWorld) {
	var latest sync.Map // packets by destination
	w.lose = func(p *roce.Packet) bool {
		latest.Store(p.DestQPN, p)
		return s.next()%8 == 0
	}
	for s.more() {
		to := w.to[s.next()&1]
		switch s.next() & 15 {
		case 0, 1, 2, 3, 4, 5:
			h, number, m := w.b, to.number, w.bm
			if s.next()&3 == 0 {
				h, number, m = w.a, w.q.number, w.am
			}
			recent, _ := latest.Load(number)
			last, _ := recent.(*roce.Packet)
			p := s.packet(number, m.Key(), m.addr, last)
			w.loop.Run(func() { h.ReceivePacket(p) })
		case 6, 7, 8, 9:
			op := []uint8{prm.OpcodeSend, prm.OpcodeWrite, prm.OpcodeRead, prm.OpcodeAtomicFA}[s.next()&3]
			x, n := wqe{op: op}.dc(to), 1+s.next()*16
			if op != prm.OpcodeSend {
				x = x.raddr(w.bm, 5)
			}
			if op == prm.OpcodeAtomicFA {
				x, n = x.words(1, 0), 8
			}
			w.loop.Run(func() { w.q.stream(uint16(s.next()&3), x.data(w.am, 0, n)) })
		case 10, 11:
			w.loop.Run(func() { to.srq.recv(w.bm, 0, s.next()*16+1) })
		case 12:
			<-time.After(time.Duration(s.next()) << (s.next() & 23))
			synctest.Wait()
		case 13:
			w.loop.Run(w.recoverNow)
		case 14:
			w.loop.Run(func() { _ = w.a.ResetStream(w.q.number, uint16(s.next()&3)) }) // it may not have failed
		case 15:
			end := []func(uint32) error{w.b.ArmDCT, w.b.DrainDCT, w.b.DestroyDCT}[s.next()%3]
			w.loop.Run(func() { _ = end(to.number) }) // it may be drained or destroyed
		}
	}
	w.lose = nil
	w.later(time.Minute)
	w.do(func() {
		w.q = w.a.newDCI(engine.QPAttr{})
		w.to[0] = w.b.newDCT(engine.QPAttr{})
	})
	w.works("a new initiator and a new target", w.to[0])
}

// TestDCConnections checks that connections without end of many initiators do not use up the device, and that the
// idle ones make room.
func TestDCConnections(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(world *world) {
		w := newDCWorld(world, engine.QPAttr{})
		to := w.to[0]
		packet := func(i int, op roce.Opcode) *roce.Packet {
			p := &roce.Packet{Opcode: roce.DC.Of(op), PKey: 0xffff, DestQPN: to.number,
				DC: roce.DCETH{Key: dcKey, Connection: 1, SrcQPN: uint32(i)}}
			p.Route.SLID = 1
			if p.Opcode.Carries() {
				p.Payload = make([]byte, 1024)
				p.RETH = roce.RETH{VA: w.bm.addr, RKey: w.bm.Key(), Length: 2048}
			}
			return p
		}
		send := func(first, n int, op roce.Opcode) {
			w.do(func() {
				for i := range n {
					w.b.ReceivePacket(packet(0x1000+first+i, op))
				}
			})
		}
		send(0, 5000, roce.ReadRequest) // idle again at once
		w.works("after 5000 idle connections", to)
		send(5000, 5000, roce.WriteFirst) // in a message that does not end
		w.do(func() {
			to.srq.recv(w.bm, 0, 100)
			w.q.post(wqe{op: prm.OpcodeSend}.dc(to).inline([]byte("hello")))
		})
		w.later(10 * time.Second)
		w.q.scq.poll()
		w.do(func() { w.must(w.b.DestroyDCT(to.number)) })
		w.recover()
		w.works("after their DCT", w.to[1])
	})
}
