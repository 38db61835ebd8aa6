package engine

import (
	"strconv"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
)

// trace emits a send WQE's event.
func (w *sendWQE) trace() {
	t := w.queue.hca.config.Tracer
	if !t.On() {
		return
	}
	r, f := &w.request, []trace.Field{trace.Object("qp", "qp", w.queue.number), trace.Text("queue", "send"),
		trace.Num("index", w.index),
		trace.Text("opcode", opcodeName(w.opcode)), trace.Num("ds", prm.CtrlDS.Get(w.raw)),
		trace.Num("fm", prm.CtrlFence.Get(w.raw)),
		trace.Num("ce", prm.CtrlCompletion.Get(w.raw)), trace.Bool("se", prm.CtrlSolicited.Is(w.raw))}
	switch w.opcode {
	case prm.OpcodeUMR, prm.OpcodeLocalInval, prm.OpcodeSendInval:
		f = append(f, trace.Key("mkey", r.Imm))
	case prm.OpcodeSendImm, prm.OpcodeWriteImm:
		f = append(f, trace.Hex("imm", r.Imm))
	default:
		if r.Imm != 0 {
			f = append(f, trace.Hex("unused", r.Imm))
		}
	}
	if d := r.Dest; d != nil {
		f = append(f, trace.Object("dest_qp", "qp", d.QPN), trace.Hex("qkey", d.QKey), trace.Bool("grh", d.Path.GRH),
			trace.Num("sgid_index", d.Path.SGIDIndex), trace.Num("sl", d.Path.SL))
		if w.qp.Service == ServiceDCI {
			f = append(f, trace.Hex("dc_key", d.DCKey), trace.Num("stream", r.Stream))
		}
	}
	if r.XRCSRQ != 0 {
		f = append(f, trace.Object("srq", "srq", r.XRCSRQ))
	}
	if shapes[w.opcode].raddr {
		f = append(f, trace.Address("raddr", r.RemoteAddr), trace.Key("rkey", r.RKey))
	}
	if len(w.umr) >= prm.WQEUMR.Size {
		f = append(f, trace.Hex("umr_flags", w.umr[0]), trace.Num("octowords", prm.UMROctowords.Get(w.umr)),
			trace.Hex("mask", prm.UMRMask.Get(w.umr)))
	}
	if w.qp == nil {
		f = append(f, w.traceEthernet()...)
	}
	t.Emit("wqe", append(f, tracePieces(w.pieces)...)...)
}

// traceEthernet returns the Ethernet segment as fields.
func (w *sendWQE) traceEthernet() []trace.Field {
	if w.opcode == prm.OpcodeNOP || len(w.raw) < 32 {
		return nil
	}
	e := w.raw[16:]
	header, _, _ := ethernetHeader(e)
	return []trace.Field{trace.Bool("l3_cs", prm.EthL3Checksum.Is(e)), trace.Bool("l4_cs", prm.EthL4Checksum.Is(e)),
		trace.Num("mss", prm.EthMSS.Get(e)), trace.Bytes("header", header)}
}

// traceReceive emits a receive WQE's event.
func (h *HCA) traceReceive(owner trace.Field, w *receiveWQE) {
	if t := h.config.Tracer; t.On() {
		t.Emit("wqe", append([]trace.Field{owner, trace.Text("queue", "receive"), trace.Num("index", w.index)},
			tracePieces(w.pieces)...)...)
	}
}

// tracePieces returns the data segments as fields.
func tracePieces(pieces []piece) (f []trace.Field) {
	for i, p := range pieces {
		place := ""
		if i > 0 {
			place = "." + strconv.Itoa(i)
		}
		if p.inline != nil {
			f = append(f, trace.Bytes("inline"+place, p.inline))
		} else {
			f = append(f, trace.Key("lkey"+place, p.span.key), trace.Address("addr"+place, p.span.va),
				trace.Num("length"+place, p.n))
		}
	}
	return f
}

var opcodeNames = map[uint8]string{
	prm.OpcodeNOP: "NOP", prm.OpcodeSendInval: "SEND_INVAL", prm.OpcodeWrite: "RDMA_WRITE",
	prm.OpcodeWriteImm: "RDMA_WRITE_IMM",
	prm.OpcodeSend:     "SEND", prm.OpcodeSendImm: "SEND_IMM", prm.OpcodeTSO: "TSO", prm.OpcodeRead: "RDMA_READ",
	prm.OpcodeAtomicCS: "ATOMIC_CS", prm.OpcodeAtomicFA: "ATOMIC_FA", prm.OpcodeAtomicMaskedCS: "ATOMIC_MASKED_CS",
	prm.OpcodeAtomicMaskedFA: "ATOMIC_MASKED_FA", prm.OpcodeLocalInval: "LOCAL_INVAL", prm.OpcodeUMR: "UMR",
}

func opcodeName(op uint8) string {
	if name := opcodeNames[op]; name != "" {
		return name
	}
	return hex(op)
}

// trace emits a completion's event.
func (cq *CQ) trace(b []byte) {
	t := cq.hca.config.Tracer
	if !t.On() {
		return
	}
	op := prm.CQEOpcode.Get(b)
	f := []trace.Field{trace.Object("cq", "cq", cq.Number), trace.Num("index", cq.producer&(cq.size()-1)),
		trace.Text("opcode", cqeName(op)), trace.Object("qp", "qp", uint32(prm.CQEQPN.Get(b))),
		trace.Num("wqe_counter", prm.CQEWQECounter.Get(b)), trace.Num("owner", prm.CQEOwner.Get(b)),
		trace.Bool("se", prm.CQESolicited.Is(b)), trace.Num("format", prm.CQEFormat.Get(b))}
	switch {
	case op == prm.CQEReqErr || op == prm.CQERespErr:
		f = append(f, trace.Hex("syndrome", prm.CQESyndrome.Get(b)))
	case op == prm.CQERespSendInv:
		f = append(f, trace.Num("byte_cnt", prm.CQEByteCount.Get(b)), trace.Key("inval", uint32(prm.CQEImm.Get(b))))
	default:
		f = append(f, trace.Num("byte_cnt", prm.CQEByteCount.Get(b)), trace.Hex("imm_inval_pkey", prm.CQEImm.Get(b)))
	}
	t.Emit("cqe", f...)
}

func cqeName(op uint64) string {
	names := map[uint64]string{prm.CQEReq: "REQ", prm.CQERespWrite: "RESP_WR_IMM", prm.CQERespSend: "RESP_SEND",
		prm.CQERespSendImm: "RESP_SEND_IMM",
		prm.CQERespSendInv: "RESP_SEND_INV", prm.CQEResize: "RESIZE_CQ", prm.CQEReqErr: "REQ_ERR", prm.CQERespErr: "RESP_ERR"}
	return names[op]
}
