package transport

import "github.com/goverbs/goverbs/testbed/connectx/roce"

// unreliable takes a packet of a peer that waits for no answers. A message of which
// a packet is missing is dropped; its receive request is the next message's.
func (r *responder) unreliable(p *roce.Packet) {
	if !r.running {
		return
	}
	switch {
	case p.Opcode.Starts():
		r.lost, r.stage, r.region = false, between, nil
	case p.PSN != r.expected:
		r.drop()
	}
	r.expected = forward(p.PSN, 1)
	if !r.lost {
		r.take(p)
	}
}

// drop forgets the message that has begun, and what is still to come of it.
func (r *responder) drop() { r.lost, r.stage, r.region = true, between, nil }

// networkHeader is the room in front of a datagram in its receiver's buffers.
const networkHeader = 40

// datagram takes a datagram.
func (r *responder) datagram(p *roce.Packet) {
	if !r.running || len(p.Payload) > r.e.config.MTU || !r.claim(p) {
		return
	}
	epoch := r.e.epoch
	fault := OK
	if h, ok := p.NetworkHeader(); ok {
		fault = r.deliver(0, h[:])
	}
	if fault == OK && r.e.epoch == epoch {
		fault = r.deliver(networkHeader, p.Payload)
	}
	if r.e.epoch != epoch {
		return
	}
	if fault >= PageFaultLost {
		r.stall(p, fault)
		return
	}
	r.done = networkHeader + uint32(len(p.Payload))
	if fault != OK {
		r.spoil(r.message(p), fault)
		return
	}
	r.accept(p, r.message(p))
}
