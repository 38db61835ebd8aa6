package transport

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// TestUC checks that a lost packet loses its message, and that the next message
// uses the same receive request.
func TestUC(t *testing.T) {
	for lost := -1; lost < 12; lost++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, UC, nil)
			a, b := w.hosts[0], w.hosts[1]
			b.memory[1] = make([]byte, 1000)
			n := -1
			w.fate = func(from int, p *roce.Packet) []time.Duration {
				if n++; n == lost {
					return nil
				}
				return []time.Duration{0}
			}
			w.receive(1, 600, 600, 600, 600)
			requests := []*Request{send(600), {Op: Write, Length: 600, RKey: 1, WQE: noise(2, 600)}, {Op: WriteImm, Length: 600,
				RKey: 1, Imm: 5, WQE: noise(3, 600)}, {Op: SendImm, Length: 600, Imm: 6, WQE: noise(4, 600)}}
			w.post(0, requests...)
			w.pass(time.Second)
			w.ends(0, OK, OK, OK, OK)
			want := []Message{{Op: Send, Length: 600}, {Op: WriteImm, Length: 600, Imm: 5}, {Op: SendImm, Length: 600, Imm: 6}}
			switch lost / 3 {
			case 0:
				if lost >= 0 {
					want = want[1:]
				}
			case 2:
				want = []Message{want[0], want[2]}
			case 3:
				want = want[:2]
			}
			var got []Message
			for _, x := range b.arrived {
				if x.m.Op == SendImm && !bytes.Equal(buffer(x.rc.WQE), noise(4, 600)) {
					t.Error("the message differs")
				}
				x.m.Packet = nil
				got = append(got, x.m)
			}
			if !equal(got, want) {
				t.Errorf("lost %d: arrived %+v, want %+v", lost, got, want)
			}
			w.wantEvents(1)
			w.idle()
			if a.e.State() != RTS || b.e.State() != RTS {
				t.Error("a state has changed")
			}
		})
	}
}

// TestUCFaults checks that UC drops what it cannot store, except that a receive
// request that is too short ends in an error.
func TestUCFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, UC, nil)
		w.post(0, request(Write, 300, 99), send(1))
		w.pass(time.Second)
		w.ends(0, OK, OK)
		w.wantEvents(1)
		w.receive(1, 299, 1)
		w.post(0, send(300))
		w.pass(time.Second)
		w.wantEvents(1, "broken 0")
		if b := w.hosts[1]; len(b.arrived) != 2 || b.arrived[0].m.Syndrome != LocalLength ||
			b.arrived[1].m.Syndrome != Flushed {
			t.Errorf("arrived: %+v", b.arrived)
		}
	})
}

// TestSQE checks that an unreliable sender stops after a local fault and
// continues when its owner sets RTS, while its receiver continues.
func TestSQE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, UC, nil)
		a := w.hosts[0]
		bad := send(300)
		a.gatherFault[bad] = LocalProtection
		w.receive(0, 300)
		w.receive(1, 300, 300)
		w.post(0, send(300), bad, send(1))
		w.pass(time.Millisecond)
		w.ends(0, OK, LocalProtection, Flushed)
		w.post(1, send(300))
		w.pass(time.Millisecond)
		if len(a.arrived) != 1 {
			t.Error("the receiver has stopped")
		}
		w.post(0, send(300))
		w.pass(time.Millisecond)
		w.ends(0, OK, LocalProtection, Flushed)
		w.loop.Run(func() { a.e.SetState(RTS) })
		w.pass(time.Millisecond)
		w.ends(0, OK, LocalProtection, Flushed, OK)
		if n := len(w.hosts[1].arrived); n != 2 {
			t.Errorf("%d messages arrived, want 2", n)
		}
	})
}

// TestUD sends datagrams that are delivered and datagrams that are dropped.
func TestUD(t *testing.T) {
	const key = 0x11111111
	for name, c := range map[string]struct {
		n, room int
		change  func(r *Request, b *Config)
		want    Syndrome
		arrives bool
	}{
		"plain":               {256, 296, nil, OK, true},
		"empty":               {0, 40, nil, OK, true},
		"short buffer":        {256, 295, nil, LocalLength, true},
		"no room for header":  {1, 39, nil, LocalLength, true},
		"no receive":          {1, -1, nil, OK, false},
		"Q_Key":               {1, 50, func(r *Request, b *Config) { r.Dest.QKey++ }, OK, false},
		"P_Key":               {1, 50, func(r *Request, b *Config) { b.PKey = 0xFFFE }, OK, false},
		"limited members":     {1, 50, func(r *Request, b *Config) { b.PKey = 0x7FFF }, OK, true},
		"more than one's MTU": {256, 500, func(r *Request, b *Config) { b.MTU = 256; r.Length = 256 }, OK, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &Request{Op: SendImm, Length: uint32(c.n), Imm: 7, Solicited: true, WQE: noise(1, c.n),
					Dest: &Dest{QPN: 0x101, QKey: key}}
				w := newWorld(t, UD, func(i int, b *Config) {
					if i == 1 && c.change != nil {
						c.change(r, b)
					}
					b.SourceQPN = 1
				})
				if c.room >= 0 {
					w.receive(1, c.room)
				}
				w.post(0, r)
				w.pass(time.Second)
				w.ends(0, OK)
				b := w.hosts[1]
				if (len(b.arrived) == 1) != c.arrives {
					t.Fatalf("arrived: %+v", b.arrived)
				}
				if !c.arrives {
					return
				}
				got := b.arrived[0]
				if got.m.Syndrome != c.want {
					t.Fatalf("syndrome %#x, want %#x", got.m.Syndrome, c.want)
				}
				if c.want != OK {
					w.wantEvents(1, "broken 0")
					return
				}
				if m := got.m; m.Op != SendImm || m.Imm != 7 || m.Length != uint32(40+c.n) || !m.Solicited ||
					m.Packet.DETH.SrcQPN != 1 {
					t.Errorf("message %+v", m)
				}
				h, _ := got.m.Packet.NetworkHeader()
				if b := buffer(got.rc.WQE); !bytes.Equal(b[:40], h[:]) || !bytes.Equal(b[40:40+c.n], noise(1, c.n)) {
					t.Error("other bytes")
				}
			})
		})
	}
}

// TestLimitedMembers checks that two limited members of a partition cannot
// communicate.
func TestLimitedMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, UC, func(_ int, c *Config) { c.PKey = 0x7FFF })
		w.receive(1, 1)
		w.post(0, send(1))
		w.pass(time.Second)
		w.ends(0, OK)
		if len(w.hosts[1].arrived) != 0 {
			t.Error("it has arrived")
		}
	})
}
