package transport

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// slow delays the packets of a host.
func slow(who int, d time.Duration) func(int, *roce.Packet) []time.Duration {
	return func(from int, p *roce.Packet) []time.Duration {
		if from == who {
			return []time.Duration{d}
		}
		return []time.Duration{0}
	}
}

// TestReadLimit checks that the number of outstanding READs and atomics does
// not exceed the limit, and that requests behind them do not wait.
func TestReadLimit(t *testing.T) {
	for _, limit := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, RC, func(_ int, c *Config) { c.MaxInitiate, c.AckTimeout = limit, 20 })
			w.fate = slow(1, time.Millisecond)
			w.hosts[1].memory[1] = make([]byte, 1000)
			for range 5 {
				w.post(0, request(Read, 1000, 1), request(FetchAdd, 8, 1))
			}
			w.post(0, request(Write, 10, 1))
			for round := range 10 {
				w.loop.Run(func() {
					sent := w.seen["0 RC_READ_REQUEST"] + w.seen["0 RC_FETCH_ADD"]
					if done := len(w.hosts[0].done); sent-min(done, 10) > limit {
						t.Errorf("round %d: %d outstanding, want at most %d", round, sent-done, limit)
					}
				})
				w.pass(time.Millisecond)
			}
			w.pass(time.Second)
			w.ends(0, OK, OK, OK, OK, OK, OK, OK, OK, OK, OK, OK)
		})
	}
}

// TestTooManyReads checks that a peer that exceeds the limit is refused.
func TestTooManyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, func(i int, c *Config) { c.MaxInitiate, c.MaxRespond = 4, 3 })
		w.hosts[1].memory[1] = make([]byte, 100000)
		for range 4 {
			w.hosts[0].posted = append(w.hosts[0].posted, request(Read, 100000, 1))
		}
		w.post(0)
		w.pass(time.Second)
		w.ends(0, OK, OK, OK, RemoteInvalidRequest)
		w.wantEvents(1, "broken 1")
	})
}

// TestFence checks that a fenced request waits for READs and atomics and an
// unfenced one does not.
func TestFence(t *testing.T) {
	for _, fence := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, RC, func(_ int, c *Config) { c.AckTimeout = 20 })
			w.fate = slow(1, time.Millisecond)
			w.hosts[1].memory[1] = make([]byte, 1000)
			write, local := request(Write, 10, 1), &Request{Op: Local, Fence: fence}
			write.Fence = fence
			w.post(0, request(Read, 600, 1), write, request(FetchAdd, 8, 1), local)
			w.pass(time.Microsecond)
			w.loop.Run(func() {
				if sent := w.seen["0 RC_WRITE_ONLY"] == 1; sent == fence {
					t.Errorf("fence %v: sent %v", fence, sent)
				}
				if done := len(w.hosts[0].executed) == 1; done == fence {
					t.Errorf("fence %v: executed %v", fence, done)
				}
			})
			w.pass(time.Second)
			w.ends(0, OK, OK, OK, OK)
		})
	}
}

// TestLocalOrder checks that local operations complete in order.
func TestLocalOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, func(_ int, c *Config) { c.AckTimeout = 20 })
		w.fate = slow(1, time.Millisecond)
		w.receive(1, 300, 1)
		w.post(0, &Request{Op: Local}, send(300), &Request{Op: Local}, send(1), &Request{Op: Local})
		w.pass(time.Microsecond)
		w.ends(0, OK)
		w.pass(time.Second)
		w.ends(0, OK, OK, OK, OK, OK)
		w.idle()
	})
}

// TestWindow checks that a sender without acknowledgments stops and has
// requested some.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, func(_ int, c *Config) { c.AckTimeout = 0 })
		w.fate = drop(1)
		asked := 0
		w.fate = func(from int, p *roce.Packet) []time.Duration {
			if from == 0 && p.AckReq {
				asked++
			}
			return nil
		}
		w.post(0, send(1000*256))
		w.pass(time.Second)
		w.loop.Run(func() {
			n := w.seen["0 RC_SEND_FIRST"] + w.seen["0 RC_SEND_MIDDLE"]
			if n != window || asked != window/ackEvery {
				t.Errorf("%d packets, %d of them with AckReq; want %d and %d", n, asked, window, window/ackEvery)
			}
		})
	})
}

// TestDrain checks that in SQD requests that have begun complete, no other
// request begins, and one event is reported.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, func(_ int, c *Config) { c.AckTimeout, c.MaxInitiate = 20, 1 })
		w.fate = slow(1, time.Millisecond)
		w.hosts[1].memory[1] = make([]byte, 1000)
		w.post(0, request(Write, 1000, 1), request(Read, 10, 1), request(Read, 10, 1), request(Write, 10, 1))
		w.pass(time.Microsecond)
		a := w.hosts[0]
		w.loop.Run(func() { a.e.SetState(SQD) })
		w.wantEvents(0)
		w.pass(time.Second)
		w.wantEvents(0, "drained")
		w.ends(0, OK, OK)
		w.post(0, request(Write, 10, 1))
		w.pass(time.Second)
		w.ends(0, OK, OK)
		w.loop.Run(func() { a.e.SetState(RTS) })
		w.pass(time.Second)
		w.ends(0, OK, OK, OK, OK, OK)
		w.loop.Run(func() { a.e.SetState(SQD) })
		w.pass(time.Second)
		w.wantEvents(0, "drained", "drained")
		w.idle()
	})
}

// TestTakeBack checks that TakeBack returns outstanding requests in order, and
// that the endpoint can be used again.
func TestTakeBack(t *testing.T) {
	for _, state := range []State{Reset, Err} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, RC, func(_ int, c *Config) { c.MaxInitiate = 1 })
			w.fate = drop(1)
			a, b := w.hosts[0], w.hosts[1]
			b.memory[1] = make([]byte, 1000)
			want := []*Request{request(Write, 1000, 1), request(Read, 10, 1), {Op: Local}, request(Read, 10, 1),
				request(Write, 1, 1)}
			w.post(0, want...)
			w.receive(1, 1000)
			w.loop.Run(func() { // half a message for the other host
				b.e.Receive(&roce.Packet{Opcode: roce.SendFirst, PSN: 105, PKey: 0xFFFF, Payload: make([]byte, 256)})
			})
			w.pass(time.Millisecond)
			w.loop.Run(func() {
				a.e.SetState(state)
				got, rcs := a.e.TakeBack()
				if !equal(append(got, a.posted...), want) || len(rcs) != 0 {
					t.Errorf("taken back: %v, %v", got, rcs)
				}
				a.posted = nil
				taken := b.e.responder.taken
				b.e.SetState(state)
				if got, rcs := b.e.TakeBack(); len(got) != 0 || len(rcs) != 1 || rcs[0] != taken || taken == nil {
					t.Errorf("taken back of the receiver: %v, %v", got, rcs)
				}
				if got, rcs := b.e.TakeBack(); len(got) != 0 || len(rcs) != 0 {
					t.Error("taken back twice")
				}
				a.e.Kick()
				b.e.Receive(&roce.Packet{Opcode: roce.SendOnly, PSN: 106, PKey: 0xFFFF, AckReq: true})
			})
			before := len(w.log)
			w.pass(time.Minute)
			w.idle()
			if len(w.log) != before {
				t.Error("a packet after the end")
			}
			w.fate = nil
			w.loop.Run(func() {
				for _, h := range w.hosts {
					for _, s := range []State{Reset, Init, RTR, RTS} {
						h.e.SetState(s)
					}
				}
			})
			w.post(0, request(Write, 1000, 1), request(Read, 1000, 1))
			w.pass(time.Second)
			w.ends(0, OK, OK)
		})
	}
}

// TestEstablished checks that the first packet in RTR is reported, once.
func TestEstablished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, nil)
		b := w.hosts[1]
		w.loop.Run(func() { b.e.SetState(Reset); b.e.SetState(Init); b.e.SetState(RTR) })
		w.receive(1, 1, 1)
		w.post(0, send(1), send(1))
		w.pass(time.Second)
		w.wantEvents(1, "established")
		w.ends(0, OK, OK)
		w.post(1, send(1))
		w.pass(time.Second)
		w.ends(1) // RTR does not send
		w.receive(0, 1)
		w.loop.Run(func() { b.e.SetState(RTS) })
		w.pass(time.Second)
		w.ends(1, OK)
	})
}

// TestMigration checks that an armed endpoint without retries left changes its
// path, and that the peer follows.
func TestMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, func(i int, c *Config) {
			c.Migration, c.RetryCount = Rearm, 1
			c.Path.DLID, c.AltPath.DLID = 1, 2
			c.AltPath.DGID = [16]byte{10: 0xFF, 11: 0xFF, 15: byte(2 - i)} // as on the wire
		})
		w.receive(1, 1, 1, 1)
		w.receive(0, 1)
		w.post(0, send(1)) // arms both
		w.pass(time.Second)
		for i, h := range w.hosts {
			if m := h.e.Config().Migration; m != Armed {
				t.Errorf("host %d is in migration state %d", i, m)
			}
		}
		broken := true
		w.fate = func(from int, p *roce.Packet) []time.Duration {
			if broken && !p.MigReq {
				return nil
			}
			return []time.Duration{0}
		}
		w.post(0, send(1))
		w.pass(time.Second)
		w.ends(0, OK, OK)
		w.wantEvents(0, "migrated true")
		w.wantEvents(1, "migrated true")
		for i, h := range w.hosts {
			if c := h.e.Config(); c.Path.DLID != 2 || c.Migration != Migrated {
				t.Errorf("host %d: %+v", i, c)
			}
		}
		w.fate = drop(0) // the second path fails, too
		w.post(0, send(1))
		w.pass(time.Second)
		w.ends(0, OK, OK, TransportRetry)
	})
}

// TestWrongMigration checks that a migration of the peer to an unknown path is
// reported once and not followed.
func TestWrongMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, func(i int, c *Config) { c.Migration, c.AltPath.DLID = Armed, 7 })
		for _, psn := range []uint32{100, 100} {
			w.inject(1, &roce.Packet{Opcode: roce.SendOnly, PSN: psn, MigReq: true, Route: roce.Route{SLID: 8}})
		}
		w.wantEvents(1, "migrated false")
		w.inject(1, &roce.Packet{Opcode: roce.SendOnly, PSN: 100, MigReq: true, Route: roce.Route{SLID: 7}})
		w.wantEvents(1, "migrated false", "migrated true")
	})
}

// TestRepeatedReadFails checks that a READ fails with an access error if its
// response was lost and its memory was invalidated before it was repeated.
// Requests before it succeed.
func TestRepeatedReadFails(t *testing.T) {
	for lost := uint32(101); lost <= 104; lost++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, RC, nil)
			b := w.hosts[1]
			b.memory[1], b.memory[2] = make([]byte, 1000), make([]byte, 1)
			w.fate = func(from int, p *roce.Packet) []time.Duration {
				if from == 1 && p.PSN == lost && p.Opcode != roce.Acknowledge {
					delete(b.memory, 1)
					return nil
				}
				return []time.Duration{0}
			}
			w.post(0, request(Write, 1, 2), request(Read, 1000, 1), request(Write, 1, 2))
			w.pass(time.Second)
			w.ends(0, OK, RemoteAccess, Flushed)
			w.wantEvents(1, "broken 2")
			w.idle()
		})
	}
}

// TestRepeatedReads checks that a READ of which a response was lost continues
// there, and that an atomic is not carried out twice.
func TestRepeatedReads(t *testing.T) {
	for lost := 101; lost <= 106; lost++ {
		for _, again := range []bool{false, true} { // repeat requests on the wire
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, RC, nil)
				b := w.hosts[1]
				b.memory[1] = noise(3, 1200)
				b.memory[2] = make([]byte, 8)
				gone := false
				w.fate = func(from int, p *roce.Packet) []time.Duration {
					if from == 1 && p.PSN == uint32(lost) && !gone {
						gone = true
						return nil
					}
					if from == 0 && again {
						return []time.Duration{0, 20 * time.Microsecond}
					}
					return []time.Duration{0}
				}
				read, add := request(Read, 1200, 1), request(FetchAdd, 8, 2)
				add.Operand[0] = 1
				b.memory[3] = make([]byte, 1)
				w.post(0, request(Write, 1, 3), read, add)
				w.pass(time.Second)
				w.ends(0, OK, OK, OK)
				if fmt.Sprint(buffer(read.WQE)) != fmt.Sprint(b.memory[1]) {
					t.Errorf("lost %d: the READ differs", lost)
				}
				if b.memory[2][0] != 1 {
					t.Errorf("lost %d: the atomic was done %d times", lost, b.memory[2][0])
				}
				w.idle()
			})
		}
	}
}
