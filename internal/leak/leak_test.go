package leak

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// disable turns tracking off.
func disable() {
	tracker.Lock()
	defer tracker.Unlock()
	tracker.on.Store(false)
	tracker.live = nil
}

func TestTrack(t *testing.T) {
	disable()
	if ticket := Track("PD", "1"); ticket != nil || Enabled() || len(Live()) != 0 {
		t.Errorf("tracking is on: %v", ticket)
	}
	var none *Ticket
	none.Done()
	if none.String() != "(not tracked)" {
		t.Errorf("nil ticket: %v", none)
	}
	Enable()
	Enable()
	defer disable()
	b, a := Track("QP", "b"), Track("QP", "a")
	live := Live()
	if len(live) != 2 || live[0] != a || live[1] != b {
		t.Errorf("%v, want both, sorted", live)
	}
	text := a.String()
	for _, s := range []string{"QP a, created at", "leak.TestTrack", "leak_test.go:"} {
		if !strings.Contains(text, s) {
			t.Errorf("%q is not in %q", s, text)
		}
	}
	if strings.Contains(text, "leak.Track") {
		t.Error("the stack starts inside this package")
	}
	a.Done()
	a.Done()
	if live := Live(); len(live) != 1 || live[0] != b {
		t.Errorf("%v, want only b", live)
	}
	b.Done()
}

func TestConcurrent(t *testing.T) {
	Enable()
	defer disable()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				ticket := Track("thing", "")
				_ = Live()
				ticket.Done()
			}
		})
	}
	wg.Wait()
	if n := len(Live()); n != 0 {
		t.Errorf("%d resources are live, want 0", n)
	}
}

func TestTrackDisabledAllocs(t *testing.T) {
	disable()
	if n := testing.AllocsPerRun(100, func() { Track("ring of", "CQ").Done() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// GOVERBS_LEAKS=1 turns tracking on when a program starts.
func TestEnvironment(t *testing.T) {
	if os.Getenv("GOVERBS_LEAKS_CHILD") != "" {
		if !Enabled() {
			t.Error("tracking is off")
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestEnvironment$")
	cmd.Env = append(os.Environ(), "GOVERBS_LEAKS=1", "GOVERBS_LEAKS_CHILD=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
