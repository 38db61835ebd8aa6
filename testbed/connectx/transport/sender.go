package transport

import (
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/roce"
)

const (
	window   = 128         // packets with payload that may be unacknowledged
	ackEvery = 32          // packets after which an acknowledgment is asked for
	maxSpan  = 1<<23 - 256 // PSNs that may be unacknowledged: fewer than half of all
)

// A way is how far an endpoint has come with a request that it has taken.
type way struct {
	first, last uint32 // PSNs
	packets     int    // 0: a local request
	mtu         int
	before      int // packets with payload that were sent before this request
	fault       Syndrome
}

// reads reports whether the request is answered by more than an acknowledgment.
func (r *Request) reads() bool { return r.Op >= Read && r.Op <= MaskedFetchAdd }

// A sender is the requester of an endpoint.
type sender struct {
	e       *Endpoint
	running bool
	queue   []*Request // begun and not done, in order
	pending *Request   // taken, but must not begin yet
	next    uint32     // PSN of the next request that begins
	unacked uint32     // the oldest PSN that waits for its answer
	sent    uint32     // the PSN behind the last that was ever sent

	at, part int // the next packet: its request, as an index of queue, and its place in there

	payloads int // packets with payload of all requests that began
	silent   int // packets since an acknowledgment was asked for
	reading  int // READs and atomics in queue

	retries, rnrs uint8 // that are left
	recovering    bool  // goes back already; the next timeout may do it again
	waiting       bool  // for the end of an RNR time
	drained       bool
	timer         clock
}

// start begins with the given PSN.
func (s *sender) start(psn uint32) {
	psn &= psnMask
	s.running = true
	s.next, s.unacked, s.sent = psn, psn, psn
	s.at, s.part, s.silent, s.reading = 0, 0, 0, 0
	s.waiting = false
	s.refill()
}

// stop ends everything; the requests wait for TakeBack.
func (s *sender) stop() {
	s.running, s.waiting = false, false
	s.timer.stop()
}

// refill makes the retries complete again, for something went well.
func (s *sender) refill() {
	s.retries, s.rnrs, s.recovering = s.e.config.RetryCount, s.e.config.RNRRetry, false
}

// send sends up to room packets; it returns the room that is left, 0 if there
// may be more to send.
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

// active reports whether the state lets packets out.
func (s *sender) active() bool {
	return s.running && !s.waiting && (s.e.state == RTS || s.e.state == SQD)
}

// sendNext sends the next packet of a request, if it may go now. More reports
// whether there can be a next one at once.
func (s *sender) sendNext(r *Request) (sent, more bool) {
	switch {
	case r.way.fault != OK:
		return false, false // when all before it is done, it fails
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
	s.e.transmit(p)
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

// fault marks a request that cannot be sent; if nothing is before it, it fails
// at once.
func (s *sender) fault(r *Request, fault Syndrome) (more bool) {
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

// reliable reports whether the peer answers.
func (s *sender) reliable() bool {
	return s.e.config.Type == RC || s.e.config.Type == XRCInitiator
}

// inFlight is how many packets with payload wait for their acknowledgment, when
// r is the request that goes on.
func (s *sender) inFlight(r *Request) int {
	head := s.queue[0]
	acked := head.way.before
	if head.way.packets > 0 && !head.reads() {
		acked += max(0, distance(s.unacked, head.way.first))
	}
	return r.way.before + s.part - acked
}

// begin takes the next request and gives it its PSNs. It reports whether there
// is something to go on with.
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

// check is how many packets a request has, and what is wrong with it.
func (s *sender) check(r *Request) (n int, fault Syndrome) {
	if n = packets(r.Length, s.e.config.MTU); r.Op > Read && r.Op < Local {
		n = 1
	}
	switch t := s.e.config.Type; {
	case r.Op == Local:
		return 0, OK
	case r.Op > Local, t == XRCTarget,
		t == UD && (r.Op > SendImm || r.Dest == nil),
		t == UC && (r.reads() || r.Op == SendInval),
		r.reads() && s.e.config.MaxInitiate <= 0:
		return 0, LocalQPOp
	case n > maxSpan, t == UD && n > 1:
		return 0, LocalLength
	}
	return n, OK
}

// mayBegin reports whether fence, limits and the room of PSNs let a request begin.
func (s *sender) mayBegin(r *Request, n int) bool {
	switch {
	case r.Fence && s.reading > 0:
		return false
	case r.reads() && s.reading > 0 && s.reading >= s.e.config.MaxInitiate:
		return false
	}
	return !s.reliable() || distance(s.next, s.unacked)+n <= maxSpan
}

// drain says that everything that had begun is done.
func (s *sender) drain() {
	if s.e.state == SQD && !s.drained && len(s.queue) == 0 {
		s.drained = true
		s.e.queues.SQDrained()
	}
}

// finish ends the requests at the head of the queue that have their answers.
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
		s.queue = nil // of a long queue, the array goes as well
		s.e.schedule()
	}
}

// pop takes the first request out of the queue.
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

// watch runs the timer while an answer is to come.
func (s *sender) watch() {
	d := AckTime(s.e.config.AckTimeout)
	switch {
	case !s.running || s.waiting:
	case distance(s.sent, s.unacked) <= 0 || d == 0:
		s.timer.stop()
	case !s.timer.set:
		s.timer.start(s.e.loop, d, s.timeout)
	}
}

// timeout is the end of the time for an answer.
func (s *sender) timeout() {
	s.recovering = false
	s.retry()
}

// retry goes back to the oldest packet without answer, if there are retries left.
func (s *sender) retry() {
	if s.recovering {
		return
	}
	if s.retries == 0 && !s.changePath() {
		s.fail(TransportRetry)
		return
	}
	if !s.running {
		return
	}
	s.retries--
	s.recovering = true
	s.goBack()
}

// changePath migrates, if the alternate path is armed: it gets its own retries.
func (s *sender) changePath() bool {
	if s.e.config.Migration != Armed {
		return false
	}
	s.e.migrate()
	s.retries = s.e.config.RetryCount + 1 // the first attempt is no retry
	return true
}

// goBack makes the oldest packet without answer the next one to send.
func (s *sender) goBack() {
	s.at, s.part = len(s.queue), 0
	for i, r := range s.queue {
		if r.way.packets > 0 && distance(r.way.last, s.unacked) >= 0 {
			s.at, s.part = i, max(0, distance(s.unacked, r.way.first))
			break
		}
	}
	s.timer.stop()
	s.e.schedule()
}

// wait stops sending for the time of an RNR NAK.
func (s *sender) wait(d time.Duration) {
	s.waiting = true
	s.timer.stop()
	s.timer.start(s.e.loop, d, func() {
		s.waiting, s.recovering = false, false
		s.goBack()
	})
}

// fail ends the oldest request that has no answer with an error, and with it
// the sending.
func (s *sender) fail(why Syndrome) {
	s.stop()
	if len(s.queue) == 0 {
		return
	}
	r := s.queue[0]
	s.pop()
	s.e.queues.Done(r, why)
}

// build makes the packet that is next.
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
		p.Atomic = roce.AtomicETH{VA: r.RemoteAddr, RKey: r.RKey, Swap: o[0], Compare: o[1], SwapMask: o[2], CompareMask: o[3]}
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

// operations is the opcodes of a request's packets: the first, one in the middle,
// the last and the only one.
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

// opcode is the opcode of the packet that is next.
func (s *sender) opcode(r *Request) roce.Opcode {
	return place(operations[r.Op], s.part == 0, s.part == r.way.packets-1)
}

// place is the opcode for a packet's place in its message.
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

// sendDatagram sends the one packet of a datagram.
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
