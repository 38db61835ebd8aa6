package transport

import "github.com/goverbs/goverbs/internal/sim/connectx/roce"

// unreliable processes a packet of an unreliable service. A message with a
// missing packet is dropped, and its receive request is used for the next
// message.
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

// drop drops the message in progress and the rest of its packets.
func (r *responder) drop() { r.lost, r.stage, r.region = true, between, nil }

// networkHeader is the size of the network header in front of a datagram in the
// receiver's buffers.
const networkHeader = 40

// datagram processes a datagram.
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
		r.failReceive(r.message(p), fault)
		return
	}
	r.accept(p, r.message(p))
}
