//go:build !race

// The race detector reports the bug, too, so this test would fail with it.

package kv

import (
	"errors"
	"strings"
	"testing"
)

// TestPlantedBug checks that schedules find a send buffer that is changed before its completion was
// polled, and that a failure is replayed by its seed.
func TestPlantedBug(t *testing.T) {
	found := 0
	for seed := range schedules(t) {
		problem, history := play(seed, 2*window)
		if problem == nil {
			continue
		}
		if found++; !errors.Is(problem, ErrProtocol) && !strings.Contains(problem.Error(), "differs") {
			t.Fatalf("seed %d finds something else: %v", seed, problem)
		}
		again, same := play(seed, 2*window)
		if again == nil || again.Error() != problem.Error() || same != history {
			t.Fatalf("seed %d: %v (%x), and again %v (%x)", seed, problem, history, again, same)
		}
	}
	if found == 0 {
		t.Error("no schedule found the bug")
	}
	t.Logf("%d of %d schedules find it", found, schedules(t))
}
