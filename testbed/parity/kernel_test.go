//go:build vm

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// TestKernel runs everything once more on one kernel: what comes of it is what
// the page says.
func TestKernel(t *testing.T) {
	const kernel = "6.12"
	_, want := readPage(t)
	binaries, err := build(t.Context(), root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	got := newReport()
	b, err := bed.Ensure(t.Context(), nil, bed.Root)
	if err != nil {
		t.Fatal(err)
	}
	if got.library, err = libraryVersion(b); err != nil {
		t.Fatal(err)
	}
	if got.library != want.library {
		t.Logf("the page has rdma-core %s, this is %s: run `go run ./testbed/parity -write`", want.library, got.library)
	}
	var said strings.Builder
	g := vm.Start(t, vm.Config{Kernel: kernel, Root: true, RXE: true})
	if err := got.measure(t.Context(), g, kernel, binaries, &said); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(want.column(kernel), got.column(kernel)); d != "" {
		t.Errorf("(-page +now):\n%s\n%s", d, &said)
	}
}

// column is what came of all tests on a kernel.
func (r *report) column(kernel string) map[string][2]outcome {
	all := make(map[string][2]outcome)
	for _, s := range r.results {
		for _, c := range s.cases {
			all[s.module+"."+c.name] = [2]outcome{on(c.inC, kernel), on(c.inGo, kernel)}
		}
	}
	return all
}
