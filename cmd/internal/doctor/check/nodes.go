package check

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// nodes checks that the program may open the nodes in /dev/infiniband.
func nodes(m *machine) []Finding {
	all := m.eachDevice(func(d device) []Finding {
		if d.Char == nil {
			return nil
		}
		return m.node(d.Char.Name, d.Name, d.Char.Major, d.Char.Minor, true)
	})
	if m.cm != nil {
		all = append(all, m.node("rdma_cm", "the connection manager", m.cm.Major, m.cm.Minor, false)...)
	}
	return all
}

// node checks one node of what: a device, or the connection manager.
func (m *machine) node(name, what string, major, minor uint32, device bool) []Finding {
	path := "/dev/infiniband/" + name
	err := m.Kernel.OpenNode(m.path("dev", "infiniband", name))
	why := "programs cannot use " + what
	if !device {
		why = "programs cannot connect by IP address"
	}
	f := Finding{Severity: Error, Why: why}
	switch {
	case err == nil:
		return nil
	case missing(err), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		f.ID, f.Seen = "node-missing", path+" does not exist"
		f.Fix = fmt.Sprintf("mkdir -p /dev/infiniband && mknod -m 666 %s c %d %d", path, major, minor)
		if !missing(err) {
			f.Seen = fmt.Sprintf("%s has the number of no device: %s has %d:%d", path, what, major, minor)
			f.Fix = fmt.Sprintf("rm %[1]s && mknod -m 666 %[1]s c %[2]d %[3]d", path, major, minor)
		}
		if m.container() {
			f.Fix = "docker run --device " + path + " ... (Kubernetes: a device plugin for RDMA)"
		}
	case errors.Is(err, unix.EACCES) && m.capable(unix.CAP_DAC_OVERRIDE):
		f.ID, f.Seen = "node-rights", "root may not open "+path+": neither its owner nor its mode is the reason"
		f.Fix = "findmnt -no OPTIONS -T " + path + " (nodev forbids devices; otherwise a security module does: see dmesg)"
	case errors.Is(err, unix.EACCES):
		f.ID, f.Seen = "node-rights", "this user may not open "+path
		f.Fix = "chmod 666 " + path + " (for good: install the udev rules of the package rdma-core)"
	case errors.Is(err, unix.EPERM) && !m.shared():
		return nil // netns reports it
	case errors.Is(err, unix.EPERM):
		f.ID, f.Seen = "node-forbidden", "the device cgroup does not allow to open "+path
		f.Fix = "docker run --device " + path + " ... (systemd: DeviceAllow=" + path + " rw)"
	default:
		f.ID, f.Seen = "node-error", strings.TrimPrefix(err.Error(), "open ")
		f.Fix = "dmesg | grep -iE 'infiniband|rdma|mlx5' (the kernel's log has the cause)"
	}
	return []Finding{f}
}
