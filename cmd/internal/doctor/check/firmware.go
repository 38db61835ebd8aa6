package check

import (
	"fmt"
	"strings"
)

// firmware reports the versions, and finds adapters of one kind with different firmware.
func firmware(m *machine) []Finding {
	var all []Finding
	type version struct{ device, firmware string }
	boards := make(map[string]version)
	for _, d := range m.devices {
		f := fmt.Sprintf("%s: driver %s, firmware %s", d.Name, d.driver, or(d.FWVersion, "none"))
		if v := m.read("sys", "module", d.driver+"_core", "version"); v != "" {
			f += ", driver version " + v
		}
		all = append(all, fact("firmware", "%s", f))
		board := m.read("sys", "class", "infiniband", d.Name, "board_id")
		first, known := boards[board]
		if known && first.firmware != d.FWVersion {
			all = append(all, Finding{ID: "firmware-differs", Severity: Note,
				Seen: fmt.Sprintf("%s has firmware %s, and %s, the same kind of adapter, %s", d.Name, d.FWVersion,
					first.device, first.firmware),
				Why: "they may differ in features and speed", Fix: "mlxfwmanager --online -u"})
		}
		if board != "" && !known {
			boards[board] = version{d.Name, d.FWVersion}
		}
	}
	return append(all, m.kernelVersion()...)
}

// kernelVersion reports the kernel. rxe before Linux 6.0 can loop in the kernel, so its provider refuses it.
func (m *machine) kernelVersion() []Finding {
	release := m.read("proc", "sys", "kernel", "osrelease")
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return nil
	}
	all := []Finding{fact("kernel", "Linux %s", strings.TrimSpace(release))}
	for _, d := range m.devices {
		if d.driver == "rxe" && major < 6 {
			all = append(all, Finding{ID: "rxe-old", Severity: Error, Device: d.Name,
				Seen: fmt.Sprintf("%s is a soft-RoCE device of Linux %s", d.Name, release),
				Why:  "before Linux 6.0, its driver can loop in the kernel: goverbs refuses it",
				Fix: "install Linux 6.0 or newer, and restart the machine (Debian: apt-get install linux-image-$(dpkg " +
					"--print-architecture))"})
		}
	}
	return all
}
