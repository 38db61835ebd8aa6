//go:build vm && soak

package main

import (
	"slices"
	"testing"
)

// allSizes are measured from 2 bytes to 8 MiB.
var allSizes = []game{
	{"ib_send_lat", "-a -n 5", false},
	{"ib_send_lat", "-a -n 5 -c UC", false},
	{"ib_send_bw", "-a -n 5 -q 8", false},
	{"ib_send_bw", "-a -n 5 -c UC -b", false},
	{"ib_write_lat", "-a -n 5", false},
	{"ib_write_lat", "-a -n 5 -c UC", false},
	{"ib_write_bw", "-a -n 5 -q 8", false},
	{"ib_write_bw", "-a -n 5 -c UC -e", false},
	{"ib_read_lat", "-a -n 5", false},
	{"ib_read_bw", "-a -n 5 -q 8 -b", false},
}

// TestSoakPrograms has all programs play at all places, with all sizes.
func TestSoakPrograms(t *testing.T) {
	for _, p := range places {
		t.Run(p.String(), func(t *testing.T) {
			m := startMachines(t, p, 2)
			m.leavesNothing(t, func(t *testing.T) {
				m.testPrograms(t, true)
				first, second, other := m.end(t, 0, "mlx5_0", "10.9.0.1"), m.end(t, 0, "mlx5_1", "fe80::"), m.end(t, 1, "mlx5_0", "10.9.0.2")
				t.Run("all_sizes", func(t *testing.T) { m.playAll(t, first, other, allSizes) })
				t.Run("all", func(t *testing.T) { m.playAll(t, other, first, slices.Concat(pingpongs, perftests)) })
				t.Run("all_one_device", func(t *testing.T) { m.playAll(t, second, second, slices.Concat(pingpongs, perftests, allSizes)) })
			})
			m.testModules(t, 20)
			m.powerOff(t)
		})
	}
}
