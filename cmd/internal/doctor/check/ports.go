package check

import "fmt"

// ports checks that links are up.
func ports(m *machine) []Finding { return m.each(m.port) }

func (m *machine) port(d device, p port) []Finding {
	name := fmt.Sprintf("%s port %d", d.Name, p.number)
	f := Finding{Severity: Error, Why: "nothing can be sent or received through it"}
	up := p.netdev == "" || m.read("sys", "class", "net", p.netdev, "operstate") != "down"
	admin := m.flags(p.netdev)&1 == 1
	switch {
	case p.active():
		kind := "InfiniBand"
		if p.ethernet {
			kind = "RoCE on " + or(p.netdev, "a network interface of another namespace")
		}
		return []Finding{fact("port", "%s is active, %s", name, kind)}
	case p.netdev != "" && !admin:
		f.ID, f.Seen = "port-down", fmt.Sprintf("%s is down, because the network interface %s is", name, p.netdev)
		f.Fix = "ip link set " + p.netdev + " up"
	case is(p.state, "2") && !p.ethernet:
		f.ID, f.Seen = "no-subnet-manager", name+" is initialized, and no subnet manager has configured it"
		f.Fix = "systemctl start opensm (on one machine of the subnet, or enable the switch's subnet manager)"
	case is(p.physical, "3"):
		f.ID, f.Seen = "port-disabled", name+" is disabled"
		f.Fix = fmt.Sprintf("ibportstate -C %s -P %d -D 0 %d enable", d.Name, p.number, p.number)
	case !up || is(p.physical, "2"):
		f.ID, f.Seen = "no-link", name+" has no link: it is "+or(p.state, "in an unknown state")
		f.Fix = "ethtool " + or(p.netdev, d.Name) + " (check the cable, and that the switch's port is enabled)"
	default:
		f.ID, f.Seen = "port-state", name+" is not active: it is "+or(p.state, "in an unknown state")
		f.Fix = "rdma link show " + d.Name + "/" + fmt.Sprint(p.number) + " (and check the cable)"
	}
	return []Finding{f}
}

// flags returns the flags of a network interface: bit 0 is IFF_UP.
func (m *machine) flags(netdev string) int {
	var n int
	if _, err := fmt.Sscanf(m.read("sys", "class", "net", netdev, "flags"), "0x%x", &n); err != nil {
		return 1
	}
	return n
}

// or returns s, or alternative if s is empty.
func or(s, alternative string) string {
	if s == "" {
		return alternative
	}
	return s
}
