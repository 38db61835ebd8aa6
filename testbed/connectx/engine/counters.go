package engine

// Counters are what an HCA has done since New. A Reset does not clear them.
type Counters struct {
	// SRQReceives is how many receive requests were taken from SRQs, and SRQJumps
	// how many of them were not in the slot behind the one taken before them. The
	// first slot is behind the last. An adapter fetches neighbours together: jumps
	// cost it most of its rate.
	SRQReceives uint64 `json:"srq_receives,omitempty"`
	SRQJumps    uint64 `json:"srq_jumps,omitempty"`
	// PageFaults is how often the host was asked for pages, and SRQPageFaults how
	// many receive requests of SRQs were completed because of it.
	PageFaults    uint64 `json:"page_faults,omitempty"`
	SRQPageFaults uint64 `json:"srq_page_faults,omitempty"`
}

// Counters returns the counters.
func (h *HCA) Counters() Counters { return h.counters }

// countReceive counts the WQE at an SRQ's head, which is about to be taken.
func (h *HCA) countReceive(s *SRQ) {
	h.counters.SRQReceives++
	s.Receives++
	if s.Receives > 1 && s.head != (s.last+1)&(1<<s.LogSize-1) {
		h.counters.SRQJumps++
		s.Jumps++
	}
}
