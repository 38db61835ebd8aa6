package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// A script supplies decisions from a fuzzer's input.
type script struct{ b []byte }

func (s *script) next() int {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return int(v)
}

func (s *script) end() bool { return len(s.b) == 0 }

// packet returns an arbitrary packet that is close to a valid one.
func (s *script) packet(service roce.Opcode, psn uint32) *roce.Packet {
	op := roce.Opcode(s.next())
	if s.next()%8 != 0 {
		op = service.Of(op & 0x1F)
	}
	p := &roce.Packet{Opcode: op, PKey: 0xFFFF, AckReq: s.next()&1 != 0, PSN: forward(psn, s.next()-128),
		MigReq: s.next()&1 != 0}
	p.RETH = roce.RETH{VA: uint64(s.next()), RKey: uint32(s.next() & 3), Length: uint32(s.next()) << (s.next() & 31)}
	p.Atomic = roce.AtomicETH{VA: uint64(s.next()), RKey: uint32(s.next() & 3)}
	p.AETH.Syndrome = uint8(s.next())
	p.DETH.QKey, p.InvRKey = 0x11111111, uint32(s.next()&3)
	if n := []int{0, 1, 4, 255, 256, 257, 300, 4096}[s.next()&7]; n > 0 && op.Carries() {
		p.Payload = make([]byte, n)
	}
	return p
}

// FuzzPackets injects arbitrary packets into a busy requester and responder, in
// any state, over a lossy wire. Afterwards a new connection must work.
func FuzzPackets(f *testing.F) {
	for i := range 200 {
		f.Add(uint8(i), noise(uint64(i), 300))
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		synctest.Test(t, func(t *testing.T) { exchange(t, Type(kind%5), kind >= 128, &script{b[:min(len(b), 2000)]}) })
	})
}

func exchange(t *testing.T, kind Type, outOfOrder bool, s *script) {
	w := newWorld(t, kind, func(i int, c *Config) {
		c.MaxRespond, c.MaxInitiate = s.next()&3, s.next()&3
		c.OutOfOrder, c.Reorder = outOfOrder, 3
		c.RetryCount, c.RNRRetry, c.AckTimeout, c.Migration = uint8(s.next()&7), uint8(s.next()&7), uint8(s.next()&15),
			MigrationState(s.next()%3)
	})
	w.quiet = true
	for i, h := range w.hosts {
		h.readFaultAt = s.next()
		for k := range uint32(3) {
			h.memory[k+1] = make([]byte, 1000)
		}
		w.receive(i, 0, 40, 300, 1000, 5000)
	}
	lossy := byte(s.next() & 63)
	n := byte(0)
	w.fate = func(int, *roce.Packet) []time.Duration {
		if n++; n < lossy {
			return nil
		}
		return []time.Duration{0}
	}
	for !s.end() {
		h := w.hosts[s.next()&1]
		switch s.next() & 15 {
		case 0, 1, 2, 3, 4, 5:
			w.loop.Run(func() {
				send, recv := h.e.PSN()
				for _, psn := range []uint32{send, recv, h.e.sender.unacked} {
					h.e.Receive(s.packet(h.e.service(), psn))
				}
			})
		case 6, 7, 8:
			op := Op(s.next() % 12)
			r := &Request{Op: op, Length: uint32(s.next() * 8), RKey: uint32(s.next() & 3), RemoteAddr: uint64(s.next()),
				Fence: s.next()&1 != 0, WQE: make([]byte, 2048)}
			if s.next()&1 == 0 {
				r.Dest = &Dest{QKey: 0x11111111}
			}
			w.loop.Run(func() { h.posted = append(h.posted, r); h.e.Kick() })
		case 9:
			w.pass(time.Duration(s.next()) << (s.next() & 19))
		case 10:
			state := State(s.next() % 7)
			w.loop.Run(func() {
				if state == Reset || state == Err || state == SQE {
					h.flush(state)
				} else if state == Init && h.e.State() != Reset || state > RTR && h.e.State() < RTR {
					return
				}
				h.e.SetState(state)
			})
		case 11:
			w.loop.Run(func() { c := h.e.Config(); c.MTU, c.MaxRespond = 256<<(s.next()&3), s.next()&3; h.e.Modify(c) })
		default:
			w.loop.Run(func() {})
		}
		w.bounded()
	}
	w.honest(kind)
}

// bounded checks that no queue has grown without limit.
func (w *world) bounded() {
	w.loop.Run(func() {
		for i, h := range w.hosts {
			r := &h.e.responder
			if len(r.memory) > 4 || len(r.responses) > 2*len(r.memory)+2 {
				w.t.Errorf("host %d has %d resources and %d responses", i, len(r.memory), len(r.responses))
			}
		}
	})
}

// honest resets both hosts, and transfers a message each way.
func (w *world) honest(kind Type) {
	w.fate = nil
	w.loop.Run(func() {
		for _, h := range w.hosts {
			h.flush(Err)
			h.flush(Reset)
			h.done, h.arrived, h.recvs, h.posted = nil, nil, []*Receive{{WQE: make([]byte, 1000)}}, nil
			h.readFaultAt, h.reads = 0, 0
			c := plain(kind)
			if h == w.hosts[1] && kind == XRCInitiator {
				c.Type = XRCTarget
			}
			h.e.Modify(c)
		}
	})
	w.pass(10 * time.Minute)
	w.idle()
	w.loop.Run(func() {
		for _, h := range w.hosts {
			for _, s := range []State{Init, RTR, RTS} {
				h.e.SetState(s)
			}
			if h.e.config.Type == XRCTarget {
				continue
			}
			r := send(200)
			r.Dest = &Dest{QKey: 0x11111111}
			h.posted = []*Request{r}
			h.e.Kick()
		}
	})
	w.pass(time.Second)
	for i, h := range w.hosts {
		if h.e.config.Type != XRCTarget && (len(h.done) != 1 || h.done[0].s != OK) {
			w.t.Errorf("host %d: done %+v", i, h.done)
		}
	}
}
