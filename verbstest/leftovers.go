package verbstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// leftovers is what the programs of a network have left behind when the test ends. After a test that has failed before,
// it is only counted: most of it is left because the test did not come to its end, and it would hide the cause.
type leftovers struct {
	begun  bool // the end of the test
	failed bool // the test had failed before
	listed bool // foundClosing has reported a rule
	counts map[string]int
}

// beginEnd is called first when the test ends.
func (n *Network) beginEnd() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.begun {
		n.begun, n.failed = true, n.t.Failed()
	}
}

// foundClosing handles a rule that is found broken when the program closes something, or leaves it. After a failure it
// is only counted: functions of t.Cleanup close queues that the test has not finished with.
func (n *Network) foundClosing(m *Machine, r Rule, text string, number int) {
	n.mu.Lock()
	skip, failed := n.allowed[r] || m.killed.Load() || m.foreign.Load(), n.failed
	if !n.begun {
		failed = n.t.Failed() && !n.listed
	}
	n.listed = n.listed || !skip && !failed
	n.mu.Unlock()
	switch {
	case skip:
	case failed:
		n.countLeft(string(r), number)
	default:
		n.broken(m, r, text)
	}
}

// countLeft counts what a test that has failed has left.
func (n *Network) countLeft(kind string, number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counts == nil {
		n.counts = map[string]int{}
	}
	n.counts[kind] += number
}

// summarize logs what was only counted.
func (n *Network) summarize() {
	n.t.Helper()
	if len(n.counts) > 0 {
		n.t.Logf("verbstest: the test has failed, so what it left is not listed: %s", sumText(n.counts))
	}
}

// left handles an object that is left: it is reported with the line that created it, unless what is named with this
// line contains it. Those that the library has created in its goroutines are summed up.
func (m *Machine) left(kind, text, line string, named []string) {
	m.net.t.Helper()
	switch {
	case m.net.failed:
		m.net.countLeft(kind, 1)
	case line == "":
		if m.sum == nil {
			m.sum = map[string]int{}
		}
		m.sum[kind]++
	case !slices.Contains(named, line):
		m.net.t.Errorf("verbstest: %s: left in the kernel: %s", m.name, text)
	}
}

// reportSum reports what the library has left. named has the lines of what was named before.
func (m *Machine) reportSum(named []string) {
	m.net.t.Helper()
	if len(m.sum) == 0 {
		return
	}
	text := sumText(m.sum)
	if len(named) > 0 {
		text += ", for what is named above"
	}
	m.net.t.Errorf("verbstest: %s: left in the kernel by the library: %s", m.name, text)
	m.sum = nil
}

// sumText returns the numbers by kind.
func sumText(sum map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(sum)) {
		text := fmt.Sprintf("%d %s", sum[kind], kind)
		if sum[kind] > 1 && !strings.Contains(kind, "-") { // those are rules
			text += "s"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// checkCM reports ids of the connection manager that are left, after the machines were checked.
func (n *Network) checkCM() {
	n.t.Helper()
	if err := n.cm.Violations(); err != nil {
		n.t.Error(err)
	}
	all := n.cm.Left()
	for _, m := range n.machines {
		named := m.lines()
		for _, l := range all {
			if l.Machine == m.cm {
				m.left("rdma_cm "+l.Kind, l.String(), l.Created, named)
			}
		}
		m.reportSum(named)
	}
}

// lines returns the lines of what the program has not released or closed.
func (m *Machine) lines() (lines []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.kept {
		lines = append(lines, k.line)
	}
	return lines
}
