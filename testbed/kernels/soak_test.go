//go:build vm && soak

package kernels

import (
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// TestSoak runs the long tests of the packages in guests with 6.12.
func TestSoak(t *testing.T) {
	config := vm.Config{Kernel: "6.12", RXE: true, Root: true, CPUs: 2}
	g := vm.Start(t, config)
	for _, pkg := range []string{"uverbs/devicetest", "cm/devicetest"} {
		t.Run(pkg, func(t *testing.T) {
			binary := vm.BuildTest(t, "github.com/goverbs/goverbs/"+pkg, "device,soak", config.Arch)
			vm.RunTests(t, g, binary, vm.TestOptions{Timeout: 2 * time.Hour,
				Args: []string{"-test.run=^TestDevice(Soak|Scale$|Flood$)"},
				Env: []string{
					"GOVERBS_DEVICE=rxe0", "GOVERBS_KERNEL=" + config.Kernel,
					"GOVERBS_SOAK_ROUNDS=" + os.Getenv("GOVERBS_SOAK_ROUNDS")}})
		})
	}
}
