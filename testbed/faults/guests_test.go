//go:build vm

package faults

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm"
)

func TestFaults(t *testing.T) { testFaults(t, "6.12", quick) }

// testFaults runs all tests on two guests with a kernel.
func testFaults(t *testing.T, kernel string, how scale) {
	p := newPair(t, kernel, how)
	t.Cleanup(func() { p.table(t) })
	before := p.resources(t)
	for _, f := range []struct {
		name string
		test func(*testing.T)
	}{{"network", p.testNetwork}, {"link", p.testLink}, {"kill", p.testKill}, {"stop", p.testStop}, {"gc", p.testGC},
		{"limits", p.testLimits}, {"services", p.testRXEServices},
		{"datagrams", p.testDatagrams}} {
		t.Run(f.name, f.test)
	}
	p.leavesNothing(t, before)
}

// testLimits runs the tests of package limits in one of the guests, as root and as a
// user with a limit of 64 KiB of locked memory.
func (p *pair) testLimits(t *testing.T) {
	binary := vm.BuildTest(t, "github.com/goverbs/goverbs/testbed/faults/limits", "device", "amd64")
	o := vm.TestOptions{Timeout: 2 * time.Minute, Env: []string{"GOVERBS_DEVICE=rxe0"}}
	o.Args = []string{"-test.run=^TestDevice", "-test.skip=^TestDeviceAsUser"}
	vm.RunTests(t, p.ends[0].guest, binary, o)
	o.Args = []string{"-test.run=^TestDeviceAsUser"}
	o.UID, o.Dir = 1000, "/tmp"
	const locked = 64 << 10
	o.Rlimits = []vm.Rlimit{{Resource: unix.RLIMIT_MEMLOCK, Soft: locked, Hard: locked}}
	vm.RunTests(t, p.ends[0].guest, binary, o)
}
