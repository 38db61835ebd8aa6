//go:build vm

package kernels

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// packages have tests with the build tag device, which want GOVERBS_DEVICE.
var packages = []string{
	"github.com/goverbs/goverbs/internal/nldev",
	"github.com/goverbs/goverbs/internal/rdmacm",
	"github.com/goverbs/goverbs/provider/rxe",
	"github.com/goverbs/goverbs/uverbs",
	"github.com/goverbs/goverbs/cm",
}

// guests are the kernels that the library is tested on.
var guests = []vm.Config{
	{Kernel: "6.1", Arch: "amd64", RXE: true, Root: true},
	{Kernel: "6.12", Arch: "amd64", RXE: true, Root: true},
	{Kernel: "7.2", Arch: "amd64", RXE: true, Root: true},
	{Kernel: "6.12", Arch: "arm64", RXE: true},
}

func TestKernels(t *testing.T) {
	all := t
	binaries := make(map[string]string) // by architecture and package
	for _, config := range guests {
		t.Run(path.Join(config.Kernel, config.Arch), func(t *testing.T) {
			g := vm.Start(t, config)
			for _, pkg := range packages {
				t.Run(strings.TrimPrefix(pkg, "github.com/goverbs/goverbs/"), func(t *testing.T) {
					key := config.Arch + " " + pkg
					if binaries[key] == "" {
						binaries[key] = vm.BuildTest(all, pkg, "device", config.Arch)
					}
					vm.RunTests(t, g, binaries[key], vm.TestOptions{Timeout: 5 * time.Minute, Args: []string{"-test.run=^TestDevice"}, Env: []string{
						"GOVERBS_DEVICE=rxe0", "GOVERBS_KERNEL=" + config.Kernel}})
				})
			}
		})
	}
}
