package check

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/uverbs"
)

// v2 reports whether an entry is of RoCE v2.
func v2(g nldev.GID) bool { return uverbs.GIDType(g.Type) == uverbs.GIDTypeRoCEv2 }

// gids checks that each port of RoCE has a GID for an IP address.
func gids(m *machine) []Finding {
	return m.each(func(d device, p port) []Finding {
		if !p.ethernet || !p.active() {
			return nil
		}
		name := fmt.Sprintf("%s port %d", d.Name, p.number)
		routable := slices.DeleteFunc(slices.Clone(p.gids), func(g nldev.GID) bool {
			return !v2(g) || addr(g).IsLinkLocalUnicast()
		})
		used := slices.IndexFunc(routable, func(g nldev.GID) bool { return m.uses(d, g) == d.Name })
		switch {
		case used >= 0:
			g := routable[used]
			found := fact("gid", "%s has the address %v, GID index %d", name, addr(g), g.Index)
			return append(m.duplicates(d, p, name, routable), found)
		case len(routable) > 0 && m.uses(d, routable[0]) != "":
			return m.duplicates(d, p, name, routable)
		case len(routable) > 0:
			return []Finding{m.elsewhere(name, routable[0])}
		case len(p.gids) > 0 && !slices.ContainsFunc(p.gids, v2):
			return []Finding{{ID: "gid-v1", Severity: Warning, Seen: name + " has GIDs of RoCE v1 only",
				Why: "RoCE v1 is not routed, and current peers use v2",
				Fix: "update the adapter's firmware, or replace the adapter: it does not support RoCE v2"}}
		}
		f := Finding{ID: "no-gid", Severity: Error, Seen: name + " has no GID",
			Why: "programs cannot connect to it, or from it, by IP address",
			Fix: "ip addr add ADDRESS/24 dev " + or(p.netdev, "INTERFACE")}
		if len(p.gids) > 0 {
			f.Severity, f.Seen = Warning, name+" has only a GID of a link-local address"
		}
		return []Finding{f}
	})
}

// address checks that the device has a GID for an address of this machine, or for that from which a peer is reached.
func address(m *machine) []Finding {
	if m.request.Address == "" || m.err != nil {
		return nil
	}
	a, err := netip.ParseAddr(m.request.Address)
	if err != nil {
		return nil // a name, which the connection resolves
	}
	local := a.Unmap()
	if m.interfaceOf(local) == "" {
		if local, err = m.Kernel.Source(a); err != nil {
			return []Finding{m.noRoute(a, err)}
		}
	}
	return m.gidFor(local, a)
}

// noRoute returns the finding that no route leads to a peer.
func (m *machine) noRoute(peer netip.Addr, err error) Finding {
	netdev := m.rdmaInterface(peer)
	f := Finding{ID: "no-route", Severity: Error, Seen: fmt.Sprintf("there is no route to %v: %v", peer, err),
		Why: "the routing table selects the device for a connection",
		Fix: fmt.Sprintf("ip route add %v dev %s (or via a router: ip route add %v via ROUTER)", peer, netdev, peer)}
	if peer.Unmap().Is4() {
		return f
	}
	if !m.exists("proc", "sys", "net", "ipv6") {
		f.Seen = fmt.Sprintf("there is no route to %v, because the kernel has no IPv6: %v", peer, err)
		f.Fix = "remove ipv6.disable=1 from the kernel's command line, and restart the machine"
		return f
	}
	for _, name := range []string{"all", netdev} {
		if m.read("proc", "sys", "net", "ipv6", "conf", name, "disable_ipv6") == "1" {
			f.Seen = fmt.Sprintf("there is no route to %v, because sysctl net.ipv6.conf.%s.disable_ipv6 is 1: %v", peer, name,
				err)
			f.Fix = fmt.Sprintf("echo 0 > /proc/sys/net/ipv6/conf/%s/disable_ipv6 (then add the addresses again: the kernel "+
				"has removed them)", name)
			return f
		}
	}
	return f
}

// gidFor checks that there is a GID for an address of this machine.
func (m *machine) gidFor(local, requested netip.Addr) []Finding {
	for _, d := range m.devices {
		for _, p := range d.ports {
			for _, g := range p.gids {
				if addr(g) != local || p.ethernet && !v2(g) {
					continue
				}
				switch m.uses(d, g) {
				case "": // gids reports it
					return nil
				case d.Name:
					return []Finding{fact("address", "for %v, %s port %d is used, with GID index %d: %v", requested,
						d.Name, p.number, g.Index, local)}
				}
			}
		}
	}
	netdev := m.interfaceOf(local)
	f := Finding{ID: "address-elsewhere", Severity: Error,
		Seen: fmt.Sprintf("%v is reached from %v on %s, which no RDMA device uses", requested, local, or(netdev, "?")),
		Why:  "a connection by this address finds no device",
		Fix: fmt.Sprintf("use an address of an RDMA device (doctor lists them), or rdma link add rxe0 type rxe netdev %s",
			or(netdev, "INTERFACE"))}
	for _, d := range m.devices {
		for _, p := range d.ports {
			switch {
			case p.netdev != netdev || netdev == "":
			case !p.ethernet:
				return nil // IPoIB
			default:
				f.ID, f.Seen = "no-gid-for-address", fmt.Sprintf("%s port %d has no GID for %v", d.Name, p.number, local)
				f.Fix = fmt.Sprintf("ip addr add %v dev %s (or, if it is there: ip link set %s down; ip link set %s up)",
					netip.PrefixFrom(local, local.BitLen()), netdev, netdev, netdev)
				return []Finding{f}
			}
		}
	}
	return []Finding{f}
}

// interfaceOf returns the first network interface that has an address, or "".
func (m *machine) interfaceOf(a netip.Addr) string {
	names := m.interfacesOf(a)
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// interfacesOf returns the names of the network interfaces that have an address.
func (m *machine) interfacesOf(a netip.Addr) (names []string) {
	for name, addrs := range m.addrs {
		if slices.Contains(addrs, a) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
