//go:build vm

package faults

import (
	"testing"
)

func TestFaults(t *testing.T) { testFaults(t, "6.12", quick) }

// testFaults does everything on two guests of a kernel.
func testFaults(t *testing.T, kernel string, how scale) {
	p := newPair(t, kernel, how)
	t.Cleanup(func() { p.table(t) })
	before := p.resources(t)
	for _, f := range []struct {
		name string
		test func(*testing.T)
	}{{"network", p.testNetwork}, {"link", p.testLink}, {"kill", p.testKill}, {"stop", p.testStop}, {"gc", p.testGC}} {
		t.Run(f.name, f.test)
	}
	p.leavesNothing(t, before)
}
