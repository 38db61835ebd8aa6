package transport

import (
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// MaxMessage is the maximum length of a message in bytes.
const MaxMessage = 1 << 31

// A stage is how much of a message has been received.
type stage uint8

const (
	between stage = iota // between messages
	inSend
	inWrite
)

// A responder is the receiving half of an endpoint.
type responder struct {
	e            *Endpoint
	running      bool
	expected     uint32 // the next PSN
	count        uint32 // messages completed: the MSN
	quiet        bool   // a NAK was sent: packets out of order are ignored
	ending       *ending
	stalled      *roce.Packet // it had a page fault: see Resume
	pendingFault Syndrome     // the fault of an access after Resume, for the refusal when the peer retries
	missed       bool         // packets behind it were dropped
	resuming     bool         // it is processed again
	paused       bool         // the first response had a page fault

	// The message in progress.
	stage  stage
	lost   bool // unreliable: the rest of the message is dropped
	taken  *Receive
	region Region
	done   uint32 // bytes received
	length uint32 // of the WRITE
	placed bool   // the payload of the packet that is processed is stored already

	early map[uint32]*early // packets that are ahead, by PSN

	memory    []*resource // READs and atomics, oldest first
	responses []response  // to be sent, ordered by PSN
}

// An ending is reported after the last NAK was sent.
type ending struct {
	message *Message // completes the receive request in use; may be nil
	event   Event
}

// start prepares for the first packet.
func (r *responder) start() {
	*r = responder{e: r.e, running: true, expected: r.e.config.RecvPSN & psnMask, taken: r.taken}
}

// stop stops the responder. Receive requests in use are returned by TakeBack.
func (r *responder) stop() {
	*r = responder{e: r.e, expected: r.expected, taken: r.taken, early: r.early}
}

// reliable reports whether the peer expects acknowledgments.
func (r *responder) reliable() bool {
	switch r.e.config.Type {
	case RC, XRCTarget, DCTarget:
		return true
	}
	return false
}

// request processes a request packet of a reliable service.
func (r *responder) request(p *roce.Packet) {
	if !r.running || r.ending != nil {
		return
	}
	switch d := distance(p.PSN, r.expected); {
	case d < 0:
		r.duplicate(p)
	case r.stalled != nil && d > 0:
		r.missed = true
		return
	case r.stalled != nil && r.pendingFault != OK:
		r.conclude(r.pendingFault)
	case r.stalled != nil:
		r.notReady(p)
	case d > 0 && d < maxAhead && r.e.config.OutOfOrder:
		r.ahead(p)
	case d > 0:
		if !r.quiet {
			r.quiet = true
			r.queueAck(r.expected, roce.NakSequence)
		}
	default:
		r.quiet, r.missed = false, false
		r.proceed(p)
	}
	r.e.schedule()
}

// take carries out the next packet in order.
func (r *responder) take(p *roce.Packet) {
	if !r.inOrder(p.Opcode) || !r.rightSize(p) {
		r.refuse(p.PSN, roce.NakInvalidRequest, RequestError)
		return
	}
	switch p.Opcode.Op() {
	case roce.ReadRequest:
		r.read(p)
	case roce.CompareSwap, roce.FetchAdd, roce.MaskedCompareSwap, roce.MaskedFetchAdd:
		r.atomic(p)
	case roce.WriteFirst, roce.WriteMiddle, roce.WriteLast, roce.WriteLastImm, roce.WriteOnly, roce.WriteOnlyImm:
		r.write(p)
	default:
		r.send(p)
	}
}

// inOrder reports whether an operation may follow the previous one.
func (r *responder) inOrder(op roce.Opcode) bool {
	switch op.Op() {
	case roce.SendMiddle, roce.SendLast, roce.SendLastImm, roce.SendLastInv:
		return r.stage == inSend
	case roce.WriteMiddle, roce.WriteLast, roce.WriteLastImm:
		return r.stage == inWrite
	}
	return r.stage == between
}

// rightSize reports whether the payload has the length required by the packet's
// place in the message and by the length of the WRITE.
func (r *responder) rightSize(p *roce.Packet) bool {
	n, mtu := len(p.Payload), r.e.config.MTU
	switch {
	case !p.Opcode.Carries():
		return p.RETH.Length <= MaxMessage
	case !p.Opcode.Ends():
		if n != mtu {
			return false
		}
	case n > mtu, n == 0 && !p.Opcode.Starts():
		return false
	}
	declared, got := r.length, r.done
	switch p.Opcode.Op() {
	case roce.WriteFirst, roce.WriteOnly, roce.WriteOnlyImm:
		declared, got = p.RETH.Length, 0
	case roce.WriteMiddle, roce.WriteLast, roce.WriteLastImm:
	default:
		return p.Opcode.Starts() || uint64(r.done)+uint64(n) <= MaxMessage
	}
	if p.Opcode.Ends() {
		return declared-got == uint32(n)
	}
	return declared <= MaxMessage && declared-got > uint32(n)
}

// send processes a packet of a SEND.
func (r *responder) send(p *roce.Packet) {
	if p.Opcode.Starts() {
		if r.done = 0; !r.claim(p) {
			return
		}
	}
	epoch := r.e.epoch
	fault := r.deliver(r.done, p.Payload)
	if r.e.epoch != epoch {
		return
	}
	if fault >= PageFaultLost {
		r.stall(p, fault)
		return
	}
	r.done += uint32(len(p.Payload))
	m := r.message(p)
	if fault == OK && m.Op == SendInval && p.Opcode.Ends() {
		if fault = r.e.queues.Invalidate(p.XRCSRQ, p.InvRKey); r.e.epoch != epoch {
			return
		}
		if fault == RemoteAccess {
			fault = LocalAccess // the syndrome of the receiver's completion
		}
	}
	if fault != OK {
		r.failReceive(m, fault)
		return
	}
	r.stage = inSend
	r.accept(p, m)
}

// deliver stores bytes in the receive request's buffers.
func (r *responder) deliver(off uint32, b []byte) Syndrome {
	if len(b) == 0 || r.placed {
		return OK
	}
	return r.e.queues.Deliver(r.taken, off, b)
}

// write processes a packet of a WRITE.
func (r *responder) write(p *roce.Packet) {
	epoch := r.e.epoch
	if p.Opcode.Starts() {
		r.done, r.length, r.region = 0, p.RETH.Length, nil
		if r.length > 0 {
			region, fault := r.e.queues.Remote(p.XRCSRQ, p.RETH.RKey, p.RETH.VA, r.length, RemoteWrite)
			if r.e.epoch != epoch {
				return
			}
			if fault != OK {
				r.violated(p.PSN, fault)
				return
			}
			r.region = region
		}
	}
	if len(p.Payload) > 0 && !r.placed {
		fault := r.region.Write(r.done, p.Payload)
		if r.e.epoch != epoch {
			return
		}
		if fault == PageFault {
			r.stall(p, fault)
			return
		}
		if fault != OK {
			r.violated(p.PSN, fault)
			return
		}
	}
	if op := p.Opcode.Op(); op == roce.WriteLastImm || op == roce.WriteOnlyImm {
		if !r.claim(p) {
			return
		}
	}
	r.done += uint32(len(p.Payload))
	r.stage = inWrite
	r.accept(p, r.message(p))
}

// claim gets a receive request for a message. If there is no request, it sends
// an RNR NAK and drops the packet.
func (r *responder) claim(p *roce.Packet) bool {
	if r.taken != nil { // left by a lost message
		return true
	}
	epoch := r.e.epoch
	rc, fault := r.e.queues.Receive(p.XRCSRQ)
	switch {
	case r.e.epoch != epoch:
	case fault != OK:
		r.taken = rc
		r.failReceive(r.message(p), fault)
	case rc == nil && r.reliable():
		r.quiet = true
		r.queueAck(p.PSN, roce.RNRNak|r.e.config.MinRNRTimer)
	case rc == nil:
		r.drop()
	default:
		r.taken = rc
		return true
	}
	return false
}

// accept counts a packet as received, and completes the message with its last
// packet.
func (r *responder) accept(p *roce.Packet, m Message) {
	r.expected = forward(p.PSN, 1)
	if !p.Opcode.Ends() {
		r.acknowledge(p)
		return
	}
	r.stage, r.region = between, nil
	r.count = (r.count + 1) & psnMask
	r.acknowledge(p)
	if op := p.Opcode.Op(); op != roce.WriteLast && op != roce.WriteOnly {
		rc := r.taken
		r.taken = nil
		r.e.queues.Arrived(rc, m)
	}
}

// acknowledge queues an ACK if the packet requests one.
func (r *responder) acknowledge(p *roce.Packet) {
	if p.AckReq && r.reliable() {
		r.queueAck(p.PSN, roce.AckNoCredits)
	}
}

// message returns the message for the completion of the receive request.
func (r *responder) message(p *roce.Packet) Message {
	m := Message{Op: Send, Length: r.done, Solicited: p.Solicited, Packet: p}
	switch p.Opcode.Op() {
	case roce.SendLastImm, roce.SendOnlyImm:
		m.Op, m.Imm = SendImm, p.Imm
	case roce.SendLastInv, roce.SendOnlyInv:
		m.Op, m.Imm = SendInval, p.InvRKey
	case roce.WriteLastImm, roce.WriteOnlyImm:
		m.Op, m.Imm = WriteImm, p.Imm
	}
	return m
}

// refuse sends a NAK for a packet and ends the connection: later packets get no
// response. An unreliable service drops the message instead.
func (r *responder) refuse(psn uint32, nak uint8, event Event) {
	if !r.reliable() {
		r.drop()
		return
	}
	r.ending = &ending{event: event}
	r.responses = slices.DeleteFunc(r.responses, func(a response) bool { return distance(a.psn, psn) >= 0 })
	r.queueAck(psn, nak)
}

// violated refuses a packet because of an invalid access to memory.
func (r *responder) violated(psn uint32, fault Syndrome) {
	if fault == RemoteInvalidRequest {
		r.refuse(psn, roce.NakInvalidRequest, RequestError)
		return
	}
	r.refuse(psn, roce.NakRemoteAccess, AccessError)
}

// failReceive ends the connection because of the receive request, which
// completes with the error.
func (r *responder) failReceive(m Message, fault Syndrome) {
	nak := roce.NakRemoteOp
	switch fault {
	case LocalLength:
		nak = roce.NakInvalidRequest
	case LocalAccess:
		nak = roce.NakRemoteAccess
	}
	m.Syndrome = fault
	r.ending = &ending{message: &m}
	if r.taken == nil {
		r.ending = &ending{event: Catastrophic}
	}
	if !r.reliable() {
		r.finish()
		return
	}
	r.queueAck(r.expected, nak)
}

// finish ends the connection, after the last NAK was sent.
func (r *responder) finish() {
	end, rc := r.ending, r.taken
	epoch := r.e.epoch
	if end.message != nil {
		if r.taken = nil; rc != nil {
			r.e.queues.Arrived(rc, *end.message)
		}
	}
	if r.e.epoch == epoch {
		r.running = false
		r.e.queues.Broken(end.event)
	}
}
