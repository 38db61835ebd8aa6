//go:build vm

package efa_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeefa"
	"github.com/goverbs/goverbs/testbed/connectx/games"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm"
)

// The modules of rdma-core's tests in Python that are for EFA, with the tests that are skipped: the device has
// no interconnects, which the query names.
var modules = map[string][]string{"test_efa_srd": nil, "test_efadv": {"test_efadv_query_mr"}}

func TestPyverbs(t *testing.T) {
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		t.Run(module, func(t *testing.T) {
			d := fakeefa.New(t, 1, fakeefa.Default).Device(0)
			h := cshim.On(t, d.Name(), "efa")
			args := pyverbs.Args(h.Path(pyverbs.Dir), []string{module}, "--dev", d.Name(), "--gid", "0")
			results, err := pyverbs.RunOn(h.Command("python3", args...))
			if err != nil {
				t.Error(err)
			}
			for _, r := range results {
				t.Logf("%s: %s %s", r.Name, r.Outcome, r.Why)
				if want := slices.Contains(modules[module], r.Name); want != (r.Outcome != pyverbs.Pass) {
					t.Errorf("%s: %s %s", r.Name, r.Outcome, r.Why)
				}
			}
		})
	}
}

// The pairs of programs: perftest on SRD, and on UD.
var pairs = []games.Game{
	{Program: "ib_send_bw", Args: "-c SRD -s 4096 -n 100 -q 2", Core: true},
	{Program: "ib_send_lat", Args: "-c SRD -s 32 -n 100 -I 32"},
	{Program: "ib_send_bw", Args: "-c SRD -s 1024 -n 50 -e"},
	{Program: "ib_read_bw", Args: "-c SRD -s 1048576 -n 10", Core: true},
	{Program: "ib_write_bw", Args: "-c SRD -s 65536 -n 50", Core: true},
	{Program: "ib_write_bw", Args: "-c SRD -s 512 -n 50 --write_with_imm"},
	{Program: "ib_send_bw", Args: "-c UD -s 1024 -n 50 -Q 1"},
	{Program: "ibv_ud_pingpong", Args: "-s 1024 -n 100", Core: true},
}

// C's programs with each other, between two devices.
func TestPairs(t *testing.T) {
	for _, g := range pairs {
		t.Run(g.String(), func(t *testing.T) {
			if !g.Core {
				vm.SkipRepeat(t, "the program with other sizes, or the others")
			}
			f := fakeefa.New(t, 2, fakeefa.Default)
			a, b := cshim.On(t, f.Device(0).Name(), "efa"), cshim.On(t, f.Device(1).Name(), "efa")
			cshim.Play(t, g, "0", a, b)
		})
	}
}
