//go:build vm

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// TestKernel runs on one kernel the modules of which some tests pass on rxe, and all
// Go tests. The results must be those of the page.
func TestKernel(t *testing.T) {
	here := place{rxe, "6.12"}
	_, want := readPage(t)
	binaries, err := build(t.Context(), root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var modules []string
	for _, s := range want.results {
		if c, _ := s.passed(here); c > 0 {
			modules = append(modules, s.module)
		}
	}
	got := newReport()
	b, err := bed.Ensure(t.Context(), nil, bed.Root)
	if err != nil {
		t.Fatal(err)
	}
	if got.library, _, err = pyverbs.Inspect(b); err != nil {
		t.Fatal(err)
	}
	if got.library != want.library {
		t.Logf("the page has rdma-core %s, this is %s: run `go run -C testbed ./parity -write`", want.library, got.library)
	}
	var said strings.Builder
	g := vm.Start(t, vm.Config{Kernel: here.kernel, Root: true, RXE: true})
	if err := got.measure(t.Context(), g, here, modules, extent{}, binaries, &said); err != nil {
		t.Error(err)
	}
	if err := got.behind(here); err != nil {
		t.Error(err)
	}
	now, page := got.column(here), want.column(here)
	alike(page, now, modules)
	if d := cmp.Diff(page, now); d != "" {
		t.Errorf("(-page +now):\n%s\n%s", d, &said)
	}
}
