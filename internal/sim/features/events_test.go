package features

import (
	"slices"
	"testing"
)

func TestEvent(t *testing.T) {
	for _, c := range []struct {
		kernel, device string
		event          uint32
		raised, known  bool
	}{
		{"6.1", "rxe0", 0, true, true},
		{"6.1", "rxe0", 16, false, true},
		{"6.12.107+deb13-amd64", "rxe0", 16, true, true},
		{"6.12", "rxe0", 3, false, true},
		{"7.2", "rxe", 3, true, true},
		{"7.2", "rxe0", 4, false, true},
		{"7.2", "rxe0", 21, false, false},
		{"6.1", "mlx5_0", 16, true, true},
		{"6.1", "mlx5_0", 5, false, true},
		{"7.2", "siw0", 0, false, false},
		{"next", "rxe0", 0, false, false},
	} {
		raised, why, known := Event(c.kernel, c.device, c.event)
		if raised != c.raised || known != c.known || why == "" {
			t.Errorf("Event(%q, %q, %d) = %v, %q, %v", c.kernel, c.device, c.event, raised, why, known)
		}
	}
}

// TestEventsComplete checks that the list has each event once per driver, with
// a reason.
func TestEventsComplete(t *testing.T) {
	const last = 20 // IB_EVENT_DEVICE_SPEED_CHANGE
	seen := map[string]map[uint32]bool{}
	for _, r := range slices.Concat(events, mlx5Events) {
		if seen[r.driver] == nil {
			seen[r.driver] = map[uint32]bool{}
		}
		if seen[r.driver][r.event] || r.event > last || r.why == "" {
			t.Errorf("%+v: twice, unknown, or without a reason", r)
		}
		seen[r.driver][r.event] = true
	}
	for driver, all := range seen {
		if len(all) != last+1 {
			t.Errorf("%s: %d events are listed, want %d", driver, len(all), last+1)
		}
	}
}
