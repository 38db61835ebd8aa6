package check

import (
	"errors"
	"fmt"
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

// elsewhere returns the finding that the network interface of a GID is not in this network namespace.
func (m *machine) elsewhere(name string, g nldev.GID) Finding {
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

// duplicates returns a finding if connections by the address of a GID use another device.
func (m *machine) duplicates(d device, name string, gids []nldev.GID) []Finding {
	for _, g := range gids {
		if other := m.uses(d, g); other != "" && other != d.Name {
			return []Finding{{ID: "gid-duplicate", Severity: Warning,
				Seen: fmt.Sprintf("%s and %s have the same address, %v: connections by it use %s", name, other, addr(g), other),
				Why:  "no connection by this address uses " + d.Name + ", and packets that arrive there may be lost",
				Fix:  fmt.Sprintf("ip addr del %v dev %s (and add another address)", addr(g), or(g.Netdev, "INTERFACE"))}}
		}
	}
	return nil
}
