package engine

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A piece is a part of a message's memory: inline bytes, or a span.
type piece struct {
	inline []byte
	span   span
	n      uint64
}

// A sendWQE is a send request: the WQE and its decoded form.
type sendWQE struct {
	qp       *QP // nil for a raw Ethernet queue
	queue    *sendQueue
	index    uint16
	blocks   uint16
	opcode   uint8
	signaled bool
	raw      []byte
	request  transport.Request
	pieces   []piece
	umr      []byte // everything after the control segment
	bad      transport.Syndrome
	vendor   uint8
	unknown  bool   // a local key did not exist when the request was decoded
	why      string // the reason of a failure, and what explains it, if the program is the cause
	places   []Place
	returned []byte // of a READ or an atomic, for the completion
}

func newSendWQE(index uint16, raw []byte) *sendWQE {
	w := &sendWQE{index: index, raw: raw, opcode: uint8(prm.CtrlOpcode.Get(raw))}
	w.blocks = uint16(max(1, (prm.CtrlDS.Get(raw)*16+block-1)/block))
	w.signaled = prm.CtrlCompletion.Get(raw) >= prm.CompletionAlways
	w.request.WQE = w
	return w
}

// shapes has, for each opcode, the transport's operation and the segments
// before the data.
var shapes = map[uint8]struct {
	op       transport.Op
	raddr    bool
	operands int // bytes of the atomic segment
}{
	prm.OpcodeSend:           {op: transport.Send},
	prm.OpcodeSendImm:        {op: transport.SendImm},
	prm.OpcodeSendInval:      {op: transport.SendInval},
	prm.OpcodeWrite:          {op: transport.Write, raddr: true},
	prm.OpcodeWriteImm:       {op: transport.WriteImm, raddr: true},
	prm.OpcodeRead:           {op: transport.Read, raddr: true},
	prm.OpcodeAtomicCS:       {op: transport.CompareSwap, raddr: true, operands: 16},
	prm.OpcodeAtomicFA:       {op: transport.FetchAdd, raddr: true, operands: 16},
	prm.OpcodeAtomicMaskedCS: {op: transport.MaskedCompareSwap, raddr: true, operands: 32},
	prm.OpcodeAtomicMaskedFA: {op: transport.MaskedFetchAdd, raddr: true, operands: 16},
	prm.OpcodeNOP:            {op: transport.Local},
	prm.OpcodeUMR:            {op: transport.Local},
	prm.OpcodeLocalInval:     {op: transport.Local},
}

// decode decodes the request. An invalid one becomes a local request that fails
// in order.
func (w *sendWQE) decode() {
	w.checkControl()
	r := &w.request
	r.Solicited = prm.CtrlSolicited.Is(w.raw)
	r.Fence = prm.CtrlFence.Get(w.raw) != prm.FenceNone
	r.Imm = uint32(prm.CtrlImm.Get(w.raw))
	if w.qp.streams() {
		r.Stream = uint16(prm.CtrlStream.Get(w.raw))
	}
	shape, known := shapes[w.opcode]
	if !known || !w.qp.does(shape.op) {
		w.reject(RuleOpcode, "opcode "+hex(w.opcode)+" is not supported by this queue")
		return
	}
	if n := prm.CtrlDS.Get(w.raw); n == 0 || n*16 > w.queue.size {
		w.reject(RuleDS, "the size is "+hex(n)+" segments")
		return
	}
	r.Op = shape.op
	rest := w.raw[16:]
	switch {
	case r.Op == transport.Local:
		w.umr = rest
		return
	case w.qp.Service.datagram(), w.qp.Service == ServiceDCI:
		rest = w.datagram(rest)
	case w.qp.Service == ServiceXRC:
		if s := w.segment(&rest, 16); s != nil {
			r.XRCSRQ = uint32(prm.XRCSRQN.Get(s))
			if s[0] != 0 { // libmlx5 does not initialize the last 12 bytes
				w.violate(RuleSegments, "this is no XRC segment")
			}
		}
	}
	if shape.raddr {
		if s := w.segment(&rest, 16); s != nil {
			r.RemoteAddr, r.RKey = prm.RaddrAddress.Get(s), uint32(prm.RaddrKey.Get(s))
		}
	}
	if shape.operands > 0 {
		if s := w.segment(&rest, shape.operands); s != nil {
			for i := range shape.operands / 8 {
				r.Operand[i] = be64(s[8*i:])
			}
			switch r.Op {
			case transport.FetchAdd:
				r.Operand[1] = 0
			case transport.MaskedFetchAdd: // the field boundaries
				r.Operand[1], r.Operand[2] = 0, r.Operand[1]
			}
		}
	}
	w.data(rest)
	w.checkData()
}

// does reports whether the queue pair's service supports an operation.
func (qp *QP) does(op transport.Op) bool {
	switch {
	case op == transport.Local, qp.Service == ServiceRC, qp.Service == ServiceXRC:
		return true
	case qp.Service == ServiceDCI:
		return op <= transport.FetchAdd
	case qp.Service == ServiceUC:
		return op <= transport.WriteImm
	}
	return qp.Service.datagram() && op <= transport.SendImm
}

// segment removes a segment from the rest of the WQE.
func (w *sendWQE) segment(rest *[]byte, n int) []byte {
	if len(*rest) < n {
		w.reject(RuleDS, "the WQE ends within its segments")
		*rest = nil
		return nil
	}
	s := (*rest)[:n]
	*rest = (*rest)[n:]
	return s
}

// datagram decodes an address vector.
func (w *sendWQE) datagram(rest []byte) []byte {
	s := w.segment(&rest, prm.WQEAV.Size)
	if s == nil {
		return nil
	}
	d := &transport.Dest{QPN: uint32(prm.AVDestQPN.Get(s)), QKey: uint32(prm.AVQKey.Get(s))}
	if d.QKey>>31 == 1 { // the queue pair's Q_Key, which only the kernel may set
		d.QKey = w.qp.QKey
	}
	if w.qp.Service == ServiceDCI {
		d.QKey, d.DCKey = 0, prm.AVDCKey.Get(s)
	}
	p := &d.Path
	p.DLID, p.SL, p.PathBits = uint16(prm.AVDLID.Get(s)), uint8(prm.AVSL.Get(s)), uint8(prm.AVMLID.Get(s))
	p.GRH, p.SGIDIndex = prm.AVGRH.Is(s), uint8(prm.AVSGIDIndex.Get(s))
	p.FlowLabel, p.HopLimit, p.TrafficClass = uint32(prm.AVFlowLabel.Get(s)), uint8(prm.AVHopLimit.Get(s)),
		uint8(prm.AVTClass.Get(s))
	copy(p.DGID[:], prm.AVDGID.Bytes(s))
	copy(p.DMAC[:], prm.AVDMAC.Bytes(s))
	p.PKeyIndex = w.qp.Primary.PKeyIndex
	if w.qp.hca.config.LinkLayer == Ethernet {
		p.UDPSport, p.DLID = p.DLID, 0
		p.SL >>= 1 // here the priority has the upper three bits
		p.GRH = true
	}
	if !prm.AVExtended.Is(s) {
		w.violate(RuleReserved, "the address vector is not marked as an extended one")
	}
	w.request.Dest = d
	return rest
}

// data decodes the data segments.
func (w *sendWQE) data(rest []byte) {
	total := w.memory(rest, w.qp.user(), w.localRights())
	if total > 1<<31 {
		w.fail(transport.LocalLength)
		return
	}
	if w.bad != transport.OK {
		return
	}
	w.request.Length = uint32(total)
	if w.qp.Service.datagram() && total > maxMTU {
		w.fail(transport.LocalLength)
	}
}

// memory decodes the data segments and returns their total length.
func (w *sendWQE) memory(rest []byte, as user, rights Rights) (total uint64) {
	h := w.queue.hca
	for len(rest) >= 16 {
		if prm.DataInline.Is(rest) {
			n := int(prm.InlineLength.Get(rest))
			if uint64(n) != prm.DataLength.Get(rest) {
				w.violate(RuleReserved, "reserved bits of an inline segment are set")
			}
			if n+4 > len(rest) {
				w.reject(RuleInline, "inline data is longer than its WQE")
				return total
			}
			w.pieces = append(w.pieces, piece{inline: rest[4 : 4+n], n: uint64(n)})
			rest = rest[(4+n+15)&^15:]
			total += uint64(n)
			continue
		}
		p := decodePiece(h, rest, as, rights)
		if p.n == 0 {
			w.violate(RuleZeroLength, "a data segment of length 0")
			p.n = 1 << 31
			p.span.n = p.n
		}
		if h.unknown(p.span.key, as.reserved) {
			w.unknown = true
			w.violate(RuleKey, "local key "+hex(p.span.key)+" does not exist", h.fate(p.span.key)...)
		}
		w.pieces = append(w.pieces, p)
		total += p.n
		rest = rest[16:]
	}
	return total
}

// decodePiece decodes a pointer segment.
func decodePiece(h *HCA, s []byte, as user, rights Rights) piece {
	n := prm.DataLength.Get(s)
	return piece{n: n, span: span{hca: h, key: uint32(prm.DataKey.Get(s)), va: prm.DataAddress.Get(s), n: n,
		rights: rights, as: as}}
}

// user returns the queue pair as a user of memory keys.
func (qp *QP) user() user {
	return user{pd: qp.PD, anyPD: qp.Service == ServiceUMR, qpn: qp.Number, reserved: qp.ReservedLKey}
}

// returnsData reports whether the response of the request has data.
func (w *sendWQE) returnsData() bool {
	return w.request.Op >= transport.Read && w.request.Op <= transport.MaskedFetchAdd
}

func (w *sendWQE) localRights() Rights {
	if w.returnsData() {
		return LocalWrite
	}
	return LocalRead
}

// fail turns the request into one that fails in order.
func (w *sendWQE) fail(s transport.Syndrome) {
	if w.bad == transport.OK {
		w.bad = s
	}
	w.request.Op = transport.Local
	w.request.Length = 0
}

func (w *sendWQE) reject(rule Rule, text string) {
	w.violate(rule, text)
	w.fail(transport.LocalQPOp)
}
