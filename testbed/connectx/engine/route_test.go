package engine_test

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx/prm"
	"github.com/goverbs/goverbs/testbed/connectx/roce"
)

// TestPathBits: they choose one of the sender's LIDs, for connections and datagrams.
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

// TestDatagramVLAN: a datagram's completion has the tag, and the tag the priority.
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
				prm.AVSL.Set(s.segments, 5<<1) // a priority has three bits, then one that is none
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
