//go:build vm

package main

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// Programs and parts of the kernel that use RDMA for a purpose, in one guest with one device. They use more of the
// device than the tests of verbs: registration by work requests, invalidation, DevX, and its default settings.

// startApps boots a guest with the programs of vm.Config.Apps and kernel modules. Warnings of the kernel fail the test.
func startApps(t *testing.T, p place, modules ...string) *machines {
	t.Helper()
	if p.kernel != "6.12" {
		t.Fatalf("kernel %s: Apps are tested on one kernel", p.kernel)
	}
	m := &machines{place: p}
	m.world = world.StartTest(t, world.Config{LinkLayer: p.layer(), Devices: 1, Violation: m.violation(t)})
	c := p.guest(m.world)
	c.Apps, c.Modules = true, append(c.Modules, modules...)
	g := vm.Start(t, c)
	m.guests = []*vm.Guest{g}
	if err := prepare(t.Context(), p, g); err != nil {
		t.Fatal(err)
	}
	program.Until(t, g, "grep -qs ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
	t.Cleanup(func() { checkLog(t, g) })
	return m
}

// forAll runs a test only if all tests run. The programs are a part of the bed that make test does not download.
func forAll(t *testing.T) {
	t.Helper()
	vm.SkipRepeat(t, "C's programs and rdma-core's tests, which are downloaded in any case")
}
