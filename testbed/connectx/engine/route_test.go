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
