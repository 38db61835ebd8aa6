package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pci checks the link between the adapter and the machine, and relaxed ordering.
func pci(m *machine) []Finding {
	var all []Finding
	for _, d := range m.devices {
		if d.pci == nil {
			continue
		}
		at := func(file string) string { return m.read(append(slices.Clone(d.pci), file)...) }
		speed, best := at("current_link_speed"), at("max_link_speed")
		width, widest := at("current_link_width"), at("max_link_width")
		if speed != best || width != widest {
			all = append(all, Finding{ID: "pci-link", Severity: Warning,
				Seen: fmt.Sprintf("%s uses PCI with %s x%s, of %s x%s", d.Name, speed, width, best, widest),
				Why:  "the adapter cannot reach its bandwidth",
				Fix:  "lspci -vv -s " + m.slot(d) + " (then move the adapter to a faster slot, or seat it again)"})
		}
		if m.strict(d) {
			all = append(all, Finding{ID: "relaxed-ordering", Severity: Note,
				Seen: "relaxed ordering of PCI is disabled for " + d.Name,
				Why:  "the adapter's writes wait for each other, which limits bandwidth on many servers",
				Fix:  "setpci -s " + m.slot(d) + " CAP_EXP+8.w=0010:0010"})
		}
	}
	return all
}

// slot returns the PCI address of a device.
func (m *machine) slot(d device) string {
	dir, err := filepath.EvalSymlinks(m.path(d.pci...))
	if err != nil {
		return d.Name
	}
	return filepath.Base(dir)
}

// strict reports whether relaxed ordering is disabled in the device's configuration space: bit 4 of the control
// register of the PCI Express capability. Only root can read it. Virtual functions have the setting of their physical
// function, and do not show it.
func (m *machine) strict(d device) bool {
	if m.exists(append(slices.Clone(d.pci), "physfn")...) {
		return false
	}
	b, err := os.ReadFile(m.path(append(slices.Clone(d.pci), "config")...))
	if err != nil || len(b) < 256 {
		return false
	}
	const pointer, express, control, relaxed = 0x34, 0x10, 8, 1 << 4
	at := int(b[pointer]) &^ 3
	for range 48 { // a list with a loop ends here
		if at < 0x40 || at+control >= 256 {
			return false
		}
		if b[at] == express {
			return b[at+control]&relaxed == 0
		}
		at = int(b[at+1]) &^ 3
	}
	return false
}

// iommu checks whether an IOMMU translates the adapter's accesses.
func iommu(m *machine) []Finding {
	var all []Finding
	for _, d := range m.devices {
		if d.pci == nil {
			continue
		}
		kind := m.read(append(slices.Clone(d.pci), "iommu_group", "type")...)
		if !strings.HasPrefix(kind, "DMA") {
			continue
		}
		all = append(all, Finding{ID: "iommu", Severity: Note,
			Seen: "the IOMMU translates every access of " + d.Name + " to memory (" + kind + ")",
			Why:  "translations that miss the IOMMU's cache cost bandwidth; GPUs and other devices cannot be accessed directly",
			Fix:  "add iommu=pt to the kernel's command line, and restart the machine"})
	}
	return all
}
