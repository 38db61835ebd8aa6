//go:build vm

package main

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/games"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// TestPrograms runs C programs on the devices: within one, between two of a
// guest, and between guests. Then it unloads and reloads the drivers, and
// powers the guests off.
func TestPrograms(t *testing.T) {
	for _, p := range places {
		t.Run(p.String(), func(t *testing.T) {
			guests := 2
			if p.kernel != "6.12" {
				vm.SkipRepeat(t, "6.12 "+p.link)
				guests = 1
			}
			m := startMachines(t, p, guests)
			m.leavesNothing(t, func(t *testing.T) { m.testPrograms(t, guests > 1) })
			m.testModules(t, 1)
			m.powerOff(t)
		})
	}
}

// testPrograms runs them at each pair of ends, or only at one if all is not
// set.
func (m *machines) testPrograms(t *testing.T, all bool) {
	first, second := m.end(t, 0, "mlx5_0", "fe80::"), m.end(t, 0, "mlx5_1", "fe80::")
	if !all {
		m.playAll(t, first, second, games.CoreOf(games.Pingpongs, games.Perftests))
		return
	}
	t.Run("one_guest", func(t *testing.T) {
		vm.SkipRepeat(t, "two_guests and testbed/cshim")
		m.playAll(t, first, second, games.CoreOf(games.Pingpongs, games.Perftests))
	})
	t.Run("one_device", func(t *testing.T) {
		vm.SkipRepeat(t, "two_guests and testbed/cshim")
		m.playAll(t, first, first, games.CoreOf(games.Pingpongs))
	})
	first, other := m.end(t, 0, "mlx5_0", "10.9.0.1"), m.end(t, 1, "mlx5_0", "10.9.0.2")
	t.Run("two_guests", func(t *testing.T) {
		m.playCore(t, first, other, append(games.CoreOf(games.Pingpongs, games.Perftests), games.EverySize))
	})
	t.Run("go", m.testGo)
	t.Run("counters", func(t *testing.T) { m.testCounters(t, first, other) })
	if m.link != roce {
		t.Run("gids", func(t *testing.T) { m.testGIDs(t, m.end(t, 0, "mlx5_1", ""), first) })
		return
	}
	t.Run("ethtool", m.testSelfTest)
	m.testCM(t, first, other)
	t.Run("messages", func(t *testing.T) { m.testMessages(t, traffic{count: 8 * batch, limit: program.Limit}, false) })
	t.Run("wire", func(t *testing.T) { m.testWire(t, first, other) })
	first, rxe := m.end(t, 0, "mlx5_0", "10.9.1.1"), m.end(t, 1, "rxe0", "10.9.1.2")
	t.Run("rxe_client", func(t *testing.T) {
		m.playCore(t, first, rxe, withRXE(games.CoreOf(games.Pingpongs, games.Perftests)))
	})
	t.Run("rxe_server", func(t *testing.T) {
		vm.SkipRepeat(t, "rxe_client and go/with_rxe")
		m.playAll(t, rxe, first, games.CoreOf(games.Pingpongs[:2]))
	})
	t.Run("rxe", func(t *testing.T) {
		vm.SkipRepeat(t, "go/with_rxe, and the same programs between two ConnectX")
		m.testCM(t, rxe, first)
	})
}

// withRXE adapts games for rxe, which has no XRC. By default perftest makes the
// device send as many READs at a time as rxe supports, which is more than the
// device supports.
func withRXE(games []game) (all []game) {
	for _, g := range games {
		if g.Program == "ibv_xsrq_pingpong" {
			continue
		}
		if strings.HasPrefix(g.Program, "ib_read") || strings.HasPrefix(g.Program, "ib_atomic") {
			g.Args += " -o 16"
		}
		all = append(all, g)
	}
	return all
}

// playCore runs games at two ends. In make test, perftest's bandwidths and long messages run in memory: the kernel has
// no part in them. With rxe, testMessages has messages of all kinds and of 1 MiB.
func (m *machines) playCore(t *testing.T, server, client end, list []game) {
	for _, g := range list {
		t.Run(g.String(), func(t *testing.T) {
			if strings.HasSuffix(g.Program, "_bw") || strings.HasPrefix(g.Program, "ib_read") {
				vm.SkipRepeat(t, "testbed/cshim")
			}
			m.play(t, g, server, client)
		})
	}
}

// playAll runs all games at two ends.
func (m *machines) playAll(t *testing.T, server, client end, games []game) {
	for _, g := range games {
		t.Run(g.String(), func(t *testing.T) { m.play(t, g, server, client) })
	}
}
