package transport

import "github.com/goverbs/goverbs/testbed/connectx/roce"

// answer sends up to room answers; it returns the room that is left, 0 if there
// may be more to send.
func (r *responder) answer(room int) int {
	for epoch := r.e.epoch; room > 0 && r.running && !r.paused && r.e.epoch == epoch && len(r.answers) > 0; room-- {
		a := r.answers[0]
		var p *roce.Packet
		switch {
		case a.res == nil:
			p = r.e.packet(roce.Acknowledge, a.psn)
			p.AETH = a.aeth
		case a.res.atomic:
			p = r.e.packet(roce.AtomicAcknowledge, a.psn)
			p.AETH, p.AtomicAck = roce.AETH{Syndrome: roce.AckNoCredits, MSN: a.res.count}, a.res.old
		default:
			var fault Syndrome
			p, fault = r.readPacket(a.res)
			if r.e.epoch != epoch {
				return room
			}
			if fault == PageFault {
				r.paused = true
				return room
			}
			if fault != OK {
				r.refuse(a.res.next, roce.NakRemoteAccess, AccessError)
				continue
			}
		}
		if a.res == nil || a.res.atomic || distance(a.res.next, a.res.last) > 0 {
			r.pop()
		}
		r.e.transmit(p)
	}
	if r.running && r.ending != nil && len(r.answers) == 0 {
		r.finish()
	}
	return room
}

// pop takes the first answer from the queue.
func (r *responder) pop() {
	if res := r.answers[0].res; res != nil {
		res.queued = false
	}
	r.answers[0] = answer{}
	if r.answers = r.answers[1:]; len(r.answers) == 0 {
		r.answers = nil
	}
}

var readOperations = [4]roce.Opcode{roce.ReadResponseFirst, roce.ReadResponseMid, roce.ReadResponseLast, roce.ReadResponseOnly}

// readPacket returns the next packet of a READ's answer, or why the memory cannot
// be read.
func (r *responder) readPacket(res *resource) (*roce.Packet, Syndrome) {
	p := r.e.packet(place(readOperations, res.next == res.begin, res.next == res.last), res.next)
	p.AETH = roce.AETH{Syndrome: roce.AckNoCredits, MSN: res.count}
	off := uint32(distance(res.next, res.first) * res.mtu)
	if n := min(res.length-off, uint32(res.mtu)); n > 0 {
		p.Payload = make([]byte, n)
		if fault := res.region.Read(off-res.base, p.Payload); fault != OK {
			return nil, fault
		}
	}
	res.next = forward(res.next, 1)
	return p, OK
}
