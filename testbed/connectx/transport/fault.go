package transport

import "github.com/goverbs/goverbs/testbed/connectx/roce"

// Resume goes on after a PageFault: with requester true after one of Gather or
// Scatter, else after one of Deliver or of a Region. If fault is not OK, the
// memory cannot be had, and what needs it fails with that syndrome: a Region's as
// RemoteAccess. A call for work that was given up meanwhile does nothing.
func (e *Endpoint) Resume(requester bool, fault Syndrome) {
	if requester {
		e.sender.resume(fault)
	} else {
		e.responder.resume(fault)
	}
	e.schedule()
}

// resume goes on with the request whose memory was missing.
func (s *sender) resume(fault Syndrome) {
	r, scattering := s.stalled, s.scattering
	if r == nil {
		return
	}
	s.stalled, s.scattering = nil, false
	switch {
	case fault == OK && scattering:
		s.recovering = false
		s.goBack() // the answers were dropped: they are asked for again
	case fault == OK:
	case scattering:
		s.fail(fault)
	default:
		s.fault(r, fault)
	}
}

// stall stops the responder at a packet whose memory is missing. Those behind it
// are dropped. A peer that sends data is told to wait, once.
func (r *responder) stall(p *roce.Packet, fault Syndrome) {
	if fault == PageFaultLost {
		r.taken = nil
	}
	if !r.reliable() {
		r.drop()
		return
	}
	r.stalled = p
	if p.Opcode.Carries() && !r.resuming {
		r.say(p.PSN, roce.RNRNak|r.e.config.MinRNRTimer)
	}
}

// resume goes on with the packet or the answer whose memory was missing.
func (r *responder) resume(fault Syndrome) {
	if !r.running {
		return
	}
	if r.paused && fault != OK && len(r.answers) > 0 && r.answers[0].res != nil {
		r.refuse(r.answers[0].res.next, roce.NakRemoteAccess, AccessError)
	}
	r.paused = false
	switch {
	case r.stalled == nil || r.ending != nil:
		r.stalled = nil
	case fault != OK && r.stalled.Opcode.Carries():
		r.hopeless = fault // the peer was told to wait: it hears nothing before it sends the packet again
	default:
		r.conclude(fault)
	}
}

// conclude takes the packet whose memory was missing again, or refuses it.
func (r *responder) conclude(fault Syndrome) {
	p := r.stalled
	r.stalled, r.hopeless = nil, OK
	switch {
	case fault == OK:
		r.takeAgain(p)
	case !sends(p.Opcode.Op()):
		r.violated(p.PSN, RemoteAccess)
	case r.taken != nil:
		r.spoil(r.message(p), fault)
	default: // the receive request has its completion
		r.refuse(p.PSN, roce.NakRemoteOp, Catastrophic)
	}
}

// takeAgain takes a packet whose memory was missing. What came behind it meanwhile
// is asked for.
func (r *responder) takeAgain(p *roce.Packet) {
	epoch := r.e.epoch
	r.resuming = true
	r.take(p)
	if r.e.epoch != epoch {
		return
	}
	r.resuming = false
	if r.missed && r.stalled == nil && r.ending == nil && !r.quiet {
		r.missed, r.quiet = false, true
		r.say(r.expected, roce.NakSequence)
	}
}

// sends reports whether an operation is one of a SEND.
func sends(op roce.Opcode) bool {
	return op < roce.WriteFirst || op == roce.SendLastInv || op == roce.SendOnlyInv
}
