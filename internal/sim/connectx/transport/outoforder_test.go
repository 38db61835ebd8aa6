package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// outOfOrder returns the change of a configuration for lots of n packets.
func outOfOrder(n int) func(int, *Config) {
	return func(_ int, c *Config) { c.OutOfOrder, c.Reorder, c.AckTimeout = true, n, 14 }
}

// feed passes packets to a host, in the given order.
func (w *world) feed(i int, packets ...*roce.Packet) {
	w.loop.Run(func() {
		for _, p := range packets {
			p.PKey = 0xFFFF
			w.hosts[i].e.Receive(p)
		}
	})
}

// TestOutOfOrderReceives checks that messages use receive requests in the order of arrival, that they complete in
// the order of PSNs, and that nothing is acknowledged before its turn.
func TestOutOfOrderReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, outOfOrder(0))
		w.receive(1, 600, 600, 600, 600)
		b := w.hosts[1]
		receives := append([]*Receive(nil), b.recvs...)
		long := noise(1, 300)
		w.feed(1, &roce.Packet{Opcode: roce.SendOnly, PSN: 103, Payload: []byte("third"), AckReq: true},
			&roce.Packet{Opcode: roce.SendLast, PSN: 102, Payload: long[256:], AckReq: true},
			&roce.Packet{Opcode: roce.SendFirst, PSN: 101, Payload: long[:256]},
			&roce.Packet{Opcode: roce.SendOnly, PSN: 104, Payload: []byte("fourth"), AckReq: true})
		w.loop.Run(func() {
			for i, want := range []string{"third", string(long), "fourth"} {
				if got := buffer(receives[i].WQE)[:len(want)]; string(got) != want {
					t.Errorf("receive %d has %q, want %q", i, got, want)
				}
			}
			if len(b.arrived) != 0 || w.seen["1 RC_ACKNOWLEDGE"] != 0 {
				t.Errorf("%d messages arrived before the first, sent %v", len(b.arrived), w.seen)
			}
		})
		w.feed(1, &roce.Packet{Opcode: roce.SendOnly, PSN: 105, Payload: []byte("fifth"), AckReq: true})
		w.loop.Run(func() {
			if len(b.recvs) != 1 {
				t.Errorf("%d receives are left, want 1 for the missing message", len(b.recvs))
			}
		})
		w.feed(1, &roce.Packet{Opcode: roce.SendOnly, PSN: 100, Payload: []byte("first"), AckReq: true})
		w.loop.Run(func() {
			for i, use := range []int{3, 1, 0, 2} {
				if len(b.arrived) != 4 || b.arrived[i].rc != receives[use] || b.arrived[i].m.Syndrome != OK {
					t.Errorf("arrived: %+v; message %d should use receive %d", b.arrived, i, use)
				}
			}
		})
		w.pass(time.Millisecond)
		w.loop.Run(func() {
			if p := w.last[1]; p == nil || p.PSN != 105 || p.AETH.Kind() != roce.RNRNak {
				t.Errorf("the last message has no receive, and the response is %+v", p)
			}
		})
	})
}

// TestOutOfOrderWrites checks that the packets of WRITEs are stored as soon as the message's first packet is known,
// and that a READ and an atomic wait for their turn.
func TestOutOfOrderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, outOfOrder(0))
		b := w.hosts[1]
		b.memory[1] = make([]byte, 1000)
		data := noise(2, 700)
		w.feed(1,
			&roce.Packet{Opcode: roce.FetchAdd, PSN: 104, Atomic: roce.AtomicETH{VA: 992, RKey: 1, Swap: 1}, AckReq: true},
			&roce.Packet{Opcode: roce.WriteLast, PSN: 103, Payload: data[512:], AckReq: true},
			&roce.Packet{Opcode: roce.WriteFirst, PSN: 101, Payload: data[:256], RETH: roce.RETH{RKey: 1, VA: 8, Length: 700}})
		stored := func(from, to int) bool { return bytes.Equal(b.memory[1][8+from:8+to], data[from:to]) }
		w.loop.Run(func() {
			if !stored(0, 256) || stored(512, 700) || b.memory[1][992] != 0 {
				t.Error("the memory is not as expected before the middle packet and the first message")
			}
		})
		w.feed(1, &roce.Packet{Opcode: roce.WriteMiddle, PSN: 102, Payload: data[256:512]})
		w.loop.Run(func() {
			if !stored(0, 700) || b.memory[1][992] != 0 {
				t.Error("the WRITE is not stored, or the atomic has not waited")
			}
			copy(b.memory[1][8:], "other") // a packet is stored once
		})
		w.feed(1, &roce.Packet{Opcode: roce.WriteOnly, PSN: 100, Payload: []byte{1}, RETH: roce.RETH{RKey: 1, Length: 1}})
		w.pass(time.Millisecond)
		w.loop.Run(func() {
			if b.memory[1][992] != 1 || !bytes.HasPrefix(b.memory[1][8:], []byte("other")) {
				t.Error("the atomic has not happened, or the WRITE was stored again")
			}
		})
	})
}

// TestOutOfOrderErrors checks that errors of packets that are ahead are reported in their turn.
func TestOutOfOrderErrors(t *testing.T) {
	ahead := map[string]*roce.Packet{
		"a message that is too long": {Opcode: roce.SendOnly, Payload: make([]byte, 200)},
		"a WRITE without a key": {Opcode: roce.WriteOnly, Payload: []byte{1},
			RETH: roce.RETH{RKey: 77, Length: 1}},
		"a WRITE of a wrong length": {Opcode: roce.WriteOnly, Payload: []byte{1}, RETH: roce.RETH{RKey: 1, Length: 2}},
		"a packet without a first":  {Opcode: roce.WriteLast, Payload: []byte{1}},
	}
	for name, p := range ahead {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, RC, outOfOrder(0))
				b := w.hosts[1]
				b.memory[1] = make([]byte, 100)
				w.receive(1, 100, 100, 100)
				p.PSN, p.AckReq = 101, true
				w.feed(1, p)
				w.pass(time.Millisecond)
				w.loop.Run(func() {
					if len(b.arrived)+len(b.events) > 1 || b.e.State() == Err {
						t.Errorf("an early end: %v, %v", b.arrived, b.events)
					}
				})
				w.feed(1, &roce.Packet{Opcode: roce.SendOnly, PSN: 100, Payload: []byte("ok")})
				w.pass(time.Millisecond)
				w.loop.Run(func() {
					if len(b.arrived) != 3 || b.arrived[0].m.Syndrome != OK {
						t.Errorf("arrived: %+v", b.arrived)
					}
					if k := w.last[1].AETH.Kind(); k != roce.Nak {
						t.Errorf("the last packet is of kind %v", k)
					}
				})
			})
		})
	}
}

// TestOutOfOrderFlush checks that the receive requests of all unfinished messages return to their owner.
func TestOutOfOrderFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, outOfOrder(0))
		w.receive(1, 10, 10, 10, 10)
		w.feed(1, &roce.Packet{Opcode: roce.SendOnly, PSN: 102, Payload: []byte{1}},
			&roce.Packet{Opcode: roce.SendOnly, PSN: 101, Payload: []byte{1}})
		w.loop.Run(func() {
			b := w.hosts[1]
			if len(b.recvs) != 2 {
				t.Errorf("%d receives are left", len(b.recvs))
			}
			b.flush(Err)
			if len(b.arrived) != 4 {
				t.Errorf("%d receives are flushed", len(b.arrived))
			}
		})
	})
}

// TestOutOfOrderWithin checks that a message that begins within another one is refused, and that the receive requests
// of both return to their owner.
func TestOutOfOrderWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, outOfOrder(0))
		b := w.hosts[1]
		w.receive(1, 600, 600, 600)
		w.feed(1, &roce.Packet{Opcode: roce.SendOnly, PSN: 101, Payload: []byte{1}},
			&roce.Packet{Opcode: roce.SendFirst, PSN: 100, Payload: make([]byte, 256)})
		w.pass(time.Millisecond)
		w.loop.Run(func() {
			b.flush(Err)
			if len(b.arrived) != 3 {
				t.Errorf("%d receives complete, want 3: %+v", len(b.arrived), b.arrived)
			}
		})
	})
}

// TestOutOfOrderTraffic exchanges random messages in lots of several sizes, without and with losses, and checks the
// data, the order of completions and that packets really overtake others.
func TestOutOfOrderTraffic(t *testing.T) {
	for _, kind := range []Type{RC, XRCInitiator} {
		for _, lot := range []int{1, 2, 4, 32} {
			for _, lossy := range []bool{false, true} {
				t.Run(fmt.Sprint(kind, lot, lossy), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { exchangeOutOfOrder(t, kind, lot, lossy) })
				})
			}
		}
	}
}

func exchangeOutOfOrder(t *testing.T, kind Type, lot int, lossy bool) {
	w := newWorld(t, kind, outOfOrder(lot))
	src := rand.New(rand.NewPCG(uint64(lot), 1))
	b, newest, overtaken := w.hosts[1], uint32(0), 0
	w.fate = func(from int, p *roce.Packet) []time.Duration {
		if from == 0 {
			if p.PSN < newest {
				overtaken++
			}
			newest = max(newest, p.PSN)
		}
		if lossy && src.IntN(20) == 0 {
			return nil
		}
		return []time.Duration{0}
	}
	b.memory[1] = make([]byte, 1<<16)
	var posted []*Request
	messages := 0
	for i := range 100 {
		n := src.IntN(1500)
		r := &Request{Op: Send, Length: uint32(n), WQE: noise(uint64(i), n)}
		switch src.IntN(4) {
		case 0:
			r.Op = WriteImm
			messages++
		case 1:
			r.Op = Write
		case 2:
			r.Op = Read
		default:
			messages++
		}
		r.RKey = 1
		if r.RemoteAddr = uint64(i * 600); n > 600 && r.Op != Send {
			r.Length = 600
		}
		posted = append(posted, r)
	}
	for range messages {
		w.receive(1, 1500)
	}
	w.post(0, posted...)
	w.pass(time.Minute)
	w.loop.Run(func() {
		if len(w.hosts[0].done) != len(posted) || len(b.arrived) != messages {
			t.Fatalf("%d of %d requests are done, %d of %d messages arrived", len(w.hosts[0].done), len(posted),
				len(b.arrived), messages)
		}
		next := 0
		for i, r := range posted {
			if o := w.hosts[0].done[i]; o.r != r || o.s != OK {
				t.Errorf("request %d: %+v", i, o)
			}
			checkOutOfOrder(t, b, r, &next)
		}
	})
	if !lossy && lot > 1 != (overtaken > 0) {
		t.Errorf("%d packets were overtaken with lots of %d", overtaken, lot)
	}
}

// checkOutOfOrder checks the data of a request at the receiver, and its message, which is the next one.
func checkOutOfOrder(t *testing.T, b *host, r *Request, next *int) {
	data := buffer(r.WQE)[:r.Length]
	switch r.Op {
	case Write, WriteImm:
		if !bytes.Equal(b.memory[1][r.RemoteAddr:][:r.Length], data) {
			t.Errorf("a WRITE to %d has stored something else", r.RemoteAddr)
		}
	}
	if r.Op == Send || r.Op == WriteImm {
		a := b.arrived[*next]
		*next++
		if a.m.Op != r.Op || a.m.Length != r.Length || r.Op == Send && !bytes.Equal(buffer(a.rc.WQE)[:r.Length], data) {
			t.Errorf("message %d is %+v, want %v of %d bytes", *next-1, a.m, r.Op, r.Length)
		}
	}
}
