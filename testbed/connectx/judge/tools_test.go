//go:build vm

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// testSelfTest runs the driver's tests of the network device. One sends a packet to the device's address and waits for
// it.
func (m *machines) testSelfTest(t *testing.T) {
	out := m.output(t, m.guests[0], "ethtool -t $(ls /sys/class/infiniband/mlx5_0/device/net)")
	if !strings.Contains(out, "The test result is PASS") || !regexp.MustCompile(`Loopback.*\s0\n`).MatchString(out) {
		t.Errorf("%s", out)
	}
	t.Log(out)
}

// testCounters checks the packets and bytes that a port has counted, as sysfs and, on InfiniBand, perfquery show them.
func (m *machines) testCounters(t *testing.T, server, client end) {
	const size, iters, mtu = 4096, 100, 1024
	readings := map[string]func(*testing.T, end) map[string]uint64{"sysfs": m.sysfs}
	if m.link != roce {
		readings["perfquery"] = m.perfquery
	}
	for name, read := range readings {
		t.Run(name, func(t *testing.T) {
			ends := []end{server, client}
			before := []map[string]uint64{read(t, server), read(t, client)}
			args := fmt.Sprintf("-c -s %d -n %d -m %d", size, iters, mtu)
			m.play(t, game{Program: "ibv_rc_pingpong", Args: args, Core: true}, server, client)
			for i, e := range ends {
				after := read(t, e)
				for _, c := range []struct {
					counter  string
					at, most uint64
				}{
					// Words of four bytes. Headers take less than a tenth, acknowledgments and management are more packets.
					{"XmitData", size * iters / 4, size * iters / 3}, {"RcvData", size * iters / 4, size * iters / 3},
					{"XmitPkts", size / mtu * iters, 2 * size / mtu * iters}, {"RcvPkts", size / mtu * iters, 2 * size / mtu * iters},
				} {
					if n := after[c.counter] - before[i][c.counter]; n < c.at || n > c.most {
						t.Errorf("%s: %s has increased by %d, not by %d to %d", e.device, c.counter, n, c.at, c.most)
					}
				}
			}
		})
	}
}

// sysfs returns the counters of a device with perfquery's names.
func (m *machines) sysfs(t *testing.T, e end) map[string]uint64 {
	t.Helper()
	return counters(t, m.output(t, e.guest, fmt.Sprintf(`cd /sys/class/infiniband/%s/ports/1/counters
echo PortXmitData:$(cat port_xmit_data)
echo PortRcvData:$(cat port_rcv_data)
echo PortXmitPkts:$(cat port_xmit_packets)
echo PortRcvPkts:$(cat port_rcv_packets)`, e.device)))
}

// perfquery returns the counters that the agent of a device's port reports. The extended ones have 64 bits.
func (m *machines) perfquery(t *testing.T, e end) map[string]uint64 {
	t.Helper()
	all := counters(t, m.output(t, e.guest, "perfquery -x -C "+e.device))
	errors := counters(t, m.output(t, e.guest, "perfquery -C "+e.device))
	for _, name := range []string{"SymbolErrorCounter", "LinkDownedCounter", "RcvErrors", "XmitDiscards"} { // no faults
		if n, ok := errors[name]; n != 0 || !ok {
			t.Errorf("%s: %s is %d, %t", e.device, name, n, ok)
		}
	}
	return all
}

// counters parses lines such as "PortXmitData:....................123".
func counters(t *testing.T, out string) map[string]uint64 {
	t.Helper()
	all := make(map[string]uint64)
	for _, m := range regexp.MustCompile(`(?m)^(?:Port)?(\w+):\.*(\d+)$`).FindAllStringSubmatch(out, -1) {
		n, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all[m[1]] = n
	}
	return all
}
