package faults

import (
	"fmt"
	"testing"
)

// A qdisc holds netem's counters as printed by tc.
type qdisc struct {
	Packets  int // that left, duplicates among them
	Drops    int
	Requeues int // netem counts reordered packets here
	Qlen     int // queued packets
}

// A fault is something that netem does to packets that leave either guest.
type fault struct {
	name, netem string
	// share is the share of packets that are affected.
	share float64
	// happened returns the number of affected packets, according to tc.
	happened func(s sight) int
	// sends is peer's option for the lengths of SENDs.
	sends string
}

// A sight holds the observed effects of a fault, on both ends together.
type sight struct {
	qdisc
	backlog int // the longest queue that was seen
	sent    int // packets that rxe has sent
}

var networkFaults = []fault{
	{"loss 1 %", "loss 1%", 0.01, func(s sight) int { return s.Drops }, "any"},
	{"loss 5 %", "loss 5%", 0.05, func(s sight) int { return s.Drops }, "any"},
	// rxe retransmits SENDs of several packets incorrectly: see testLongSends.
	{"reordering", "delay 2ms reorder 5%", 0.05, func(s sight) int { return s.Requeues }, "short"},
	// netem does not count duplicates: they are packets that rxe did not send.
	{"duplication", "duplicate 5%", 0.05, func(s sight) int { return s.Packets - s.sent }, "any"},
	// netem does not count delayed packets either, but they are in its queue.
	{"delay", "delay 5ms", 0, func(s sight) int { return s.backlog }, "any"},
}

// check returns an error if the fault happened much less often than expected.
func (f *fault) check(s sight) error {
	least := max(1, int(f.share*float64(s.sent)/2))
	if n := f.happened(s); n < least {
		return fmt.Errorf("the fault happened %d times, want at least %d; %+v", n, least, s)
	}
	return nil
}

// TestFaultCheck checks that a fault that did not happen, or too rarely, is an
// error.
func TestFaultCheck(t *testing.T) {
	for _, f := range networkFaults {
		if err := f.check(sight{qdisc: qdisc{Packets: 1000}, sent: 1000}); err == nil {
			t.Errorf("%s: a fault that did not happen is accepted", f.name)
		}
		often := int(f.share*1000) + 1
		s := sight{qdisc: qdisc{Packets: 1000 + often, Drops: often, Requeues: often}, backlog: 1, sent: 1000}
		if err := f.check(s); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		if s.sent *= 4; f.share > 0 && f.check(s) == nil {
			t.Errorf("%s: %d of %d packets are accepted", f.name, often, s.sent)
		}
	}
}
