package engine_test

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// TestPathBits checks that path bits select one of the sender's LIDs, for
// connections and datagrams.
func TestPathBits(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
		var from []uint16
		w.lose = func(p *roce.Packet) bool {
			if p.Route.DLID == w.hosts[1].LID() {
				from = append(from, p.Route.SLID)
			}
			return false
		}
		w.do(func() {
			w.hosts[0].SetLID(8)
			for _, service := range []engine.Service{engine.ServiceUC, engine.ServiceUD} {
				a, b := w.hosts[0].newQP(engine.QPAttr{Service: service}), w.hosts[1].newQP(engine.QPAttr{Service: service})
				x := a.attr(b)
				x.Primary.PathBits = 3
				a.up(x)
				if got := must(a.h.QueryQP(a.number)).Primary; got != x.Primary {
					t.Errorf("the path is %+v, want %+v", got, x.Primary)
				}
				if service == engine.ServiceUC {
					a.post(wqe{op: prm.OpcodeSend}.inline([]byte("hello")))
					continue
				}
				s := wqe{op: prm.OpcodeSend}.av(b, 0x11)
				prm.AVMLID.Set(s.segments, 5)
				a.post(s.inline([]byte("hello")))
			}
		})
		if len(from) != 2 || from[0] != 8|3 || from[1] != 8|5 {
			t.Errorf("sent from %v", from)
		}
	})
}

// TestDatagramVLAN checks that a datagram's completion has the VLAN tag, with
// its priority.
func TestDatagramVLAN(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1, LinkLayer: engine.Ethernet}, func(w *world) {
		a, b := w.hosts[0], w.hosts[1]
		for _, tagged := range []bool{false, true} {
			var from, to *qp
			w.do(func() {
				w.must(a.SetGID(0, engine.GIDEntry{GID: gid(1), Version: roce.V2, MAC: a.MAC(), Tagged: tagged, VLAN: 0x123}))
				from, to = a.newQP(engine.QPAttr{Service: engine.ServiceUD}), b.newQP(engine.QPAttr{Service: engine.ServiceUD})
				from.up(from.attr(to))
				to.up(to.attr(from))
				to.recv(b.register(4096, allRights), 0, 4096)
				s := wqe{op: prm.OpcodeSend}.av(to, 0x11)
				prm.AVSL.Set(s.segments, 5<<1) // a priority has three bits; the next is reserved
				from.post(s.inline([]byte("hello")))
			})
			got := to.rcq.poll()
			if len(got) != 1 {
				t.Fatalf("received %+v", got)
			}
			want := uint64(0)
			if tagged {
				want = 5<<13 | 0x123
			}
			if on, tag := prm.CQEVLAN.Is(got[0].raw), prm.CQEVLANInfo.Get(got[0].raw); on != tagged || tag != want {
				t.Errorf("tagged %t: %t, %#x", tagged, on, tag)
			}
		}
	})
}

// TestManagement checks that numbers 0 and 1 mean the oldest management queue
// pairs that are ready.
func TestManagement(t *testing.T) {
	run(t, 2, engine.Config{}, func(w *world) {
		a, b := w.hosts[0], w.hosts[1]
		const key = 0x80010000
		var from *qp
		var am, bm *region
		var to [3]*qp
		send := func(what string, want int) {
			w.t.Helper()
			w.do(func() { from.post(wqe{op: prm.OpcodeSend}.avTo(b, 1, key).data(am, 0, 8)) })
			from.scq.expect(what, sent)
			for i, q := range to {
				if n := len(q.rcq.poll()); (n == 1) != (i == want) {
					w.t.Errorf("%s: queue pair %d has %d completions", what, i, n)
				}
			}
		}
		w.do(func() {
			from = a.newQP(engine.QPAttr{Service: engine.ServiceUD})
			from.up(func() engine.QPAttr { c := from.attr(from); c.QKey = key; return c }())
			am, bm = a.register(64, allRights), b.register(64, allRights)
			for i, service := range []engine.Service{engine.ServiceQP0, engine.ServiceQP1, engine.ServiceQP1} {
				to[i] = b.newQP(engine.QPAttr{Service: service})
			}
			to[0].up(to[0].attr(from))
			to[2].up(to[2].attr(from))
			for _, q := range to {
				for range 4 {
					q.recv(bm, 0, 48)
				}
			}
		})
		send("the first is not ready", 2)
		w.do(func() { to[1].up(to[1].attr(from)) })
		send("both are ready", 1)
		w.do(func() { w.must(b.DestroyQP(to[1].number)) })
		send("the first is destroyed", 2)
		w.do(func() { w.must(b.DestroyQP(to[2].number)) })
		send("both are destroyed", -1)
	})
}

// TestPortMTU checks that RoCE packets longer than the port's MTU are lost, at
// either end.
func TestPortMTU(t *testing.T) {
	const largest = 14 + 40 + 8 + 12 + 16 + 1024 + 4 // Ethernet, IPv6, UDP, BTH, RETH, payload, ICRC
	for name, x := range map[string]struct {
		a, b int
		want cqe
	}{
		"the sender's":   {largest - 1, 0, sendError(transport.TransportRetry)},
		"the receiver's": {0, largest - 1, sendError(transport.TransportRetry)},
		"enough":         {largest, largest, sent},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 2, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
				p := newPair(w, engine.QPAttr{})
				w.do(func() {
					p.a.h.SetFrameLimit(x.a)
					p.b.h.SetFrameLimit(x.b)
					p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).data(p.am, 0, 1023)) // padded to 1024
				})
				w.later(time.Minute)
				p.a.scq.expect("a message", x.want)
			})
		})
	}
}
