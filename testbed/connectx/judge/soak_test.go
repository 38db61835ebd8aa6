//go:build vm && soak

package main

import (
	"slices"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/games"
)

// allSizes use sizes from 2 bytes to 8 MiB.
var allSizes = []game{
	{Program: "ib_send_lat", Args: "-a -n 5"},
	{Program: "ib_send_lat", Args: "-a -n 5 -c UC"},
	{Program: "ib_send_bw", Args: "-a -n 5 -q 8"},
	{Program: "ib_send_bw", Args: "-a -n 5 -c UC -b"},
	{Program: "ib_write_lat", Args: "-a -n 5"},
	{Program: "ib_write_lat", Args: "-a -n 5 -c UC"},
	{Program: "ib_write_bw", Args: "-a -n 5 -q 8"},
	{Program: "ib_write_bw", Args: "-a -n 5 -c UC"},
	{Program: "ib_read_lat", Args: "-a -n 5"},
	{Program: "ib_read_bw", Args: "-a -n 5 -q 8 -b"},
}

// TestSoakPrograms runs all programs at all places, with all sizes.
func TestSoakPrograms(t *testing.T) {
	for _, p := range places {
		t.Run(p.String(), func(t *testing.T) {
			m := startMachines(t, p, 2)
			m.leavesNothing(t, func(t *testing.T) {
				m.testPrograms(t, true)
				first, second, other := m.end(t, 0, "mlx5_0", "10.9.0.1"), m.end(t, 0, "mlx5_1", "fe80::"),
					m.end(t, 1, "mlx5_0", "10.9.0.2")
				t.Run("all_sizes", func(t *testing.T) { m.playAll(t, first, other, allSizes) })
				t.Run("all", func(t *testing.T) { m.playAll(t, other, first, slices.Concat(games.Pingpongs, games.Perftests)) })
				t.Run("all_one_device", func(t *testing.T) {
					m.playAll(t, second, second,
						slices.Concat(games.Pingpongs, games.Perftests, allSizes))
				})
			})
			m.testModules(t, 20)
			m.powerOff(t)
		})
	}
}

// figures measure messages within one device: the time from the doorbell to the
// completion, which is that of a READ, half of a round trip, and messages per
// second.
var figures = []game{
	{Program: "ib_read_lat", Args: "-s 64 -n 2000"},
	{Program: "ib_write_lat", Args: "-s 64 -n 2000"},
	{Program: "ib_send_lat", Args: "-s 64 -n 2000"},
	{Program: "ib_send_bw", Args: "-s 64 -n 10000 -q 2"},
	{Program: "ib_write_bw", Args: "-s 64 -n 10000 -q 2"},
	{Program: "ib_write_bw", Args: "-s 65536 -n 500"},
}

// TestSoakFigures prints the results of each program.
func TestSoakFigures(t *testing.T) {
	for _, p := range []place{{"6.12", ib}, {"6.12", roce}} {
		t.Run(p.String(), func(t *testing.T) {
			m := startMachines(t, p, 1)
			e := m.end(t, 0, "mlx5_0", "fe80::")
			m.playAll(t, e, e, figures)
		})
	}
}
