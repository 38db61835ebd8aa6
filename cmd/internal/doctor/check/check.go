// Package check has the checks of doctor. Each file checks one subject and reports what it finds, with the command that
// mends it.
package check

import (
	"cmp"
	"fmt"
	"slices"
)

// A Severity says how much a finding matters.
type Severity int

// The severities, from the least to the most important.
const (
	OK      Severity = iota // a fact
	Note                    // RDMA works, and could be faster or more convenient
	Warning                 // RDMA works here, but some programs or peers fail
	Error                   // RDMA does not work
)

var severityNames = []string{"ok", "note", "warning", "error"}

func (s Severity) String() string { return severityNames[s] }

// MarshalText returns the name of the severity.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText returns.
func (s *Severity) UnmarshalText(text []byte) error {
	i := slices.Index(severityNames, string(text))
	if i < 0 {
		return fmt.Errorf("%q is not a severity", text)
	}
	*s = Severity(i)
	return nil
}

// A Finding is the result of a check.
type Finding struct {
	ID       string   `json:"id"` // such as "memlock", the same in every release
	Severity Severity `json:"severity"`
	Device   string   `json:"device,omitempty"` // the device, or the PCI address of an adapter without one
	Port     int      `json:"port,omitempty"`   // the port, or 0
	Seen     string   `json:"seen"`             // what was seen, with the device or file
	Why      string   `json:"why,omitempty"`    // why it matters
	Fix      string   `json:"fix,omitempty"`    // the command that mends it
}

// A Request says what to check besides the machine itself.
type Request struct {
	Device  string // "" for all devices
	Address string // an address of this machine, or of a peer, or ""
}

// A subject is a set of checks.
type subject func(m *machine) []Finding

// subjects lists the checks in the order of their output: what a later one needs comes first.
var subjects = []subject{
	modules, adapters, nodes, netns, provider, memlock, files, cgroups, ports, gsi, mtu, gids, address, cmDefaults,
	flowControl, counters, pci, iommu, numa, hugePages, firmware, use,
}

// Run runs all checks. The errors come first.
func Run(s *System, r Request) []Finding {
	m := examine(s, r)
	var all []Finding
	for _, f := range subjects {
		all = append(all, f(m)...)
	}
	m.relax(all)
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	return all
}

// relax changes errors of devices and ports to warnings if RDMA works through another port, because the others may be
// unused.
func (m *machine) relax(all []Finding) {
	works := false
	for _, d := range m.devices {
		for _, p := range d.ports {
			works = works || p.active() && !slices.ContainsFunc(all, func(f Finding) bool {
				mine := f.Device == "" || f.Device == d.Name && (f.Port == 0 || f.Port == int(p.number))
				return f.Severity == Error && mine
			})
		}
	}
	for i := range all {
		if works && all[i].Device != "" {
			all[i].Severity = min(all[i].Severity, Warning)
		}
	}
}

// Worst returns the highest severity of the findings.
func Worst(findings []Finding) Severity {
	worst := OK
	for _, f := range findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// fact returns a finding of severity OK.
func fact(id, format string, args ...any) Finding {
	return Finding{ID: id, Seen: fmt.Sprintf(format, args...)}
}
