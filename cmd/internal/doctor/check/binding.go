package check

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/uverbs"
)

// A binding is the device that connections by a local address use.
type binding struct {
	device string // "" if they find none
	known  bool
}

// uses returns the device that connections by the address of a GID use, or "" if they find none in this network
// namespace. The kernel looks for the network interface with the address in the namespace of the program, and compares
// it with the GID's. Names do not identify an interface: two namespaces may both have an eth0.
func (m *machine) uses(d device, g nldev.GID) string {
	a := addr(g)
	b, asked := m.bound[a]
	if !asked {
		device, err := m.Kernel.Bind(a)
		b = binding{device: device, known: device != "" || errors.Is(err, uverbs.ErrNoDevice)}
		m.bound[a] = b
	}
	switch {
	case b.known:
		return b.device
	case m.addrs == nil || g.Netdev == "" || slices.Contains(m.addrs[g.Netdev], a):
		return d.Name
	}
	return ""
}

// elsewhere returns the finding that connections by the address of a GID find no device, because its network interface
// is not in this network namespace, or because another one here has the same address.
func (m *machine) elsewhere(name string, g nldev.GID) Finding {
	if here := m.interfacesOf(addr(g)); len(here) > 1 && slices.Contains(here, g.Netdev) {
		other := slices.DeleteFunc(here, func(name string) bool { return name == g.Netdev })[0]
		return Finding{ID: "gid-duplicate", Severity: Error,
			Seen: fmt.Sprintf("%s has the address %v of %s, and %s has it too: connections by it find no RDMA device", name,
				addr(g), g.Netdev, other),
			Why: "no connection by this address uses RDMA", Fix: removeAddress(addr(g), other)}
	}
	f := Finding{ID: "gid-netns", Severity: Error,
		Seen: fmt.Sprintf("%s has the address %v of the network interface %s, which is not in this network namespace",
			name, addr(g), or(g.Netdev, "?")),
		Why: "a connection finds a device by the network interfaces of the program's namespace",
		Fix: "nsenter --net=/proc/1/ns/net COMMAND (as root of the host; or move an interface of the adapter here: " +
			"ip link set INTERFACE netns NAME)"}
	if m.container() {
		f.Fix = "docker run --network host ... (Kubernetes: hostNetwork: true, or an interface of the adapter in the pod, " +
			"by Multus with SR-IOV, macvlan or host-device)"
	}
	return f
}

// removeAddress returns the fix for an address that two network interfaces have.
func removeAddress(a netip.Addr, netdev string) string {
	return fmt.Sprintf("ip addr del %v dev %s (and add another address)", a, or(netdev, "INTERFACE"))
}

// duplicates returns a finding if connections by the address of a GID use another device or port, or may use it.
func (m *machine) duplicates(d device, p port, name string, gids []nldev.GID) []Finding {
	for _, g := range gids {
		other, otherPort, netdev := m.twin(d, p, g)
		f := Finding{ID: "gid-duplicate", Severity: Warning,
			Why: "no connection by this address uses " + d.Name + ", and packets that arrive there may be lost"}
		switch {
		case other == nil:
			continue
		case netdev != g.Netdev:
			use := other.Name
			if other.Name == d.Name || !m.bound[addr(g)].known {
				use = "one of them"
				f.Why = "which one a connection uses is not defined, and packets that arrive at the other one may be lost"
			}
			f.Seen = fmt.Sprintf("%s and %s port %d have the same address, %v: connections by it use %s", name, other.Name,
				otherPort, addr(g), use)
			f.Fix = removeAddress(addr(g), g.Netdev)
		case d.driver == "rxe" || other.driver == "rxe":
			soft := d.Name
			if d.driver != "rxe" {
				soft = other.Name
			}
			f.Seen = fmt.Sprintf("%s and %s use the same network interface, %s: connections by its addresses use %s", name,
				other.Name, netdev, other.Name)
			f.Fix = "rdma link del " + soft
		default: // the ports of a bond
			continue
		}
		return []Finding{f}
	}
	return nil
}

// twin returns another port that connections by the address of a GID use, with its device and network interface, or
// nil. Of the ports of one device, and if the kernel does not say which device it uses, it is the first with the
// address.
func (m *machine) twin(d device, p port, g nldev.GID) (_ *device, number uint32, netdev string) {
	used := m.uses(d, g)
	known := m.bound[addr(g)].known
	for i, other := range m.devices {
		if known && other.Name != used {
			continue
		}
		for _, q := range other.ports {
			if other.Name == d.Name && q.number == p.number {
				return nil, 0, ""
			}
			for _, h := range q.gids {
				if v2(h) && addr(h) == addr(g) && m.uses(other, h) == other.Name {
					return &m.devices[i], q.number, h.Netdev
				}
			}
		}
	}
	return nil, 0, ""
}
