package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// TestModifyAfterMigration checks that setting other attributes does not undo a
// migration.
func TestModifyAfterMigration(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
		var a, b *qp
		var am, bm *region
		w.do(func() {
			a, b = w.hosts[0].newQP(engine.QPAttr{}), w.hosts[1].newQP(engine.QPAttr{})
			x := a.attr(b)
			x.Alternate = x.Primary
			x.Alternate.SL = 5
			x.Migration, x.RetryCount, x.AckTimeout = transport.Armed, 1, 8
			for _, step := range []engine.Transition{engine.RST2INIT, engine.INIT2RTR, engine.RTR2RTS} {
				w.must(a.h.ModifyQP(a.number, step, engine.ParamAlternate|engine.ParamMigration, x))
			}
			b.up(b.attr(a))
			am, bm = a.h.register(4096, allRights), b.h.register(4096, allRights)
		})
		w.lose = func(p *roce.Packet) bool { return p.Route.SL != 5 && p.Route.SLID == 1 }
		write := func() {
			w.do(func() { a.post(wqe{op: prm.OpcodeWrite}.raddr(bm, 0).data(am, 0, 8)) })
			w.later(time.Second)
			a.scq.expect("written", sent)
		}
		write()
		w.do(func() {
			w.must(a.h.ModifyQP(a.number, engine.RTS2RTS, engine.ParamRNRTimer, engine.QPAttr{MinRNRTimer: 3}))
		})
		if q := must(a.h.QueryQP(a.number)); q.Primary.SL != 5 || q.Migration != transport.Migrated || q.MinRNRTimer != 3 {
			t.Errorf("service level %d, migration state %d, timer %d", q.Primary.SL, q.Migration, q.MinRNRTimer)
		}
		write()
	})
}

// TestPKeyIndex checks where the P_Key index is checked, for all services.
func TestPKeyIndex(t *testing.T) {
	for _, service := range []engine.Service{engine.ServiceRC, engine.ServiceUD} {
		run(t, 1, engine.Config{}, func(w *world) {
			w.do(func() {
				q := w.hosts[0].newQP(engine.QPAttr{Service: service})
				x := q.attr(q)
				x.Primary.PKeyIndex = 60000
				if err := q.h.ModifyQP(q.number, engine.RST2INIT, 0, x); !errors.Is(err, engine.ErrParam) {
					t.Errorf("service %d: index 60000: %v", service, err)
				}
				x.Primary.PKeyIndex = 0
				w.must(q.h.ModifyQP(q.number, engine.RST2INIT, 0, x))
				x.Primary.PKeyIndex = 60000 // it is ignored
				w.must(q.h.ModifyQP(q.number, engine.INIT2RTR, 0, x))
			})
		})
	}
}

// TestInjectionsEnd checks that destroying a queue pair ends its injections.
func TestInjectionsEnd(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		w.do(func() {
			h := w.hosts[0]
			for range 3 {
				q := h.newQP(engine.QPAttr{})
				for range 1000 {
					w.must(h.InjectCompletion(q.number, transport.RemoteOp, 1, 0, 1))
				}
				w.must(h.DestroyQP(q.number))
			}
		})
	})
}
