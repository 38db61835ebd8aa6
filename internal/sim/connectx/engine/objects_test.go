package engine_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
)

// TestObjects checks that created objects are counted until a reset.
func TestObjects(t *testing.T) {
	run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() {
			if n := p.a.h.Objects(); n.PDs == 0 || n.CQs == 0 || n.QPs != 1 || n.MKeys == 0 || n.SRQs != 0 || n.FlowTables != 0 {
				w.t.Errorf("%+v", n)
			}
			p.a.h.Reset()
			if n := p.a.h.Objects(); n != (engine.Objects{}) {
				w.t.Errorf("after a reset: %+v", n)
			}
		})
	})
}
