package check

import (
	"fmt"
	"path"
	"strings"
)

// cgroups checks the limits of the rdma controller in the program's cgroup and in those above it.
func cgroups(m *machine) []Finding {
	var all []Finding
	for line := range strings.Lines(m.read("proc", "self", "cgroup")) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		top := "sys/fs/cgroup"
		if part[1] == "rdma" {
			top = "sys/fs/cgroup/rdma"
		} else if part[0] != "0" {
			continue
		}
		for dir := path.Clean("/" + part[2]); ; dir = path.Dir(dir) {
			all = append(all, m.cgroup(path.Join(top, dir))...)
			if dir == "/" {
				break
			}
		}
	}
	return all
}

// cgroup checks one cgroup.
func (m *machine) cgroup(dir string) []Finding {
	current := rdmaLimits(m.read(dir, "rdma.current"))
	var all []Finding
	for name, limits := range rdmaLimits(m.read(dir, "rdma.max")) {
		for _, kind := range []string{"hca_handle", "hca_object"} {
			limit, limited := limits[kind]
			if !limited || !m.checks(name) {
				continue
			}
			used := current[name][kind]
			f := Finding{ID: "cgroup-rdma", Severity: Note, Device: name,
				Seen: fmt.Sprintf("the cgroup /%s may have %d %s of %s, and has %d", dir, limit, kinds[kind], name, used),
				Why:  "a program that needs more fails with EAGAIN",
				Fix:  fmt.Sprintf("echo '%s %s=max' > /%s/rdma.max", name, kind, dir)}
			if free := limit - used; free < enough[kind] {
				f.Severity = Error
			}
			all = append(all, f)
		}
	}
	return all
}

// kinds says what a limit counts. A program with one connection needs the number in enough.
var (
	kinds  = map[string]string{"hca_handle": "open devices", "hca_object": "objects"}
	enough = map[string]int{"hca_handle": 1, "hca_object": 4}
)

// checks reports whether a device is one of those that are checked.
func (m *machine) checks(device string) bool {
	return m.request.Device == "" || m.request.Device == device
}

// rdmaLimits parses rdma.max or rdma.current: the numbers by device and kind. "max" is left out.
func rdmaLimits(text string) map[string]map[string]int {
	all := make(map[string]map[string]int)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		limits := make(map[string]int)
		for _, f := range fields[1:] {
			var n int
			kind, value, _ := strings.Cut(f, "=")
			if _, err := fmt.Sscanf(value, "%d", &n); err == nil {
				limits[kind] = n
			}
		}
		all[fields[0]] = limits
	}
	return all
}
