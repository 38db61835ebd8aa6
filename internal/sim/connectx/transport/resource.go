package transport

import (
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// A resource is a READ or an atomic that the peer may request again.
type resource struct {
	first, last uint32
	count       uint32 // messages completed, including this one
	old         uint64 // of an atomic
	atomic      bool

	// The rest is for READs.
	region Region // nil if empty
	va     uint64
	key    uint32
	length uint32
	base   uint32 // offset of region in the READ: a repeated READ has another region
	mtu    int
	begin  uint32 // the first PSN of the response
	next   uint32 // the next PSN of the response
	queued bool   // a response is queued
	again  bool   // a response was sent before
}

// A response is queued by the responder: that of a resource or, if res is nil,
// an ACK or a NAK.
type response struct {
	psn  uint32
	res  *resource
	aeth roce.AETH
}

// queueAck queues an ACK or a NAK. It replaces an acknowledgment at the end of
// the queue.
func (r *responder) queueAck(psn uint32, syndrome uint8) {
	a := response{psn: psn, aeth: roce.AETH{Syndrome: syndrome, MSN: r.count}}
	if n := len(r.responses); n > 0 && r.responses[n-1].res == nil {
		r.responses[n-1] = a
		return
	}
	r.responses = append(r.responses, a)
}

// queueResponse queues the response of a resource, from psn on, in the order of
// PSNs.
func (r *responder) queueResponse(res *resource, psn uint32) {
	res.begin, res.next, res.queued = psn, psn, true
	at := len(r.responses)
	for at > 0 && distance(r.responses[at-1].psn, res.last) > 0 {
		at--
	}
	if at == 0 && len(r.responses) > 0 && r.responses[0].res != nil {
		other := r.responses[0].res // interrupted: it starts again with a READ response First
		other.begin = other.next
	}
	r.responses = slices.Insert(r.responses, at, response{psn: res.last, res: res})
}

// hasRoom reports whether a READ or an atomic may be added, after the oldest is
// removed if necessary. If that one has a response that was not sent yet, the
// peer has exceeded its limit, and the request is refused.
func (r *responder) hasRoom(p *roce.Packet) bool {
	limit := r.e.config.MaxRespond
	waits := func(res *resource) bool { return res.queued && !res.again }
	if limit <= 0 || slices.ContainsFunc(r.memory[:max(0, len(r.memory)+1-limit)], waits) {
		r.refuse(p.PSN, roce.NakInvalidRequest, RequestError)
		return false
	}
	return true
}

// addResource adds a READ or an atomic.
func (r *responder) addResource(p *roce.Packet, n int) *resource {
	for len(r.memory) >= r.e.config.MaxRespond {
		r.removeOldest()
	}
	res := &resource{first: p.PSN, last: forward(p.PSN, n-1), mtu: r.e.config.MTU}
	r.memory = append(r.memory, res)
	r.count = (r.count + 1) & psnMask
	res.count = r.count
	r.expected = forward(res.last, 1)
	return res
}

// removeOldest removes the oldest resource. The peer has sent newer requests,
// so it has received a response that is still queued as a repetition.
func (r *responder) removeOldest() {
	old := r.memory[0]
	r.memory = slices.Delete(r.memory, 0, 1)
	r.responses = slices.DeleteFunc(r.responses, func(a response) bool { return a.res == old })
}

// read processes a READ request.
func (r *responder) read(p *roce.Packet) {
	region, ok := r.reach(p, RemoteRead)
	if !ok || !r.hasRoom(p) {
		return
	}
	res := r.addResource(p, packets(p.RETH.Length, r.e.config.MTU))
	res.region, res.va, res.key, res.length = region, p.RETH.VA, p.RETH.RKey, p.RETH.Length
	r.queueResponse(res, res.first)
}

// reach returns the memory of a READ.
func (r *responder) reach(p *roce.Packet, a Access) (Region, bool) {
	if p.RETH.Length == 0 {
		return nil, true
	}
	epoch := r.e.epoch
	region, fault := r.e.queues.Remote(p.XRCSRQ, p.RETH.RKey, p.RETH.VA, p.RETH.Length, a)
	if r.e.epoch != epoch {
		return nil, false
	}
	if fault != OK {
		r.violated(p.PSN, fault)
		return nil, false
	}
	return region, true
}

// atomic processes an atomic.
func (r *responder) atomic(p *roce.Packet) {
	a, epoch := &p.Atomic, r.e.epoch
	if a.VA%8 != 0 {
		r.violated(p.PSN, RemoteInvalidRequest)
		return
	}
	region, fault := r.e.queues.Remote(p.XRCSRQ, a.RKey, a.VA, 8, RemoteAtomic)
	if r.e.epoch != epoch {
		return
	}
	if fault != OK {
		r.violated(p.PSN, fault)
		return
	}
	if !r.hasRoom(p) {
		return
	}
	old, fault := region.Atomic(atomics[p.Opcode.Op()], [4]uint64{a.Swap, a.Compare, a.SwapMask, a.CompareMask})
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
	res := r.addResource(p, 1)
	res.atomic, res.old = true, old
	r.queueResponse(res, res.first)
}

var atomics = map[roce.Opcode]Op{
	roce.CompareSwap: CompareSwap, roce.FetchAdd: FetchAdd,
	roce.MaskedCompareSwap: MaskedCompareSwap, roce.MaskedFetchAdd: MaskedFetchAdd,
}

// duplicate processes a duplicate packet.
func (r *responder) duplicate(p *roce.Packet) {
	switch {
	case p.Opcode.Carries():
		if p.AckReq {
			r.ackAgain()
		}
	default:
		for _, res := range r.memory {
			if distance(p.PSN, res.first) >= 0 && distance(p.PSN, res.last) <= 0 {
				r.repeat(res, p)
				return
			}
		}
	}
}

// ackAgain acknowledges everything received so far, unless an acknowledgment is
// already queued.
func (r *responder) ackAgain() {
	if n := len(r.responses); n == 0 || r.responses[n-1].res != nil {
		r.queueAck(forward(r.expected, -1), roce.AckNoCredits)
	}
}

// repeat queues the response of a READ or an atomic again: an atomic with the
// same value, a READ with the current contents of the memory. The request must
// be for the same memory, or for the rest of it.
func (r *responder) repeat(res *resource, p *roce.Packet) {
	if res.atomic != (p.Opcode.Op() != roce.ReadRequest) {
		return
	}
	if res.atomic {
		if !res.queued {
			res.again = true
			r.queueResponse(res, res.first)
		}
		return
	}
	off := uint32(distance(p.PSN, res.first) * res.mtu)
	if p.RETH.RKey != res.key || p.RETH.VA != res.va+uint64(off) || p.RETH.Length != res.length-off {
		return
	}
	if res.queued {
		if distance(res.next, p.PSN) > 0 {
			res.begin, res.next = p.PSN, p.PSN
		}
		return
	}
	region, ok := r.reach(p, RemoteReadAgain)
	if ok {
		res.region, res.base, res.again = region, off, true
		r.queueResponse(res, p.PSN)
	}
}
