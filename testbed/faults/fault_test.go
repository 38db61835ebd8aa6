package faults

import (
	"fmt"
	"testing"
)

// A qdisc is what tc shows of netem.
type qdisc struct {
	Packets  int // that left, duplicates among them
	Drops    int
	Requeues int // netem counts what it takes out of turn here
	Qlen     int // packets that wait
}

// A fault is something that netem does to what leaves either guest.
type fault struct {
	name, netem string
	// share is how many of the packets it is to happen to.
	share float64
	// happened is to how many it did, as tc shows it.
	happened func(s sight) int
	// sends are the lengths of SENDs.
	sends string
}

// A sight is what is seen of a network fault, on both ends together.
type sight struct {
	qdisc
	backlog int // the longest queue that was seen
	sent    int // packets that rxe has sent
}

var networkFaults = []fault{
	{"loss 1 %", "loss 1%", 0.01, func(s sight) int { return s.Drops }, "any"},
	{"loss 5 %", "loss 5%", 0.05, func(s sight) int { return s.Drops }, "any"},
	// rxe goes wrong with retries of SENDs of several packets: see testLongSends.
	{"reordering", "delay 2ms reorder 5%", 0.05, func(s sight) int { return s.Requeues }, "short"},
	// netem counts no duplicates: they are what leaves beyond what rxe sent.
	{"duplication", "duplicate 5%", 0.05, func(s sight) int { return s.Packets - s.sent }, "any"},
	// Nor what it delays, but what waits is its queue.
	{"delay", "delay 5ms", 0, func(s sight) int { return s.backlog }, "any"},
}

// check tells whether it happened about as often as it was to.
func (f *fault) check(s sight) error {
	least := max(1, int(f.share*float64(s.sent)/2))
	if n := f.happened(s); n < least {
		return fmt.Errorf("the fault did not happen: %d times where %d were due at least; %+v", n, least, s)
	}
	return nil
}

// A fault that was not seen, or too seldom, is told of.
func TestFaultCheck(t *testing.T) {
	for _, f := range networkFaults {
		if err := f.check(sight{qdisc: qdisc{Packets: 1000}, sent: 1000}); err == nil {
			t.Errorf("%s: what did not happen is good enough", f.name)
		}
		often := int(f.share*1000) + 1
		s := sight{qdisc: qdisc{Packets: 1000 + often, Drops: often, Requeues: often}, backlog: 1, sent: 1000}
		if err := f.check(s); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		if s.sent *= 4; f.share > 0 && f.check(s) == nil {
			t.Errorf("%s: %d of %d packets are enough", f.name, often, s.sent)
		}
	}
}
