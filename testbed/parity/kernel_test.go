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

// TestKernel runs everything that has Go tests once more on one kernel: what
// comes of it is what the page says.
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
	if got.library, _, err = pyverbs.Inspect(b); err != nil {
		t.Fatal(err)
	}
	if got.library != want.library {
		t.Logf("the page has rdma-core %s, this is %s: run `go run ./testbed/parity -write`", want.library, got.library)
	}
	var said strings.Builder
	g := vm.Start(t, vm.Config{Kernel: kernel, Root: true, RXE: true})
	if err := got.measure(t.Context(), g, kernel, withGo(), binaries, &said); err != nil {
		t.Error(err)
	}
	if err := got.behind(kernel); err != nil {
		t.Error(err)
	}
	now, page := got.column(kernel), want.column(kernel)
	for name, o := range page {
		if c := now[name]; c[0] == fail || o[0] == fail { // by chance, it may be
			o[0], c[0] = fail, fail
			page[name], now[name] = o, c
		}
	}
	if d := cmp.Diff(page, now); d != "" {
		t.Errorf("(-page +now):\n%s\n%s", d, &said)
	}
}

// column is what came of the tests of suites on a kernel, with C and with Go.
func (r *report) column(kernel string) map[string][2]outcome {
	all := make(map[string][2]outcome)
	for _, s := range suites {
		for _, c := range r.suite(s.module).cases {
			all[s.module+"."+c.name] = [2]outcome{on(c.inC, kernel), on(c.inGo, kernel)}
		}
	}
	return all
}
