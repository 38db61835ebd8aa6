package transport

const (
	window   = 128         // packets with payload that may be unacknowledged
	ackEvery = 32          // packets after which an acknowledgment is requested
	maxSpan  = 1<<23 - 256 // PSNs that may be unacknowledged: fewer than half of all
)

// A way is the endpoint's state of a request.
type way struct {
	first, last uint32 // PSNs
	packets     int    // 0 for a local request
	mtu         int
	before      int // packets with payload that were sent before this request
	fault       Syndrome
}

// reads reports whether the request has a response with data.
func (r *Request) reads() bool { return r.Op.Reads() }

// A sender is the requester of an endpoint.
type sender struct {
	e       *Endpoint
	running bool
	queue   []*Request // begun and not completed, in order
	pending *Request   // taken from Queues, but may not begin yet
	next    uint32     // PSN of the next request that begins
	unacked uint32     // the oldest unacknowledged PSN
	sent    uint32     // the PSN after the last one ever sent

	at, part int // the next packet: its request as an index of queue, and its index in the request

	payloads int // packets with payload of all requests that have begun
	silent   int // packets since an acknowledgment was requested
	reading  int // READs and atomics in queue

	retries, rnrs uint8    // left
	stalled       *Request // it had a page fault: see Resume
	scattering    bool     // the fault was of Scatter: all responses are dropped
	recovering    bool     // has gone back already; only a timeout does it again
	waiting       bool     // for the end of an RNR time
	drained       bool
	timer         clock
	link          link       // DC
	lot           []outgoing // packets that wait for others: Config.Reorder
}

// start begins with the given PSN.
func (s *sender) start(psn uint32) {
	psn &= psnMask
	s.running = true
	s.next, s.unacked, s.sent = psn, psn, psn
	s.at, s.part, s.silent, s.reading = 0, 0, 0, 0
	s.waiting = false
	s.stalled, s.scattering = nil, false
	s.refill()
}

// stop stops the sender. Outstanding requests are returned by TakeBack.
func (s *sender) stop() {
	s.running, s.waiting = false, false
	s.stalled, s.scattering = nil, false
	s.timer.stop()
}

// refill resets the retry counters after progress.
func (s *sender) refill() {
	s.retries, s.rnrs, s.recovering = s.e.config.RetryCount, s.e.config.RNRRetry, false
}

// send sends up to room packets. It returns the room that is left, or 0 if
// there may be more to send.
func (s *sender) send(room int) int {
	for epoch := s.e.epoch; room > 0 && s.e.epoch == epoch && s.active(); {
		var sent, more bool
		if s.at < len(s.queue) {
			sent, more = s.sendNext(s.queue[s.at])
		} else {
			more = s.begin()
		}
		if sent {
			room--
		}
		if !more {
			break
		}
	}
	s.drain()
	return room
}

// active reports whether the state permits sending.
func (s *sender) active() bool {
	return s.running && !s.waiting && s.stalled == nil && (s.e.state == RTS || s.e.state == SQD)
}

// sendNext sends the next packet of a request, if permitted. more reports
// whether another packet may follow at once.
func (s *sender) sendNext(r *Request) (sent, more bool) {
	switch {
	case r.way.fault != OK:
		return false, false // it fails when all requests before it have completed
	case r.way.packets == 0:
		s.at++
		return false, true
	case s.e.config.Type == UD:
		return s.sendDatagram(r)
	case !r.reads() && s.reliable() && s.inFlight(r) >= window:
		return false, false
	}
	p, fault := s.build(r)
	if fault != OK {
		return false, s.fault(r, fault)
	}
	psn := p.PSN
	s.advance(r)
	if r.reads() {
		psn = r.way.last
	}
	if distance(psn, s.sent) >= 0 {
		s.sent = forward(psn, 1)
	}
	s.transmit(r, p)
	if s.reliable() {
		s.watch()
		return true, true
	}
	if s.part == 0 {
		s.unacked = forward(psn, 1)
		s.finish()
	}
	return true, true
}

// fault records the fault of a request that cannot be sent. It fails at once if
// it is the oldest. A page fault stops the sender until Resume.
func (s *sender) fault(r *Request, fault Syndrome) (more bool) {
	if fault == PageFault {
		s.stalled = r
		return false
	}
	r.way.fault = fault
	s.finish()
	return false
}

// advance moves on to the next packet.
func (s *sender) advance(r *Request) {
	if s.part++; r.reads() || s.part == r.way.packets {
		s.at, s.part = s.at+1, 0
	}
}

// reliable reports whether the peer sends acknowledgments.
func (s *sender) reliable() bool {
	switch s.e.config.Type {
	case RC, XRCInitiator, DCInitiator:
		return true
	}
	return false
}

// inFlight returns the number of unacknowledged packets with payload, where r
// is the current request.
func (s *sender) inFlight(r *Request) int {
	head := s.queue[0]
	acked := head.way.before
	if head.way.packets > 0 && !head.reads() {
		acked += max(0, distance(s.unacked, head.way.first))
	}
	return r.way.before + s.part - acked
}

// begin starts the next request and assigns its PSNs. It reports whether there
// is a packet to send.
func (s *sender) begin() bool {
	if s.e.state != RTS {
		return false
	}
	epoch := s.e.epoch
	if s.pending == nil {
		r := s.e.queues.Next()
		if r == nil || s.e.epoch != epoch {
			s.pending = r
			return false
		}
		r.way = way{mtu: s.e.config.MTU}
		s.pending = r
	}
	r := s.pending
	n, fault := s.check(r)
	if !s.mayBegin(r, n) {
		return false
	}
	s.connect(r)
	r.way.first, r.way.last, r.way.before, r.way.fault = s.next, forward(s.next, n-1), s.payloads, fault
	if r.Op == Local && fault == OK {
		if r.way.fault = s.e.queues.Execute(r); s.e.epoch != epoch {
			return false
		}
	}
	s.pending = nil
	s.queue = append(s.queue, r)
	if r.way.fault != OK || r.Op == Local {
		r.way.last = s.next
		s.finish()
		return true
	}
	r.way.packets = n
	s.next = forward(s.next, n)
	if r.reads() {
		s.reading++
	} else {
		s.payloads += n
	}
	return true
}

// check returns the number of packets of a request, or its fault.
func (s *sender) check(r *Request) (n int, fault Syndrome) {
	if n = packets(r.Length, s.e.config.MTU); r.Op > Read && r.Op < Local {
		n = 1
	}
	switch t := s.e.config.Type; {
	case r.Op == Local:
		return 0, OK
	case r.Op > Local, t == XRCTarget, t == DCTarget,
		t == UD && (r.Op > SendImm || r.Dest == nil),
		t == DCInitiator && r.Dest == nil,
		t == UC && (r.reads() || r.Op == SendInval),
		r.reads() && s.e.config.MaxInitiate <= 0:
		return 0, LocalQPOp
	case n > maxSpan, t == UD && n > 1:
		return 0, LocalLength
	}
	return n, OK
}

// mayBegin reports whether fence, limits and PSNs permit a request to begin.
func (s *sender) mayBegin(r *Request, n int) bool {
	switch {
	case r.Fence && s.reading > 0:
		return false
	case r.reads() && s.reading > 0 && s.reading >= s.e.config.MaxInitiate:
		return false
	case !s.connected(r):
		return false
	}
	return !s.reliable() || distance(s.next, s.unacked)+n <= maxSpan
}

// drain reports that all requests that had begun have completed.
func (s *sender) drain() {
	if s.e.state == SQD && !s.drained && len(s.queue) == 0 {
		s.drained = true
		s.e.queues.SQDrained()
	}
}

// finish completes the acknowledged requests at the head of the queue.
func (s *sender) finish() {
	for epoch := s.e.epoch; len(s.queue) > 0 && s.e.epoch == epoch; {
		r := s.queue[0]
		if fault := r.way.fault; fault != OK {
			s.pop()
			s.stop()
			s.e.queues.Done(r, fault)
			return
		}
		if r.way.packets > 0 && distance(s.unacked, r.way.last) <= 0 {
			return
		}
		s.pop()
		s.e.queues.Done(r, OK)
	}
	if len(s.queue) == 0 && s.running {
		s.queue = nil // free the array of a long queue
		s.e.schedule()
	}
}

// pop removes the first request from the queue.
func (s *sender) pop() {
	r := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	if s.at > 0 {
		s.at--
	} else {
		s.part = 0
	}
	if r.reads() && r.way.packets > 0 {
		s.reading--
	}
}
