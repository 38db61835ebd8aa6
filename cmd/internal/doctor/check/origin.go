package check

import (
	"runtime"

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
