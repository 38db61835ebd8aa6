package tsc

import (
	"runtime"
	"testing"
)

// TestKHz checks that two measurements agree, one of them with less precision.
func TestKHz(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		if n := KHz(); n != 0 {
			t.Errorf("%d kHz without a counter", n)
		}
		t.Skip("this machine has no TSC")
	}
	first, second := KHz(), measure(1000)
	if first < 100_000 || first > 10_000_000 {
		t.Errorf("%d kHz is not the frequency of a TSC", first)
	}
	if d := first - second; d > first/200 || d < -first/200 {
		t.Errorf("%d kHz, then %d", first, second)
	}
	t.Logf("%d kHz, less precisely %d", first, second)
}
