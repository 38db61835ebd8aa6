//go:build vm && soak

package main

import "testing"

// TestSoakFaults: the same on the other kernels.
func TestSoakFaults(t *testing.T) {
	for _, kernel := range []string{"6.1", "7.2"} {
		t.Run(kernel, func(t *testing.T) { testFaults(t, kernel) })
	}
}
