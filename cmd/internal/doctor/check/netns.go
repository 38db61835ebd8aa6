package check

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// shared reports whether network namespaces share the RDMA devices, which is the default.
func (m *machine) shared() bool {
	shared, err := m.Kernel.SharedDevices()
	return shared || err != nil
}

// netns checks that the devices belong to this network namespace.
func netns(m *machine) []Finding {
	if m.err != nil {
		return nil
	}
	if m.shared() {
		return nil
	}
	hidden := m.hidden
	for _, d := range m.devices {
		if d.Char != nil && errors.Is(m.Kernel.OpenNode(m.path("dev", "infiniband", d.Char.Name)), unix.EPERM) {
			hidden = append(hidden, d.Name)
		}
	}
	if len(m.devices) > 0 && len(hidden) == 0 {
		return []Finding{fact("netns", "each RDMA device belongs to one network namespace, and this one has %d",
			len(m.devices))}
	}
	name := "DEVICE"
	if len(hidden) > 0 {
		name = hidden[0]
	}
	seen := "network namespaces do not share RDMA devices, and this one has none"
	if len(hidden) > 0 {
		seen = "RDMA devices of another network namespace: " + strings.Join(hidden, ", ")
	}
	return []Finding{{ID: "netns", Severity: Error, Seen: seen,
		Why: "a program can use only the devices of its own namespace",
		Fix: "rdma dev set " + name + " netns NAME (or, before any other namespace exists: rdma system set netns shared)"}}
}
