package transport

import "github.com/goverbs/goverbs/internal/sim/connectx/roce"

// build returns the next packet of a request.
func (s *sender) build(r *Request) (*roce.Packet, Syndrome) {
	p := s.e.packet(s.opcode(r), forward(r.way.first, s.part))
	off := uint32(s.part * r.way.mtu)
	last := s.part == r.way.packets-1
	s.silent++
	p.AckReq = s.reliable() && (last || r.reads() || s.silent >= ackEvery)
	if p.AckReq {
		s.silent = 0
	}
	p.XRCSRQ = r.XRCSRQ
	switch {
	case r.Op == Read:
		p.RETH = roce.RETH{VA: r.RemoteAddr + uint64(off), RKey: r.RKey, Length: r.Length - off}
		return p, OK
	case r.reads():
		o := r.Operand
		p.Atomic = roce.AtomicETH{VA: r.RemoteAddr, RKey: r.RKey, Swap: o[0], Compare: o[1], SwapMask: o[2],
			CompareMask: o[3]}
		return p, OK
	case s.part == 0 && (r.Op == Write || r.Op == WriteImm):
		p.RETH = roce.RETH{VA: r.RemoteAddr, RKey: r.RKey, Length: r.Length}
	}
	if last {
		p.Solicited = r.Solicited && r.Op != Write
		p.Imm, p.InvRKey = r.Imm, r.Imm
	}
	if n := min(r.Length-off, uint32(r.way.mtu)); n > 0 {
		p.Payload = make([]byte, n)
		return p, s.e.queues.Gather(r, off, p.Payload)
	}
	return p, OK
}

// operations has the opcodes of a request's packets: first, middle, last, only.
var operations = [...][4]roce.Opcode{
	Send:              {roce.SendFirst, roce.SendMiddle, roce.SendLast, roce.SendOnly},
	SendImm:           {roce.SendFirst, roce.SendMiddle, roce.SendLastImm, roce.SendOnlyImm},
	SendInval:         {roce.SendFirst, roce.SendMiddle, roce.SendLastInv, roce.SendOnlyInv},
	Write:             {roce.WriteFirst, roce.WriteMiddle, roce.WriteLast, roce.WriteOnly},
	WriteImm:          {roce.WriteFirst, roce.WriteMiddle, roce.WriteLastImm, roce.WriteOnlyImm},
	Read:              {roce.ReadRequest, roce.ReadRequest, roce.ReadRequest, roce.ReadRequest},
	CompareSwap:       {3: roce.CompareSwap},
	FetchAdd:          {3: roce.FetchAdd},
	MaskedCompareSwap: {3: roce.MaskedCompareSwap},
	MaskedFetchAdd:    {3: roce.MaskedFetchAdd},
}

// opcode returns the opcode of the next packet.
func (s *sender) opcode(r *Request) roce.Opcode {
	return place(operations[r.Op], s.part == 0, s.part == r.way.packets-1)
}

// place returns the opcode for a packet's place in its message.
func place(ops [4]roce.Opcode, first, last bool) roce.Opcode {
	switch {
	case first && last:
		return ops[3]
	case first:
		return ops[0]
	case last:
		return ops[2]
	}
	return ops[1]
}

// sendDatagram sends the packet of a datagram.
func (s *sender) sendDatagram(r *Request) (sent, more bool) {
	p, fault := s.build(r)
	if fault != OK {
		return false, s.fault(r, fault)
	}
	p.DestQPN, p.MigReq = r.Dest.QPN, true
	p.DETH = roce.DETH{QKey: r.Dest.QKey, SrcQPN: s.e.config.QPN}
	if s.e.config.SourceQPN != 0 {
		p.DETH.SrcQPN = s.e.config.SourceQPN
	}
	s.e.port.Send(&r.Dest.Path, p)
	s.at++
	s.sent, s.unacked = s.next, s.next
	s.finish()
	return true, true
}
