package uverbs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/ioctl"
)

// A cgroupDir is the path of a cgroup with the rdma controller in the file system,
// without the leading slash.
type cgroupDir string

// explainCgroup explains which limit of the rdma cgroup the process has reached.
// The kernel reports it as EAGAIN (ib_rdmacg_try_charge). If the cgroup's files do
// not show the limit, for example because a container does not have them,
// explainCgroup says where to look. root is the root of the file system, op the
// operation that failed: a context is charged as hca_handle when it is opened.
func explainCgroup(root fs.FS, device, op string) string {
	const fix = ": raise it, or close contexts and objects of the device that are not needed"
	for _, dir := range rdmaCgroups(root) {
		limits, used := dir.read(root, "rdma.max", device), dir.read(root, "rdma.current", device)
		for _, resource := range []string{"hca_handle", "hca_object"} {
			if resource == "hca_handle" && op != "open" {
				continue
			}
			limit, err := strconv.Atoi(limits[resource])
			if err != nil { // "max" or missing
				continue
			}
			if n, err := strconv.Atoi(used[resource]); err == nil && n >= limit {
				return fmt.Sprintf("the process's rdma cgroup allows %d %s on %s, and all are in use (%s in /%s/rdma.max)"+fix,
					limit, cgroupNames[resource], device, resource, dir)
			}
		}
	}
	return fmt.Sprintf("a limit of the process's rdma cgroup is reached (hca_handle or hca_object of %s in rdma.max"+
		" of the cgroup in /proc/self/cgroup, or of one above it)", device) + fix
}

// rootOf returns the root of the file system of the process that uses a device.
func rootOf(d *ioctl.Device) fs.FS {
	if p := d.Process(); p != nil {
		return p.Files()
	}
	return os.DirFS("/")
}

var cgroupNames = map[string]string{"hca_handle": "open context(s)", "hca_object": "object(s)"}

// rdmaCgroups returns the process's cgroup and its ancestors, whose limits apply
// too.
func rdmaCgroups(root fs.FS) (dirs []cgroupDir) {
	list, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(list)) {
		// hierarchy:controllers:path; in cgroup v2 the hierarchy is 0 and there are no
		// controllers.
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, at, ok := strings.Cut(rest, ":")
		mount := "sys/fs/cgroup"
		switch {
		case !ok:
			continue
		case controllers == "rdma":
			mount = path.Join(mount, "rdma")
		case controllers != "":
			continue
		}
		for at = path.Clean("/" + at); ; at = path.Dir(at) {
			dirs = append(dirs, cgroupDir(path.Join(mount, at)))
			if at == "/" {
				break
			}
		}
	}
	return dirs
}

// read returns the values of a device in a file of the cgroup, whose lines look
// like "mlx5_0 hca_handle=2 hca_object=max".
func (d cgroupDir) read(root fs.FS, file, device string) map[string]string {
	text, err := fs.ReadFile(root, path.Join(string(d), file))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != device {
			continue
		}
		values := make(map[string]string)
		for _, v := range f[1:] {
			name, value, _ := strings.Cut(v, "=")
			values[name] = value
		}
		return values
	}
	return nil
}
