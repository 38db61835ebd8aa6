package transport

import "github.com/goverbs/goverbs/internal/sim/connectx/roce"

// Resume continues after a PageFault: with requester true after one of Gather
// or Scatter, else after one of Deliver or of a Region. If fault is not OK, the
// memory is not available, and the request that needs it fails with that
// syndrome (with RemoteAccess for a Region). Resume does nothing if the request
// was abandoned meanwhile.
func (e *Endpoint) Resume(requester bool, fault Syndrome) {
	if requester {
		e.sender.resume(fault)
	} else {
		e.responder.resume(fault)
	}
	e.schedule()
}

// resume continues with the request that had a page fault.
func (s *sender) resume(fault Syndrome) {
	r, scattering := s.stalled, s.scattering
	if r == nil {
		return
	}
	s.stalled, s.scattering = nil, false
	switch {
	case fault == OK && scattering:
		s.recovering = false
		s.goBack() // the responses were dropped: request them again
	case fault == OK:
	case scattering:
		s.fail(fault)
	default:
		s.fault(r, fault)
	}
}

// stall stops the responder at a packet that had a page fault. Packets behind
// it are dropped.
func (r *responder) stall(p *roce.Packet, fault Syndrome) {
	if fault == PageFaultLost {
		r.taken = nil
	}
	if !r.reliable() {
		r.drop()
		return
	}
	r.stalled = p
	if !r.resuming {
		r.notReady(p)
	}
}

// notReady sends an RNR NAK for a packet with data that has a page fault. The peer
// gets one each time it sends the packet: a host that is slow to provide the page
// must not use up the peer's retries.
func (r *responder) notReady(p *roce.Packet) {
	if p.Opcode.Carries() {
		r.queueAck(p.PSN, roce.RNRNak|r.e.config.MinRNRTimer)
	}
}

// resume continues with the packet or the response that had a page fault.
func (r *responder) resume(fault Syndrome) {
	if !r.running {
		return
	}
	if r.paused && fault != OK && len(r.responses) > 0 && r.responses[0].res != nil {
		r.refuse(r.responses[0].res.next, roce.NakRemoteAccess, AccessError)
	}
	r.paused = false
	switch {
	case r.stalled == nil || r.ending != nil:
		r.stalled = nil
	case fault != OK && r.stalled.Opcode.Carries():
		r.pendingFault = fault // the peer waits for the end of the RNR time: refuse the packet when it sends it again
	default:
		r.conclude(fault)
	}
}

// conclude processes the packet that had a page fault again, or refuses it.
func (r *responder) conclude(fault Syndrome) {
	p := r.stalled
	r.stalled, r.pendingFault = nil, OK
	switch {
	case fault == OK:
		r.processAgain(p)
	case !sends(p.Opcode.Op()):
		r.violated(p.PSN, RemoteAccess)
	case r.taken != nil:
		r.failReceive(r.message(p), fault)
	default: // the receive request has completed
		r.refuse(p.PSN, roce.NakRemoteOp, Catastrophic)
	}
}

// processAgain processes a packet that had a page fault, and requests the
// packets dropped meanwhile.
func (r *responder) processAgain(p *roce.Packet) {
	epoch := r.e.epoch
	r.resuming = true
	r.proceed(p)
	if r.e.epoch != epoch {
		return
	}
	r.resuming = false
	if r.missed && r.stalled == nil && r.ending == nil && !r.quiet {
		r.missed, r.quiet = false, true
		r.queueAck(r.expected, roce.NakSequence)
	}
}

// sends reports whether an operation belongs to a SEND.
func sends(op roce.Opcode) bool {
	return op < roce.WriteFirst || op == roce.SendLastInv || op == roce.SendOnlyInv
}
