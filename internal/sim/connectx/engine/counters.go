package engine

import "github.com/goverbs/goverbs/internal/sim/connectx/roce"

// Counters count the work of an HCA since New. Reset does not clear them.
type Counters struct {
	// SRQReceives is the number of receive requests taken from SRQs. SRQJumps
	// is how many of them were not in the slot after the previous one. (The
	// first slot follows the last.) An adapter prefetches neighbors: jumps cost
	// it most of its rate.
	SRQReceives uint64 `json:"srq_receives,omitempty"`
	SRQJumps    uint64 `json:"srq_jumps,omitempty"`
	// PageFaults is the number of page requests to the host. SRQPageFaults is
	// how many receive requests of SRQs were completed because of them.
	PageFaults    uint64 `json:"page_faults,omitempty"`
	SRQPageFaults uint64 `json:"srq_page_faults,omitempty"`
}

// Traffic is a number of packets or frames and of their bytes.
type Traffic struct{ Packets, Bytes uint64 }

func (t *Traffic) count(bytes int) {
	t.Packets++
	t.Bytes += uint64(bytes)
}

// Kinds of destinations.
const (
	Unicast = iota
	Multicast
	Broadcast
	destinations
)

// PortCounters count what a port sends and receives since New, including unicast packets that it sends to itself. Reset
// does not clear them.
type PortCounters struct {
	Sent, Received             [Broadcast]Traffic    // RDMA packets (roce.Packet.Length)
	FramesSent, FramesReceived [destinations]Traffic // of Ethernet, without those of RoCE
	Downs                      uint64                // how often the port went down
}

// PortCounters returns the port's counters.
func (h *HCA) PortCounters() PortCounters { return h.port.counters }

// countPacket counts an RDMA packet.
func countPacket(t *[Broadcast]Traffic, p *roce.Packet) {
	if group(p) {
		t[Multicast].count(p.Length())
	} else {
		t[Unicast].count(p.Length())
	}
}

// countFrame counts a frame of at least six bytes.
func countFrame(t *[destinations]Traffic, frame []byte) {
	switch to := [6]byte(frame); {
	case to == [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}:
		t[Broadcast].count(len(frame))
	case to[0]&1 == 1:
		t[Multicast].count(len(frame))
	default:
		t[Unicast].count(len(frame))
	}
}

// Counters returns the counters.
func (h *HCA) Counters() Counters { return h.counters }

// countReceive counts the WQE at an SRQ's head, which is about to be removed.
func (h *HCA) countReceive(s *SRQ) {
	h.counters.SRQReceives++
	s.Receives++
	if s.Receives > 1 && s.head != (s.last+1)&(1<<s.LogSize-1) {
		h.counters.SRQJumps++
		s.Jumps++
	}
}
