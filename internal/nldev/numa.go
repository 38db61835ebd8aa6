package nldev

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// NUMANode returns the NUMA node of a device, or -1 if it has none, as soft-RoCE.
func NUMANode(dev string) int { return kernel.sys.NUMANode(dev) }

// NUMANode is the function NUMANode for this root. The device of some drivers is an auxiliary one, whose parent, the
// PCI device, has the node.
func (s Sysfs) NUMANode(dev string) int {
	if !validName(dev) {
		return -1
	}
	parent, err := filepath.EvalSymlinks(s.path("class", "infiniband", dev, "device"))
	if err != nil {
		return -1
	}
	for _, dir := range []string{parent, filepath.Dir(parent)} {
		b, err := os.ReadFile(filepath.Join(dir, "numa_node"))
		if n, bad := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && bad == nil && n >= 0 {
			return n
		}
	}
	return -1
}
