package check

import (
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/uverbs"
)

// A machine is what all checks need to know about a system.
type machine struct {
	*System
	request Request
	devices []device
	err     error    // of the list of devices
	hidden  []string // devices of other network namespaces
	cm      *nldev.CharDev
	addrs   map[string][]netip.Addr // by network interface
	bound   map[netip.Addr]binding
}

// A device is an RDMA device.
type device struct {
	nldev.Device
	driver string   // such as "mlx5"
	pci    []string // path of its PCI device below the root, nil without one
	ports  []port
}

// A port is a port of an RDMA device.
type port struct {
	number   uint32
	ethernet bool
	state    string // "4: ACTIVE"
	physical string // "5: LinkUp"
	netdev   string // "" on InfiniBand, or if it is in another network namespace
	gids     []nldev.GID
}

// examine reads what the checks need.
func examine(s *System, r Request) *machine {
	m := &machine{System: s, request: r, bound: make(map[netip.Addr]binding)}
	m.addrs, _ = s.Kernel.Addresses() // without it no address is found, which checks report
	list, err := s.Kernel.Devices()
	m.err = err
	for _, d := range list {
		if r.Device == "" || r.Device == d.Name {
			m.devices = append(m.devices, m.device(d))
		}
	}
	if cm, err := s.Kernel.ConnectionManager(); err == nil {
		m.cm = &cm
	}
	for _, name := range s.list("sys", "class", "infiniband") {
		if !slices.ContainsFunc(list, func(d nldev.Device) bool { return d.Name == name }) {
			m.hidden = append(m.hidden, name)
		}
	}
	return m
}

func (m *machine) device(d nldev.Device) device {
	x := device{Device: d, driver: "unknown"}
	if d.Char != nil {
		x.driver = uverbs.Device{DriverID: d.Char.DriverID}.Driver()
	}
	dir := []string{"sys", "class", "infiniband", d.Name, "device"}
	if m.exists(append(dir, "vendor")...) {
		x.pci = dir
	}
	sysfs := nldev.Sysfs{Root: m.path("sys")}
	for n := uint32(1); n <= d.Ports; n++ {
		at := func(file string) string {
			return m.read("sys", "class", "infiniband", d.Name, "ports", strconv.Itoa(int(n)), file)
		}
		p := port{number: n, ethernet: at("link_layer") == "Ethernet", state: at("state"), physical: at("phys_state")}
		p.netdev, _ = sysfs.Netdev(d.Name, n) // InfiniBand has none
		if _, here := m.addrs[p.netdev]; !here && m.addrs != nil {
			p.netdev = ""
		}
		p.gids, _ = sysfs.GIDTable(d.Name, n) // an empty table is reported
		x.ports = append(x.ports, p)
	}
	return x
}

// is reports whether a port is in the state or physical state of the given number.
func is(state, number string) bool { return strings.HasPrefix(state, number+":") }

// active reports whether the port can carry data.
func (p port) active() bool { return is(p.state, "4") }

// addr returns the IP address of a GID.
func addr(g nldev.GID) netip.Addr { return netip.AddrFrom16(g.GID).Unmap() }

// each calls f for each port, and adds the port to its findings.
func (m *machine) each(f func(d device, p port) []Finding) (all []Finding) {
	for _, d := range m.devices {
		for _, p := range d.ports {
			for _, g := range f(d, p) {
				g.Device, g.Port = d.Name, int(p.number)
				all = append(all, g)
			}
		}
	}
	return all
}

// eachDevice calls f for each device, and adds the device to its findings.
func (m *machine) eachDevice(f func(d device) []Finding) (all []Finding) {
	for _, d := range m.devices {
		for _, g := range f(d) {
			g.Device = d.Name
			all = append(all, g)
		}
	}
	return all
}

// container reports whether the program runs in a container.
func (m *machine) container() bool {
	return m.exists(".dockerenv") || m.exists("run", ".containerenv") ||
		m.exists("var", "run", "secrets", "kubernetes.io") || m.pod()
}

// pod reports whether the program runs in a pod of Kubernetes, which may lack the mount of its service account. Its
// containers have the address of the API server in their environment.
func (m *machine) pod() bool {
	for variable := range strings.SplitSeq(m.read("proc", "self", "environ"), "\x00") {
		if strings.HasPrefix(variable, "KUBERNETES_SERVICE_HOST=") {
			return true
		}
	}
	return false
}

// service returns the systemd unit of the program, or "".
func (m *machine) service() string {
	for line := range strings.Lines(m.read("proc", "self", "cgroup")) {
		if unit := filepath.Base(strings.TrimSpace(line)); strings.HasSuffix(unit, ".service") &&
			!strings.HasPrefix(unit, "user@") {
			return unit
		}
	}
	return ""
}

// capable reports whether the program has a capability, one of unix.CAP_*.
func (m *machine) capable(bit int) bool {
	set, err := strconv.ParseUint(m.status("CapEff"), 16, 64)
	return err == nil && set>>bit&1 == 1
}

// status returns a field of /proc/self/status, or "".
func (m *machine) status(field string) string {
	for line := range strings.Lines(m.read("proc", "self", "status")) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// missing reports whether an error means that a file does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
