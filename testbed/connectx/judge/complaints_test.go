//go:build vm

package main

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// alarming matches lines of a kernel's log that must be explained: messages
// about the device above level info, and warnings about the kernel itself.
var alarming = regexp.MustCompile(`(?i)WARNING|BUG:|Call Trace|refcount_t: |UBSAN: ` +
	`|mlx5.*(fail|err|warn|timeout|unable|can't|bad |invalid|not |missing|limit|leak)` +
	`|infiniband.*(fail|err|warn)`)

// harmless are lines with an explanation.
var harmless = []struct {
	line *regexp.Regexp
	why  string
}{
	{regexp.MustCompile(`mlx5_pci_vsc_init.*Failed to get valid vendor specific ID`),
		"the device has no vendor-specific PCI capability: it is for dumps of crashed firmware, and the driver does without"},
	{regexp.MustCompile(`QUERY_ISSI\(0x10a\).*bad operation|Query ISSI is not supported by FW`),
		"imitated old firmware without interface versions (Config.NoISSI)"},
	{regexp.MustCompile(`mlx5e_tc_post_act_init.*firmware level support is missing`),
		"6.1: the device has no flow tables for traffic control (ignore_flow_level), which is then done by the kernel"},
	{regexp.MustCompile(`Rate limit: \d+ rates are supported`),
		"the driver says how many rates of packet pacing the device has"},
	{regexp.MustCompile(`PTM is not supported by PCIe`), "QEMU's root ports have no precise time measurement," +
		" which is for clocks"},
}

// checkLog fails the test if a guest's kernel has logged a line that is not
// explained.
func checkLog(t *testing.T, g *vm.Guest) {
	t.Helper()
	log, err := g.Dmesg(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Error(err)
		return
	}
	for line := range strings.Lines(log) {
		checkLine(t, g, line)
	}
}

func checkLine(t *testing.T, g *vm.Guest, line string) {
	t.Helper()
	if alarming.MatchString(line) && !isHarmless(line) {
		t.Errorf("kernel %s says: %s", g.Kernel(), strings.TrimSpace(line))
	}
}

func isHarmless(line string) bool {
	for _, h := range harmless {
		if h.line.MatchString(line) {
			return true
		}
	}
	return false
}
