//go:build vm

package main

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// pingpongs are rdma-core's examples. They check what they receive.
var pingpongs = []game{
	{"ibv_rc_pingpong", "-c -s 1 -n 200", true},
	{"ibv_rc_pingpong", "-c -e -s 4096 -n 100", true},
	{"ibv_rc_pingpong", "-c -s 65536 -n 20", false},
	{"ibv_rc_pingpong", "-c -e -s 1048576 -n 5 -m 4096", false},
	{"ibv_rc_pingpong", "-c -N -s 4096 -n 100", false},
	{"ibv_uc_pingpong", "-c -s 4096 -n 100", true},
	{"ibv_uc_pingpong", "-c -e -s 65536 -n 20", false},
	{"ibv_ud_pingpong", "-c -s 1024 -n 100", false},
	{"ibv_ud_pingpong", "-c -e -s 1 -n 100", true},
	{"ibv_srq_pingpong", "-c -s 4096 -n 20", false},
	{"ibv_srq_pingpong", "-c -e -s 512 -n 20", true},
	{"ibv_xsrq_pingpong", "-s 4096 -n 20", true},
	{"ibv_xsrq_pingpong", "-e -s 65536 -n 10", false},
}

// perftests are benchmarks. A few iterations are enough for a test.
var perftests = []game{
	{"ib_send_lat", "-s 64 -n 200", true},
	{"ib_send_lat", "-s 64 -n 200 -c UD", false},
	{"ib_send_lat", "-s 2048 -n 100 -c UC", false},
	{"ib_send_bw", "-s 2048 -n 200 -q 8", true},
	{"ib_send_bw", "-s 8388608 -n 5 -e", false},
	{"ib_send_bw", "-s 1024 -n 200 -c UD", false},
	{"ib_send_bw", "-s 65536 -n 20 -c UC", false},
	{"ib_send_bw", "-s 8192 -n 100 --use-srq -q 8 -b", false},
	{"ib_write_lat", "-s 8388608 -n 5", false},
	{"ib_write_lat", "-s 64 -n 100 -c UC", false},
	everySize,
	{"ib_write_bw", "-s 65536 -n 20 -q 8", true},
	{"ib_write_bw", "-s 65536 -n 20 -c UC -b", false},
	{"ib_read_lat", "-s 1048576 -n 5", true},
	{"ib_read_lat", "-s 1 -n 200", false},
	{"ib_read_bw", "-s 8388608 -n 5", false},
	{"ib_read_bw", "-s 65536 -n 20 -q 8", false},
	{"ib_atomic_lat", "-n 100 -A CMP_AND_SWAP", true},
	{"ib_atomic_bw", "-n 100 -q 8 -A FETCH_AND_ADD", false},
}

// everySize uses all sizes from 2 bytes to 8 MiB, which takes long: it is run
// for one pair of ends per link layer.
var everySize = game{"ib_write_bw", "-a -n 5", false}

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
		m.playAll(t, first, second, core(pingpongs, perftests))
		return
	}
	t.Run("one_guest", func(t *testing.T) { m.playAll(t, first, second, core(pingpongs, perftests)) })
	t.Run("one_device", func(t *testing.T) { m.playAll(t, first, first, core(pingpongs)) })
	first, other := m.end(t, 0, "mlx5_0", "10.9.0.1"), m.end(t, 1, "mlx5_0", "10.9.0.2")
	t.Run("two_guests", func(t *testing.T) { m.playAll(t, first, other, append(core(pingpongs, perftests), everySize)) })
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
	t.Run("rxe_client", func(t *testing.T) { m.playAll(t, first, rxe, withRXE(core(pingpongs, perftests))) })
	t.Run("rxe_server", func(t *testing.T) {
		vm.SkipRepeat(t, "rxe_client and go/with_rxe")
		m.playAll(t, rxe, first, core(pingpongs[:2]))
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
		if g.program == "ibv_xsrq_pingpong" {
			continue
		}
		if strings.HasPrefix(g.program, "ib_read") || strings.HasPrefix(g.program, "ib_atomic") {
			g.args += " -o 16"
		}
		all = append(all, g)
	}
	return all
}

// playAll runs all games at two ends.
func (m *machines) playAll(t *testing.T, server, client end, games []game) {
	for _, g := range games {
		t.Run(g.String(), func(t *testing.T) { m.play(t, g, server, client) })
	}
}

// core returns the games to be run everywhere.
func core(lists ...[]game) (all []game) {
	for _, games := range lists {
		for _, g := range games {
			if g.core {
				all = append(all, g)
			}
		}
	}
	return all
}
