package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// handleResponse processes a packet of the peer's responder.
func (s *sender) handleResponse(p *roce.Packet) {
	if !s.running || s.scattering || s.e.state != RTS && s.e.state != SQD {
		return
	}
	if distance(p.PSN, s.unacked) < 0 || distance(p.PSN, s.sent) >= 0 {
		return // of a packet that is already acknowledged, or was never sent
	}
	epoch := s.e.epoch
	switch p.Opcode.Op() {
	case roce.Acknowledge:
		s.handleAck(p)
	case roce.AtomicAcknowledge:
		s.atomicResponse(p)
	default:
		s.readResponse(p)
	}
	if s.e.epoch != epoch || !s.running {
		return
	}
	s.e.schedule()
}

// handleAck processes an ACK or a NAK.
func (s *sender) handleAck(p *roce.Packet) {
	kind := p.AETH.Kind()
	if kind != roce.Ack {
		if s.waiting {
			return // the peer drops packets until the RNR time ends
		}
		if !s.ackUpTo(p.PSN, kind) {
			return
		}
	}
	switch kind {
	case roce.Ack:
		s.ackUpTo(forward(p.PSN, 1), kind)
	case roce.RNRNak:
		s.handleRNR(p.AETH.Syndrome)
	case roce.Nak:
		s.handleNAK(p.AETH.Syndrome)
	}
}

// handleNAK processes a NAK of the oldest unacknowledged packet.
func (s *sender) handleNAK(syndrome uint8) {
	switch syndrome {
	case roce.NakSequence:
		s.retry()
	case roce.NakInvalidRequest:
		s.fail(RemoteInvalidRequest)
	case roce.NakRemoteAccess:
		s.fail(RemoteAccess)
	case roce.NakRemoteOp:
		s.fail(RemoteOp)
	default:
		s.fail(BadResponse)
	}
}

// handleRNR processes an RNR NAK of the oldest unacknowledged packet.
func (s *sender) handleRNR(syndrome uint8) {
	if s.e.config.RNRRetry != 7 {
		if s.rnrs == 0 {
			s.fail(RNRRetry)
			return
		}
		s.rnrs--
	}
	s.retries = s.e.config.RetryCount // the peer is reachable
	s.wait(RNRTime(syndrome))
}

// ackUpTo marks the packets before psn as acknowledged. A READ or an atomic
// without its response cannot be acknowledged by a later packet: it is
// requested again. ackUpTo reports whether all packets before psn were marked.
func (s *sender) ackUpTo(psn uint32, kind uint8) bool {
	to, missing := psn, false
	for _, r := range s.queue {
		if distance(r.way.first, psn) >= 0 {
			break
		}
		if r.reads() && r.way.packets > 0 && distance(r.way.last, s.unacked) >= 0 {
			to = r.way.first
			if distance(to, s.unacked) < 0 {
				to = s.unacked
			}
			missing = kind != roce.Ack || distance(psn, r.way.last) > 1
			break
		}
	}
	epoch := s.e.epoch
	s.progress(to)
	if s.e.epoch != epoch || !s.running {
		return false
	}
	if missing && to != psn {
		s.retry() // its response came before this packet, and was lost
	}
	return to == psn
}

// progress marks all packets before psn as acknowledged.
func (s *sender) progress(psn uint32) {
	n := distance(psn, s.unacked)
	if n <= 0 {
		return
	}
	s.unacked = psn
	s.refill()
	if s.waiting { // an earlier attempt of the request succeeded
		s.waiting = false
		s.goBack()
	} else {
		s.catchUp()
	}
	epoch := s.e.epoch
	if s.finish(); s.running && s.e.epoch == epoch {
		s.timer.set = false // restart the timeout
		s.watch()
	}
}

// catchUp skips packets that were to be sent again and have been acknowledged
// meanwhile.
func (s *sender) catchUp() {
	if s.at == len(s.queue) {
		return
	}
	r := s.queue[s.at]
	if r.way.packets == 0 || distance(s.unacked, forward(r.way.first, s.part)) <= 0 {
		return
	}
	s.at, s.part = len(s.queue), 0
	for i, r := range s.queue {
		if r.way.packets == 0 || distance(r.way.last, s.unacked) >= 0 {
			if r.way.packets > 0 {
				s.part = max(0, distance(s.unacked, r.way.first))
			}
			s.at = i
			break
		}
	}
}

// requestAt returns the READ or atomic to which a PSN belongs, or nil.
func (s *sender) requestAt(psn uint32) *Request {
	for _, r := range s.queue {
		if r.way.packets > 0 && distance(psn, r.way.first) >= 0 && distance(psn, r.way.last) <= 0 {
			if r.reads() {
				return r
			}
			break
		}
	}
	return nil
}

// readResponse processes a packet of a READ response.
func (s *sender) readResponse(p *roce.Packet) {
	r := s.requestAt(p.PSN)
	if r == nil || r.Op != Read {
		s.badResponse(p)
		return
	}
	if !s.reach(p) {
		return
	}
	part := distance(p.PSN, r.way.first)
	off := uint32(part * r.way.mtu)
	want, ends := min(r.Length-off, uint32(r.way.mtu)), part == r.way.packets-1
	if uint32(len(p.Payload)) != want || p.Opcode.Ends() != ends ||
		p.Opcode.Op() != roce.ReadResponseMid && p.AETH.Kind() != roce.Ack {
		s.fail(BadResponse)
		return
	}
	s.store(r, off, p)
}

// atomicResponse processes the response of an atomic.
func (s *sender) atomicResponse(p *roce.Packet) {
	r := s.requestAt(p.PSN)
	if r == nil || r.Op == Read || p.AETH.Kind() != roce.Ack {
		s.badResponse(p)
		return
	}
	if !s.reach(p) {
		return
	}
	p.Payload = binary.BigEndian.AppendUint64(nil, p.AtomicAck)
	s.store(r, 0, p)
}

// badResponse processes a response that does not match its request. The request
// fails once all requests before it have completed.
func (s *sender) badResponse(p *roce.Packet) {
	if s.reach(p) {
		s.fail(BadResponse)
	}
}

// reach marks everything before a response as acknowledged. It reports whether
// the response is the next expected one.
func (s *sender) reach(p *roce.Packet) bool {
	return s.ackUpTo(p.PSN, roce.Nak) && s.unacked == p.PSN
}

// store passes the payload to the owner and marks the packet as acknowledged.
func (s *sender) store(r *Request, off uint32, p *roce.Packet) {
	epoch := s.e.epoch
	if len(p.Payload) > 0 {
		fault := s.e.queues.Scatter(r, off, p.Payload)
		if s.e.epoch != epoch {
			return
		}
		if fault == PageFault {
			s.stalled, s.scattering = r, true
			s.timer.stop()
			return
		}
		if fault != OK {
			s.fail(fault)
			return
		}
	}
	s.progress(forward(p.PSN, 1))
}
