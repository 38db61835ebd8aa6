package transport

import (
	"cmp"
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// With Config.OutOfOrder, both ends tolerate packets that overtake others. The requester sends its packets in lots
// (Config.Reorder), each from the last packet to the first. The responder stores the data of a packet that is ahead
// as soon as the packet's place is known: that of a SEND's first packet in the receive request that is next in the
// queue, that of a WRITE in the peer's memory. So messages use receive requests in the order of arrival. READs,
// atomics, invalidations, completions and acknowledgments remain in the order of PSNs, and so do errors: a packet
// that is ahead and cannot be stored is processed again in its turn.

// maxAhead is how far ahead of the next PSN a packet may be. A packet farther ahead means that one was lost.
const maxAhead = 64

// An early is a packet that is ahead.
type early struct {
	packet  *roce.Packet
	placed  bool     // its data is stored
	receive *Receive // for the first packet of a SEND, and the last of a WRITE with immediate
	region  Region   // for the first packet of a WRITE
}

// needsReceive reports whether a packet needs a separate receive request.
func needsReceive(p *roce.Packet) bool {
	op := p.Opcode.Op()
	return sends(op) && p.Opcode.Starts() || op == roce.WriteLastImm || op == roce.WriteOnlyImm
}

// proceed carries out the next packet in order, and the early ones behind it.
func (r *responder) proceed(p *roce.Packet) {
	for epoch := r.e.epoch; ; {
		r.take(p)
		if r.placed = false; r.e.epoch != epoch || r.stalled != nil || r.ending != nil {
			return
		}
		a := r.early[r.expected]
		if a == nil {
			return
		}
		p, r.placed = a.packet, a.placed
		if a.receive != nil && !r.inOrder(p.Opcode) {
			continue // p is refused, and takeBack returns the receive request
		}
		delete(r.early, r.expected)
		if a.receive != nil {
			r.taken = a.receive
		}
	}
}

// ahead keeps a packet that is ahead until its turn, and stores its data if possible.
func (r *responder) ahead(p *roce.Packet) {
	if r.early[p.PSN] != nil {
		return
	}
	if r.early == nil {
		r.early = make(map[uint32]*early)
	}
	a := &early{packet: p}
	r.early[p.PSN] = a
	epoch := r.e.epoch
	for a != nil && !a.placed {
		r.place(a)
		if r.e.epoch != epoch || !a.placed {
			return
		}
		a = r.early[forward(a.packet.PSN, 1)] // it may have waited for this one
	}
}

// place stores the data of an early packet, if its place is known and nothing is wrong with it.
func (r *responder) place(a *early) {
	p := a.packet
	if !p.Opcode.Carries() {
		return
	}
	start, off, length := r.startOf(a)
	switch {
	case start == nil || !r.fitsEarly(p, off, length):
	case sends(p.Opcode.Op()):
		r.placeSend(a, start, off)
	default:
		r.placeWrite(a, start, off)
	}
}

// startOf returns the first packet of an early packet's message, the packet's offset in it and, for a WRITE, the
// message's length. It returns nil if the first packet is missing or, for a SEND, any packet up to this one, since a
// SEND does not have its length.
func (r *responder) startOf(a *early) (start *early, off, length uint64) {
	p, mtu := a.packet, uint64(r.e.config.MTU)
	if p.Opcode.Starts() {
		return a, 0, uint64(p.RETH.Length)
	}
	send := sends(p.Opcode.Op())
	for n := 1; ; n++ {
		psn := forward(p.PSN, -n)
		if distance(psn, r.expected) < 0 {
			break
		}
		b := r.early[psn]
		switch {
		case b == nil && send, b != nil && (sends(b.packet.Opcode.Op()) != send || !b.packet.Opcode.Carries() ||
			b.packet.Opcode.Ends() || send && !b.placed):
			return nil, 0, 0
		case b != nil && b.packet.Opcode.Starts():
			return b, uint64(n) * mtu, uint64(b.packet.RETH.Length)
		}
	}
	if send || r.stage != inWrite {
		return nil, 0, 0
	}
	ahead := uint64(distance(p.PSN, r.expected))
	return &early{region: r.region}, uint64(r.done) + ahead*mtu, uint64(r.length)
}

// fitsEarly reports whether the payload has the length required by the packet's place in the message.
func (r *responder) fitsEarly(p *roce.Packet, off, length uint64) bool {
	n, mtu, ends := len(p.Payload), r.e.config.MTU, p.Opcode.Ends()
	if n > mtu || !ends && n != mtu || n == 0 && !p.Opcode.Starts() {
		return false
	}
	end := off + uint64(n)
	if sends(p.Opcode.Op()) {
		return end <= MaxMessage
	}
	return length <= MaxMessage && (ends && end == length || !ends && end < length)
}

// placeSend stores a packet of a SEND.
func (r *responder) placeSend(a, start *early, off uint64) {
	if a == start {
		r.claimEarly(a)
	}
	if start.receive == nil {
		return
	}
	fault, epoch := OK, r.e.epoch
	if len(a.packet.Payload) > 0 {
		fault = r.e.queues.Deliver(start.receive, uint32(off), a.packet.Payload)
	}
	switch {
	case r.e.epoch != epoch:
	case fault == PageFaultLost:
		start.receive = nil
	default:
		a.placed = fault == OK
	}
}

// placeWrite stores a packet of a WRITE.
func (r *responder) placeWrite(a, start *early, off uint64) {
	p, epoch := a.packet, r.e.epoch
	if a == start && p.RETH.Length > 0 {
		region, fault := r.e.queues.Remote(p.XRCSRQ, p.RETH.RKey, p.RETH.VA, p.RETH.Length, RemoteWrite)
		if r.e.epoch != epoch || fault != OK {
			return
		}
		a.region = region
	}
	if len(p.Payload) > 0 {
		if start.region == nil {
			return
		}
		if fault := start.region.Write(uint32(off), p.Payload); r.e.epoch != epoch || fault != OK {
			return
		}
	}
	a.placed = true
	if needsReceive(p) {
		r.claimEarly(a)
	}
}

// claimEarly gets a receive request for an early packet. It leaves one for each message that may be missing before
// the packet: these complete first, and the receive requests that they lack would never be posted.
func (r *responder) claimEarly(a *early) {
	if a.receive != nil {
		return
	}
	p, needed := a.packet, 0
	for psn := r.expected; psn != p.PSN; psn = forward(psn, 1) {
		if b := r.early[psn]; b == nil || b.receive == nil && needsReceive(b.packet) {
			needed++
		}
	}
	if r.e.queues.Posted(p.XRCSRQ) <= needed {
		return
	}
	epoch := r.e.epoch
	rc, fault := r.e.queues.Receive(p.XRCSRQ)
	if r.e.epoch == epoch && fault == OK {
		a.receive = rc
	}
}

// takeBack removes and returns the receive requests of unfinished messages, in the order of PSNs.
func (r *responder) takeBack() []*Receive {
	var all []*Receive
	if r.taken != nil {
		all = append(all, r.taken)
	}
	waiting := make([]*early, 0, len(r.early))
	for _, a := range r.early {
		if a.receive != nil {
			waiting = append(waiting, a)
		}
	}
	slices.SortFunc(waiting, func(a, b *early) int {
		return cmp.Compare(distance(a.packet.PSN, r.expected), distance(b.packet.PSN, r.expected))
	})
	for _, a := range waiting {
		all = append(all, a.receive)
	}
	r.taken, r.early = nil, nil
	return all
}

// An outgoing is a packet of the requester that waits for the end of its lot.
type outgoing struct {
	path   *Path
	packet *roce.Packet
}

// sendTo sends a packet, or adds it to the lot.
func (s *sender) sendTo(path *Path, p *roce.Packet) {
	if !s.e.config.OutOfOrder || s.e.config.Reorder <= 1 {
		s.e.port.Send(path, p)
		return
	}
	if s.lot = append(s.lot, outgoing{path, p}); len(s.lot) >= s.e.config.Reorder {
		s.endLot()
	}
}

// endLot sends the packets of the lot, the last one first.
func (s *sender) endLot() {
	lot := s.lot
	s.lot = nil
	for _, o := range slices.Backward(lot) {
		s.e.port.Send(o.path, o.packet)
	}
}
