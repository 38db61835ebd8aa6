//go:build vm

package perftest

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// TestSIW runs tests on soft-iWARP, with connections of rdma_cm. Its READs and WRITEs have no immediate data.
func TestSIW(t *testing.T) {
	vm.SkipRepeat(t, "the same on rxe and in memory; the bed builds the kernel's module")
	h := &host{guest: vm.Start(t, vm.Config{Kernel: "6.12-siw", Root: true, SIW: true}), device: "siw0", port: 18515}
	var err error
	if h.ours, err = h.guest.Install(vm.BuildProgram(t, "github.com/goverbs/goverbs/bench/goverbs-perftest", "",
		"amd64")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []run{{"write_bw", "-n 20 -R -s 1024"}, {"write_lat", "-n 20 -R"}, {"read_bw", "-n 20 -R -s 1024"},
		{"read_lat", "-n 20 -R"}, {"send_lat", "-n 20 -R"}} {
		t.Run(c.String(), func(t *testing.T) { h.both(t, c) })
	}
}
