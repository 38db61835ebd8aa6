//go:build vm

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// TestKernel runs the modules of which something passes on rxe once more on one
// kernel, and all Go tests: what comes of it is what the page says.
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
		t.Logf("the page has rdma-core %s, this is %s: run `go run ./testbed/parity -write`", want.library, got.library)
	}
	var said strings.Builder
	g := vm.Start(t, vm.Config{Kernel: here.kernel, Root: true, RXE: true})
	if err := got.measure(t.Context(), g, here, modules, binaries, &said); err != nil {
		t.Error(err)
	}
	if err := got.behind(here); err != nil {
		t.Error(err)
	}
	now, page := got.column(here), want.column(here)
	for name, o := range page {
		c := now[name]
		if module, _, _ := strings.Cut(name, "."); !slices.Contains(modules, module) {
			c[0] = o[0]
			now[name] = c
		}
		if c[0] == fail || o[0] == fail { // by chance, it may be
			o[0], c[0] = fail, fail
			page[name], now[name] = o, c
		}
	}
	if d := cmp.Diff(page, now); d != "" {
		t.Errorf("(-page +now):\n%s\n%s", d, &said)
	}
}

// column is what came of the tests of suites at a place, with C and with Go.
func (r *report) column(p place) map[string][2]outcome {
	all := make(map[string][2]outcome)
	for _, s := range suites {
		for _, c := range r.suite(s.module).cases {
			all[s.module+"."+c.name] = [2]outcome{at(c.inC, p), at(c.inGo, p)}
		}
	}
	return all
}
