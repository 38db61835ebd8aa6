package check

import "fmt"

// roceHeaders is what RoCE v2 adds to the data of a packet, with IPv6 and the largest header of an operation.
const roceHeaders = 40 + 8 + 12 + 28 + 4

// RoCEMTU returns the RDMA MTU in bytes of a network interface with the given MTU, or 0.
func RoCEMTU(netdev int) int {
	for mtu := 4096; mtu >= 256; mtu /= 2 {
		if mtu+roceHeaders <= netdev {
			return mtu
		}
	}
	return 0
}

// SmallerMTU returns the MTU of a network interface that makes an RDMA MTU smaller: that of Ethernet if possible. It
// returns 0 if there is no smaller one.
func SmallerMTU(rdma int) int {
	const ethernet, smallest, few = 1500, 256, 64 // drivers subtract more than few bytes for headers
	switch {
	case rdma > RoCEMTU(ethernet):
		return ethernet
	case rdma > smallest:
		return rdma + few
	}
	return 0
}

// mtu checks the MTU of network interfaces: packets of RoCE are not fragmented.
func mtu(m *machine) []Finding {
	return m.each(func(d device, p port) []Finding {
		n := m.number("sys", "class", "net", p.netdev, "mtu")
		if !p.ethernet || n < 0 {
			return nil
		}
		fix := fmt.Sprintf("ip link set %s mtu 4200 (at every end and at the switches)", p.netdev)
		switch rdma := RoCEMTU(n); {
		case rdma == 0:
			return []Finding{{ID: "mtu-small", Severity: Error,
				Seen: fmt.Sprintf("the MTU of %s is %d bytes: too small for any packet of RoCE", p.netdev, n),
				Why:  "the smallest RDMA MTU is 256 bytes, and headers need up to 92 more", Fix: fix}}
		case rdma < 1024:
			return []Finding{{ID: "mtu-low", Severity: Warning,
				Seen: fmt.Sprintf("the MTU of %s is %d bytes: the RDMA MTU is %d", p.netdev, n, rdma),
				Why:  "small packets cost throughput, and peers with a larger MTU may refuse to connect", Fix: fix}}
		case rdma < 4096:
			return []Finding{{ID: "mtu", Severity: Note,
				Seen: fmt.Sprintf("the MTU of %s is %d bytes: the RDMA MTU is %d of at most 4096", p.netdev, n, rdma),
				Why:  "larger packets need less time of the processors and of the adapters", Fix: fix}}
		}
		return []Finding{fact("mtu", "the MTU of %s allows the largest RDMA MTU, 4096", p.netdev)}
	})
}
