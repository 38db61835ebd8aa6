package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// numa checks that the program may run on the CPUs next to the adapter.
func numa(m *machine) []Finding {
	var all []Finding
	allowed := cpus(m.status("Cpus_allowed_list"))
	for _, d := range m.devices {
		if d.pci == nil {
			continue
		}
		node := m.number(append(slices.Clone(d.pci), "numa_node")...)
		if node < 0 {
			continue
		}
		near := cpus(m.read("sys", "devices", "system", "node", fmt.Sprintf("node%d", node), "cpulist"))
		if len(near) == 0 || len(allowed) == 0 || slices.ContainsFunc(near, func(n int) bool {
			return slices.Contains(allowed, n)
		}) {
			all = append(all, fact("numa", "%s is at NUMA node %d", d.Name, node))
			continue
		}
		all = append(all, Finding{ID: "numa", Severity: Warning,
			Seen: fmt.Sprintf("%s is at NUMA node %d, and this program may not run on a CPU of it", d.Name, node),
			Why:  "each access crosses between the processors: latency grows, and bandwidth falls",
			Fix:  fmt.Sprintf("numactl --cpunodebind=%d --membind=%d COMMAND", node, node)})
	}
	return all
}

// cpus parses a list such as "0-3,8".
func cpus(list string) []int {
	var all []int
	for part := range strings.SplitSeq(list, ",") {
		low, high, ranged := strings.Cut(strings.TrimSpace(part), "-")
		first, err := strconv.Atoi(low)
		if err != nil {
			continue
		}
		last := first
		if ranged {
			if last, err = strconv.Atoi(high); err != nil {
				continue
			}
		}
		for n := first; n <= last && len(all) < 1<<16; n++ {
			all = append(all, n)
		}
	}
	return all
}

// hugePages checks whether memory can be in large pages, of which an adapter needs fewer translations.
func hugePages(m *machine) []Finding {
	thp := m.read("sys", "kernel", "mm", "transparent_hugepage", "enabled")
	reserved := m.number("proc", "sys", "vm", "nr_hugepages")
	if len(m.devices) == 0 || !strings.Contains(thp, "[never]") || reserved > 0 {
		return nil
	}
	return []Finding{{ID: "huge-pages", Severity: Note, Seen: "there are no huge pages, neither transparent nor reserved",
		Why: "large regions take longer to register, and the adapter needs more translations",
		Fix: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"}}
}
