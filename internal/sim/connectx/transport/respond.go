package transport

import "github.com/goverbs/goverbs/internal/sim/connectx/roce"

// sendResponses sends up to room queued responses. It returns the room that is
// left, or 0 if there may be more to send.
func (r *responder) sendResponses(room int) int {
	for epoch := r.e.epoch; room > 0 && r.running && !r.paused && r.e.epoch == epoch && len(r.responses) > 0; room-- {
		a := r.responses[0]
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
	if r.running && r.ending != nil && len(r.responses) == 0 {
		r.finish()
	}
	return room
}

// pop removes the first response from the queue.
func (r *responder) pop() {
	if res := r.responses[0].res; res != nil {
		res.queued = false
	}
	r.responses[0] = response{}
	if r.responses = r.responses[1:]; len(r.responses) == 0 {
		r.responses = nil
	}
}

var readOperations = [4]roce.Opcode{roce.ReadResponseFirst, roce.ReadResponseMid, roce.ReadResponseLast,
	roce.ReadResponseOnly}

// readPacket returns the next packet of a READ response, or the fault if the
// memory cannot be read.
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
