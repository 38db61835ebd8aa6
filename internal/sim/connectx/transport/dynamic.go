package transport

import "github.com/goverbs/goverbs/internal/sim/connectx/roce"

// Dynamically connected transport (DC) is reliable transport between an initiator and the targets that its
// requests name. A connection lasts as long as the initiator has requests in progress, which all have the same
// target and the same stream: the next one begins when all have completed. There is no handshake. Every packet
// has the number of its connection, and the PSN with which the connection began, so that the target recognizes
// new connections and late packets of earlier ones. The target's end of a connection is an Endpoint of type
// DCTarget.

// A link is an initiator's connection.
type link struct {
	dest   *Dest // nil if no request has had one
	stream uint16
	number uint64
	first  uint32 // PSN
}

// dynamic reports whether the endpoint is one of DC.
func (e *Endpoint) dynamic() bool { return e.config.Type == DCInitiator || e.config.Type == DCTarget }

// connected reports whether a request may begin in the initiator's connection, or begins a new one.
func (s *sender) connected(r *Request) bool {
	l := &s.link
	switch {
	case s.e.config.Type != DCInitiator, len(s.queue) == 0:
		return true
	case r.Stream != l.stream:
		return false
	}
	return r.Op == Local || r.Dest == nil || l.dest != nil && *r.Dest == *l.dest
}

// connect begins a new connection with the first request in progress.
func (s *sender) connect(r *Request) {
	if s.e.config.Type == DCInitiator && len(s.queue) == 0 {
		s.link = link{dest: r.Dest, stream: r.Stream, number: s.e.config.Connect(), first: s.next}
	}
}

// transmit sends a packet of a request.
func (s *sender) transmit(r *Request, p *roce.Packet) {
	if s.e.config.Type != DCInitiator {
		s.sendTo(&s.e.config.Path, p)
		return
	}
	p.DestQPN, p.MigReq = r.Dest.QPN, true
	p.DC = roce.DCETH{Key: r.Dest.DCKey, Connection: s.link.number, SrcQPN: s.e.config.QPN, FirstPSN: s.link.first}
	s.sendTo(&r.Dest.Path, p)
}

// Skip returns to the owner the requests of a stream that were taken from Queues and have not completed, and
// continues with those of other streams. It is for an initiator, when Done reports an error.
func (e *Endpoint) Skip(stream uint16) []*Request {
	s := &e.sender
	e.epoch++
	requests := s.queue
	s.queue = nil
	if s.pending != nil && s.pending.Stream == stream {
		requests = append(requests, s.pending)
		s.pending = nil
	}
	s.stop()
	s.start(s.next)
	e.schedule()
	return requests
}

// Idle reports whether the target's end of a connection has neither a message in progress nor a response to
// send.
func (e *Endpoint) Idle() bool {
	r := &e.responder
	return r.taken == nil && len(r.early) == 0 && r.stage == between &&
		len(r.responses) == 0 && r.ending == nil && r.stalled == nil
}
