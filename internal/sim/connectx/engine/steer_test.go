package engine_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
)

// TestSteeringBounds checks the bound on visited flows, however tables refer to
// each other, and that all flows can be visited once.
func TestSteeringBounds(t *testing.T) {
	const flows, tables = 2000, 200
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet, Limits: engine.Limits{Flows: flows + 2}}, func(w *world) {
		h := w.hosts[0]
		var n *nic
		w.do(func() {
			n = h.newNIC(1, engine.TIRAttr{})
			n.rqs[0].recv(h.register(4096, allRights), 0, 2000)
			tir := engine.FlowDest{Type: engine.FlowToTIR, Number: n.tir.Number}
			last := must(h.CreateFlowTable(engine.FlowTableAttr{Level: 4}))
			group := must(h.CreateFlowGroup(last, engine.FlowGroup{}))
			w.must(h.SetFlow(last, 0, engine.Flow{Group: group, Forward: true, Dests: []engine.FlowDest{tir}}))

			deep := must(h.CreateFlowTable(engine.FlowTableAttr{Level: 3, LogSize: 11, MissTable: last}))
			g := engine.FlowGroup{Last: flows - 1, Criteria: 0xff}
			g.Mask[511] = 0xff
			group = must(h.CreateFlowGroup(deep, g))
			f := engine.Flow{Group: group, Forward: true, Dests: []engine.FlowDest{tir}}
			f.Match[511] = 1 // no frame matches it
			for i := range uint32(flows) {
				w.must(h.SetFlow(deep, i, f))
			}
			w.must(h.SetFlowTableRoot(engine.NICReceive, deep))
			h.ReceiveFrame(make([]byte, 60))
			n.rqs[0].rcq.expect("behind all flows", received(60))

			root := must(h.CreateFlowTable(engine.FlowTableAttr{Level: 1}))
			w.must(h.SetFlowTableRoot(engine.NICReceive, root))
			group = must(h.CreateFlowGroup(root, engine.FlowGroup{}))
			many := engine.Flow{Group: group, Forward: true}
			for range tables {
				miss := must(h.CreateFlowTable(engine.FlowTableAttr{Level: 2, MissTable: deep}))
				many.Dests = append(many.Dests, engine.FlowDest{Type: engine.FlowToTable, Number: miss})
			}
			w.must(h.SetFlow(root, 0, many))
			for range 8 {
				n.rqs[0].recv(h.register(4096, allRights), 0, 2000)
			}
			h.ReceiveFrame(make([]byte, 60))
			n.rqs[0].rcq.expect("the bound", received(60))

			many.Dests[1] = many.Dests[0]
			if err := h.SetFlow(root, 0, many); !errors.Is(err, engine.ErrParam) {
				t.Errorf("one destination twice: %v", err)
			}
			if err := h.SetFlow(root, 0, engine.Flow{Group: group, Dests: make([]engine.FlowDest, 257)}); !errors.Is(err,
				engine.ErrLimit) {
				t.Errorf("257 destinations: %v", err)
			}
		})
	})
}
