package engine_test

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx/prm"
)

// BenchmarkSend is messages from one queue pair to another of the same device, from
// the doorbell to both completions.
func BenchmarkSend(b *testing.B) {
	w := &world{t: b}
	w.newLoop()
	h := w.add(engine.Config{CQEVersion: 1})
	p := newPair(w, engine.QPAttr{})
	for b.Loop() {
		w.loop.Run(func() {
			p.b.recv(p.bm, 0, 64)
			p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, 64))
		})
		for n := 0; n < 2; { // an endpoint lets others have the loop now and then
			w.loop.Run(func() { n += len(p.a.scq.poll()) + len(p.b.rcq.poll()) })
		}
	}
	w.loop.Run(h.Reset)
}
