package engine

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
