package tsc

import (
	"runtime"
	"testing"
)

// Two measurements agree, also the rougher one.
func TestKHz(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		if n := KHz(); n != 0 {
			t.Errorf("%d kHz of no counter", n)
		}
		t.Skip("this machine has no TSC")
	}
	first, second := KHz(), measure(1000)
	if first < 100_000 || first > 10_000_000 {
		t.Errorf("%d kHz are no frequency of a TSC", first)
	}
	if d := first - second; d > first/200 || d < -first/200 {
		t.Errorf("%d kHz, and then %d", first, second)
	}
	t.Logf("%d kHz, and roughly %d", first, second)
}
