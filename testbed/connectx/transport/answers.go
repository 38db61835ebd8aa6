package transport

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/testbed/connectx/roce"
)

// answered takes a packet of the peer's responder.
func (s *sender) answered(p *roce.Packet) {
	if !s.running || s.scattering || s.e.state != RTS && s.e.state != SQD {
		return
	}
	if distance(p.PSN, s.unacked) < 0 || distance(p.PSN, s.sent) >= 0 {
		return // of a packet that has its answer already, or that was never sent
	}
	epoch := s.e.epoch
	switch p.Opcode.Op() {
	case roce.Acknowledge:
		s.acknowledged(p)
	case roce.AtomicAcknowledge:
		s.atomicAnswer(p)
	default:
		s.readAnswer(p)
	}
	if s.e.epoch != epoch || !s.running {
		return
	}
	s.e.schedule()
}

// acknowledged takes an ACK or a NAK.
func (s *sender) acknowledged(p *roce.Packet) {
	kind := p.AETH.Kind()
	if kind != roce.Ack {
		if s.waiting {
			return // the peer drops what comes before the end of the time
		}
		if !s.upTo(p.PSN, kind) {
			return
		}
	}
	switch kind {
	case roce.Ack:
		s.upTo(forward(p.PSN, 1), kind)
	case roce.RNRNak:
		s.notReady(p.AETH.Syndrome)
	case roce.Nak:
		s.refused(p.AETH.Syndrome)
	}
}

// refused takes a NAK of the oldest packet without answer.
func (s *sender) refused(syndrome uint8) {
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

// notReady takes an RNR NAK of the oldest packet without answer.
func (s *sender) notReady(syndrome uint8) {
	if s.e.config.RNRRetry != 7 {
		if s.rnrs == 0 {
			s.fail(RNRRetry)
			return
		}
		s.rnrs--
	}
	s.retries = s.e.config.RetryCount // the peer is there
	s.wait(RNRTime(syndrome))
}

// upTo takes everything before the PSN as answered that an acknowledgment can
// answer. It reports whether that was everything: a READ or an atomic whose own
// answer is missing is asked for again.
func (s *sender) upTo(psn uint32, kind uint8) bool {
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
		s.retry() // its answer came before this one, and was lost
	}
	return to == psn
}

// progress takes everything before the PSN as answered.
func (s *sender) progress(psn uint32) {
	n := distance(psn, s.unacked)
	if n <= 0 {
		return
	}
	s.unacked = psn
	s.refill()
	if s.waiting { // what was refused has got through in an earlier attempt
		s.waiting = false
		s.goBack()
	} else {
		s.catchUp()
	}
	epoch := s.e.epoch
	if s.finish(); s.running && s.e.epoch == epoch {
		s.timer.set = false // the peer has the whole time again
		s.watch()
	}
}

// catchUp skips packets that were to be sent again and have their answer now.
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

// reader finds the READ or atomic that a PSN is part of.
func (s *sender) reader(psn uint32) *Request {
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

// readAnswer takes a piece of a READ.
func (s *sender) readAnswer(p *roce.Packet) {
	r := s.reader(p.PSN)
	if r == nil || r.Op != Read {
		s.badAnswer(p)
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

// atomicAnswer takes the old value of an atomic.
func (s *sender) atomicAnswer(p *roce.Packet) {
	r := s.reader(p.PSN)
	if r == nil || r.Op == Read || p.AETH.Kind() != roce.Ack {
		s.badAnswer(p)
		return
	}
	if !s.reach(p) {
		return
	}
	p.Payload = binary.BigEndian.AppendUint64(nil, p.AtomicAck)
	s.store(r, 0, p)
}

// badAnswer takes an answer that its request cannot have: an error of the request,
// once all before it is answered.
func (s *sender) badAnswer(p *roce.Packet) {
	if s.reach(p) {
		s.fail(BadResponse)
	}
}

// reach takes everything before an answer as answered. It reports whether the
// answer is the one that is expected next.
func (s *sender) reach(p *roce.Packet) bool {
	return s.upTo(p.PSN, roce.Nak) && s.unacked == p.PSN
}

// store gives the owner what has come, and goes on behind it.
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
