//go:build vm

package interop

import (
	"slices"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// TestSIW runs the programs on siw0, a soft-iWARP device: those that need no datagrams. C's rping does not connect a QP
// of its own on iWARP. The server of ucmatose sends first, which siw's clients do not always survive: its cases have no
// messages.
func TestSIW(t *testing.T) {
	vm.SkipRepeat(t, "TestInterop/6.12, and the provider's tests in memory; the bed builds its kernel's module")
	h := newHost(t, vm.Config{Kernel: "6.12-siw", Root: true, SIW: true}, programs(t))
	h.device, h.driver, h.gid = "siw0", "siw", -1
	h.output(t, "ip", "addr", "add", address6+"/64", "dev", "d0", "nodad")
	before := h.resources(t)
	t.Run("provider", func(t *testing.T) {
		vm.RunTests(t, h.guest, vm.BuildTest(t, module+"provider/siw", "device", ""), vm.TestOptions{})
	})
	t.Run("devinfo", h.testDevinfo)
	t.Run("cm", func(t *testing.T) {
		h.testCMCases(t, slices.Concat(rpingCases[:3], ucmatoseCases[3:4], rdmaServerCases))
	})
	t.Run("streams", func(t *testing.T) {
		for _, c := range briefStreams {
			if c.newer {
				continue
			}
			for _, p := range goPairs {
				t.Run(c.String()+"/"+p.String(), func(t *testing.T) { h.stream(t, c, p, address) })
			}
		}
	})
	h.leavesNothing(t, before)
}
