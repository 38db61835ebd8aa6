package engine_test

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// TestOutOfOrderDC sends messages to an out-of-order DCT. Packets overtake others on the wire, messages complete in
// order, and they use the requests of the SRQ in the order of arrival.
func TestOutOfOrderDC(t *testing.T) {
	const messages = 12
	run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
		a, b := w.hosts[0], w.hosts[1]
		var q *qp
		var to *dct
		var m *region
		overtaken, newest := 0, uint32(0)
		w.lose = func(p *roce.Packet) bool {
			if !p.Opcode.Response() {
				if p.PSN < newest {
					overtaken++
				}
				newest = max(newest, p.PSN)
			}
			return false
		}
		w.do(func() {
			q = a.newQP(engine.QPAttr{Service: engine.ServiceDCI, Source: engine.FromSRQ, LogSQSize: 8})
			q.up(engine.QPAttr{MTU: 1024, SendPSN: 16, AckTimeout: 14, RetryCount: 3, RNRRetry: 3, MaxInitiate: 4,
				OutOfOrder: true})
			to, m = b.newDCT(engine.QPAttr{OutOfOrder: true}), b.register(1<<12, allRights)
			for i := range messages {
				to.srq.recv(m, 16*i, 16)
			}
			var last []byte
			for i := range messages {
				last = q.write(wqe{op: prm.OpcodeSendImm, imm: uint32(i)}.dc(to).inline([]byte{byte(i)}))
			}
			q.ring(last)
		})
		w.later(time.Second)
		got, others := to.cq.poll(), 0
		if len(got) != messages || len(q.scq.poll()) != messages {
			w.t.Fatalf("%d messages arrived", len(got))
		}
		for i, c := range got {
			slot := prm.CQEWQECounter.Get(c.raw) / 3 // see newSRQ
			if c.imm != uint32(i) || m.get(16*int(slot), 1)[0] != byte(i) {
				w.t.Errorf("completion %d has immediate %d and used slot %d", i, c.imm, slot)
			}
			if slot != uint64(i) {
				others++
			}
		}
		if overtaken == 0 || others == 0 {
			w.t.Errorf("%d packets were overtaken, and %d messages have not used the next slot", overtaken, others)
		}
	})
}
