package transport

import (
	"slices"

	"github.com/goverbs/goverbs/testbed/connectx/roce"
)

// A resource is a READ or an atomic that the peer may ask for again.
type resource struct {
	first, last uint32
	count       uint32 // messages done, with this one
	old         uint64 // of an atomic
	atomic      bool

	// A READ.
	region Region // nil if empty
	va     uint64
	key    uint32
	length uint32
	base   uint32 // of the first PSN in the region: a repeated READ has a region of its own
	mtu    int
	begin  uint32 // the PSN with which the answer begins
	next   uint32 // the next PSN of the answer
	queued bool   // there is an answer to send
	again  bool   // it was sent before
}

// An answer is what the responder is going to send: a resource's, or, without
// one, an ACK or a NAK.
type answer struct {
	psn  uint32
	res  *resource
	aeth roce.AETH
}

// say queues an ACK or a NAK. Of several at the same moment, the last says it all.
func (r *responder) say(psn uint32, syndrome uint8) {
	a := answer{psn: psn, aeth: roce.AETH{Syndrome: syndrome, MSN: r.count}}
	if n := len(r.answers); n > 0 && r.answers[n-1].res == nil {
		r.answers[n-1] = a
		return
	}
	r.answers = append(r.answers, a)
}

// reply queues the answer of a resource, from a PSN on, in the order of PSNs.
func (r *responder) reply(res *resource, psn uint32) {
	res.begin, res.next, res.queued = psn, psn, true
	at := len(r.answers)
	for at > 0 && distance(r.answers[at-1].psn, res.last) > 0 {
		at--
	}
	if at == 0 && len(r.answers) > 0 && r.answers[0].res != nil {
		other := r.answers[0].res // after the interruption, it begins anew
		other.begin = other.next
	}
	r.answers = slices.Insert(r.answers, at, answer{psn: res.last, res: res})
}

// room reports whether there is room for a READ or an atomic, at the cost of the
// oldest. If an answer of theirs is still to be sent, the peer has asked for more
// than it may: it is refused.
func (r *responder) room(p *roce.Packet) bool {
	limit := r.e.config.MaxRespond
	waits := func(res *resource) bool { return res.queued && !res.again }
	if limit <= 0 || slices.ContainsFunc(r.memory[:max(0, len(r.memory)+1-limit)], waits) {
		r.refuse(p.PSN, roce.NakInvalidRequest, RequestError)
		return false
	}
	return true
}

// remember makes a resource for a READ or an atomic that there is room for.
func (r *responder) remember(p *roce.Packet, n int) *resource {
	for len(r.memory) >= r.e.config.MaxRespond {
		r.forget()
	}
	res := &resource{first: p.PSN, last: forward(p.PSN, n-1), mtu: r.e.config.MTU}
	r.memory = append(r.memory, res)
	r.count = (r.count + 1) & psnMask
	res.count = r.count
	r.expected = forward(res.last, 1)
	return res
}

// forget drops the oldest resource. The peer has gone on: an answer that is
// to be repeated has arrived.
func (r *responder) forget() {
	old := r.memory[0]
	r.memory = slices.Delete(r.memory, 0, 1)
	r.answers = slices.DeleteFunc(r.answers, func(a answer) bool { return a.res == old })
}

// read takes a READ.
func (r *responder) read(p *roce.Packet) {
	region, ok := r.reach(p, RemoteRead)
	if !ok || !r.room(p) {
		return
	}
	res := r.remember(p, packets(p.RETH.Length, r.e.config.MTU))
	res.region, res.va, res.key, res.length = region, p.RETH.VA, p.RETH.RKey, p.RETH.Length
	r.reply(res, res.first)
}

// reach finds the memory that a READ wants.
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

// atomic takes an atomic.
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
	if !r.room(p) {
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
	res := r.remember(p, 1)
	res.atomic, res.old = true, old
	r.reply(res, res.first)
}

var atomics = map[roce.Opcode]Op{
	roce.CompareSwap: CompareSwap, roce.FetchAdd: FetchAdd,
	roce.MaskedCompareSwap: MaskedCompareSwap, roce.MaskedFetchAdd: MaskedFetchAdd,
}

// duplicate takes a packet that has come before.
func (r *responder) duplicate(p *roce.Packet) {
	switch {
	case p.Opcode.Carries():
		if p.AckReq {
			r.sayAgain()
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

// sayAgain acknowledges what has come so far, unless that is about to be said.
func (r *responder) sayAgain() {
	if n := len(r.answers); n == 0 || r.answers[n-1].res != nil {
		r.say(forward(r.expected, -1), roce.AckNoCredits)
	}
}

// repeat answers a READ or an atomic again: an atomic with the same value, a READ
// with what the memory has now. What the peer asks for must be what it asked
// for before, or the rest of it.
func (r *responder) repeat(res *resource, p *roce.Packet) {
	if res.atomic != (p.Opcode.Op() != roce.ReadRequest) {
		return
	}
	if res.atomic {
		if !res.queued {
			res.again = true
			r.reply(res, res.first)
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
	region, ok := r.reach(p, RemoteRead)
	if ok {
		res.region, res.base, res.again = region, off, true
		r.reply(res, p.PSN)
	}
}
