package uverbs

import (
	"strings"
	"testing"
)

// TestResizeFailsLate checks that an error after the kernel has resized the CQ says so, and that
// Entries returns the new number.
func TestResizeFailsLate(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	for range 10 {
		good(b.qp.PostSend(SendWR{Opcode: OpSend, Flags: Signaled}))(t)
	}
	err := b.cq.Resize(5)
	if err == nil || !strings.Contains(err.Error(), "would be lost") {
		t.Errorf("Resize: %v", err)
	}
	if n := b.cq.Entries(); n != 5 {
		t.Errorf("%d entries, want 5", n)
	}
}
