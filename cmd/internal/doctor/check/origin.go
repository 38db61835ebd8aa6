package check

import (
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/internal/version"
)

// An Origin says which program has looked at which machine.
type Origin struct {
	Version string `json:"version"`          // of doctor
	Commit  string `json:"commit,omitempty"` // that doctor was built from
	Host    string `json:"host"`
	Kernel  string `json:"kernel"` // its release, such as 6.12.1
	Arch    string `json:"arch"`   // such as amd64
}

// Origin returns the origin of what Run finds.
func (s *System) Origin() Origin {
	v := version.Read()
	return Origin{Version: v.Version, Commit: v.Commit, Host: s.read("proc", "sys", "kernel", "hostname"),
		Kernel: s.read("proc", "sys", "kernel", "osrelease"), Arch: runtime.GOARCH}
}

// Is reports whether a host is this machine: whether it is its name, with or without a domain, or one of its addresses.
func (s *System) Is(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		all, _ := s.Kernel.Addresses() // without them the machine is known by its name only
		for _, addrs := range all {
			if slices.Contains(addrs, a.Unmap()) {
				return true
			}
		}
		return false
	}
	name, _, _ := strings.Cut(host, ".")
	own, _, _ := strings.Cut(s.Origin().Host, ".")
	return name != "" && strings.EqualFold(name, own)
}
