package engine_test

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
)

// TestTrace checks the trace events of a message, at both ends.
func TestTrace(t *testing.T) {
	var out strings.Builder
	run(t, 1, engine.Config{CQEVersion: 1, Tracer: trace.New(&out)}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		w.do(func() {
			p.b.recv(p.bm, 0, 100)
			p.a.post(wqe{op: prm.OpcodeSendImm, imm: 7, se: true}.data(p.am, 0, 10).inline([]byte("x")),
				wqe{op: prm.OpcodeWrite}.raddr(p.bm, 8).data(p.am, 4, 5))
			p.a.scq.arm(true)
		})
		p.a.scq.expect("sent", sent, sent)
	})
	want := strings.Join([]string{
		`{"event":"uar","register":"send","qp":"qp#1","index":1,"opcode":"RDMA_WRITE","ds":3}`,
		`{"event":"doorbell_record","qp":"qp#1","counter":"send","value":2}`,
		`{"event":"uar","register":"cq_arm","cq":"cq#1","sn":0,"any":true,"ci":0}`,
		`{"event":"wqe","qp":"qp#1","queue":"send","index":0,"opcode":"SEND_IMM","ds":3,"fm":0,"ce":2,` +
			`"se":true,"imm":"0x7","lkey":"key#1","addr":"addr#1","length":10,"inline.1":"78"}`,
		`{"event":"wqe","qp":"qp#1","queue":"send","index":1,"opcode":"RDMA_WRITE","ds":3,"fm":0,"ce":2,` +
			`"se":false,"raddr":"addr#2","rkey":"key#2","lkey":"key#1","addr":"addr#3","length":5}`,
		`{"event":"wqe","qp":"qp#2","queue":"receive","index":0,"lkey":"key#2","addr":"addr#4","length":100}`,
		`{"event":"cqe","cq":"cq#2","index":0,"opcode":"RESP_SEND_IMM","qp":"qp#2","wqe_counter":0,"owner":0,` +
			`"se":true,"format":0,"byte_cnt":11,"imm_inval_pkey":"0x7"}`,
		`{"event":"cqe","cq":"cq#1","index":0,"opcode":"REQ","qp":"qp#1","wqe_counter":0,"owner":0,` +
			`"se":false,"format":0,"byte_cnt":0,"imm_inval_pkey":"0x0"}`,
		`{"event":"cqe","cq":"cq#1","index":1,"opcode":"REQ","qp":"qp#1","wqe_counter":1,"owner":0,` +
			`"se":false,"format":0,"byte_cnt":0,"imm_inval_pkey":"0x0"}`,
		"",
	}, "\n")
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestTraceDC checks that the trace of a request of DC has its key and stream.
func TestTraceDC(t *testing.T) {
	var out strings.Builder
	run(t, 1, engine.Config{Tracer: trace.New(&out)}, func(world *world) {
		w := newDCWorld(world, engine.QPAttr{LogStreams: 1})
		w.do(func() { w.q.stream(3, wqe{op: prm.OpcodeWrite}.dc(w.to[0]).raddr(w.bm, 0).data(w.am, 0, 8)) })
		w.q.scq.expect("written", sent)
	})
	if want := `"dc_key":"0x1122334455667788","stream":3`; !strings.Contains(out.String(), want) {
		t.Errorf("no %s in\n%s", want, out.String())
	}
}
