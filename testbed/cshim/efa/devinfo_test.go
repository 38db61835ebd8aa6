//go:build vm

// Package efa_test runs C programs with libefa on the EFA of the kernel in memory.
package efa_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeefa"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/testbed/cshim"
)

func TestMain(m *testing.M) {
	cshim.Prepare()
	leaktest.Main(m)
}

func output(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// C's ibv_devinfo describes the device as it is.
func TestDevinfo(t *testing.T) {
	d := fakeefa.New(t, 1, fakeefa.Default).Device(0)
	h := cshim.On(t, d.Name(), "efa")
	out := output(t, h.Command("ibv_devinfo", "-v"))
	for _, want := range []string{"hca_id:\t" + d.Name(), "vendor_id:\t\t\t0x1d0f", "vendor_part_id:\t\t\t61346",
		"max_qp_wr:\t\t\t4096",
		"max_sge:\t\t\t2", "max_srq:\t\t\t0", "state:\t\t\tPORT_ACTIVE", "link_layer:\t\tUnspecified",
		"GID[  0]:\t\tfe80:0000:0000:0000:0200:00ff:fe00:0001"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in what it prints:\n%s", want, out)
		}
	}
}
