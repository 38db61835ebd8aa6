package check

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
)

// nvidia is the PCI vendor of ConnectX and BlueField adapters.
const nvidia = "0x15b3"

// adapters checks that there is a device, and that each ConnectX in the machine has its drivers.
func adapters(m *machine) []Finding {
	if m.err != nil {
		return nil
	}
	var all []Finding
	found := 0
	for _, slot := range m.list("sys", "bus", "pci", "devices") {
		dir := []string{"sys", "bus", "pci", "devices", slot}
		class := m.read(append(slices.Clone(dir), "class")...)
		if m.read(append(slices.Clone(dir), "vendor")...) != nvidia || !strings.HasPrefix(class, "0x02") {
			continue
		}
		found++
		for _, f := range m.adapter(slot, dir) {
			f.Device = slot
			all = append(all, f)
		}
	}
	if len(m.devices) > 0 || len(all) > 0 || len(m.hidden) > 0 {
		return all
	}
	if m.request.Device != "" {
		return []Finding{{ID: "no-such-device", Severity: Error, Seen: "there is no RDMA device " + m.request.Device,
			Why: "it was requested on the command line", Fix: "doctor (without -d, lists all devices)"}}
	}
	seen := "there is no RDMA device, and no ConnectX adapter in the machine"
	if found > 0 {
		seen = "there is no RDMA device"
	}
	return []Finding{{ID: "no-device", Severity: Error, Seen: seen,
		Why: "programs need a device; soft-RoCE makes one of any network interface",
		Fix: "rdma link add rxe0 type rxe netdev " + m.anyInterface()}}
}

// adapter checks the drivers of a ConnectX.
func (m *machine) adapter(slot string, dir []string) []Finding {
	at := func(elem ...string) []string { return append(slices.Clone(dir), elem...) }
	if m.exists(at("infiniband")...) {
		return nil
	}
	driver := ""
	if m.exists(at("driver")...) {
		driver = "unknown"
		if link, err := filepath.EvalSymlinks(m.path(at("driver")...)); err == nil {
			driver = filepath.Base(link)
		}
	}
	why := "its ports are not RDMA devices"
	switch driver {
	case "":
		return []Finding{{ID: "no-driver", Severity: Error, Seen: "the adapter " + slot + " has no driver", Why: why,
			Fix: "modprobe mlx5_core mlx5_ib"}}
	case "mlx5_core":
		return []Finding{{ID: "no-mlx5-ib", Severity: Error,
			Seen: "the adapter " + slot + " has its network driver, and the module mlx5_ib is not loaded", Why: why,
			Fix: "modprobe mlx5_ib"}}
	}
	return []Finding{{ID: "foreign-driver", Severity: Warning,
		Seen: fmt.Sprintf("the adapter %s belongs to the driver %s", slot, driver), Why: why,
		Fix: fmt.Sprintf("echo %s > /sys/bus/pci/drivers/%s/unbind && echo %s > /sys/bus/pci/drivers/mlx5_core/bind",
			slot, driver, slot)}}
}

// anyInterface returns the name of a network interface that can have a soft-RoCE device. It prefers one that is up and
// has a link, then one with an address, then one with a device of its own, unlike bridges and tunnels.
func (m *machine) anyInterface() string {
	best, most := "INTERFACE", -1
	for _, name := range m.list("sys", "class", "net") {
		const up, loopback = 1, 8 // IFF_UP, IFF_LOOPBACK
		flags, rank := m.flags(name), 0
		if !m.exists("sys", "class", "net", name, "flags") || flags&loopback != 0 { // bonding_masters is a file
			continue
		}
		if flags&up != 0 && m.read("sys", "class", "net", name, "operstate") != "down" {
			rank += 4
		}
		if slices.ContainsFunc(m.addrs[name], netip.Addr.IsGlobalUnicast) {
			rank += 2
		}
		if m.exists("sys", "class", "net", name, "device") {
			rank++
		}
		if rank > most {
			best, most = name, rank
		}
	}
	return best
}

// rdmaInterface returns the network interface of an active RDMA port, with an address of the same family as a peer's if
// possible, or another network interface.
func (m *machine) rdmaInterface(peer netip.Addr) string {
	var active []string
	for _, d := range m.devices {
		for _, p := range d.ports {
			if p.active() && p.netdev != "" {
				active = append(active, p.netdev)
			}
		}
	}
	for _, name := range active {
		if slices.ContainsFunc(m.addrs[name], func(a netip.Addr) bool { return a.Is4() == peer.Unmap().Is4() }) {
			return name
		}
	}
	if len(active) > 0 {
		return active[0]
	}
	return m.anyInterface()
}
