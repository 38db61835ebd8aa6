//go:build vm

package kernels

import (
	"context"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// packages have tests with the build tag device, which want GOVERBS_DEVICE.
var packages = []string{
	"github.com/goverbs/goverbs/internal/nldev",
	"github.com/goverbs/goverbs/provider/rxe",
	"github.com/goverbs/goverbs/uverbs",
}

// guests are the kernels that the library is tested on.
var guests = []vm.Config{
	{Kernel: "6.1", Arch: "amd64", RXE: true, Root: true},
	{Kernel: "6.12", Arch: "amd64", RXE: true, Root: true},
	{Kernel: "7.2", Arch: "amd64", RXE: true, Root: true},
	{Kernel: "6.12", Arch: "arm64", RXE: true},
}

func TestKernels(t *testing.T) {
	for _, config := range guests {
		t.Run(path.Join(config.Kernel, config.Arch), func(t *testing.T) {
			g := boot(t, config)
			for _, pkg := range packages {
				t.Run(strings.TrimPrefix(pkg, "github.com/goverbs/goverbs/"), func(t *testing.T) {
					binary := vm.BuildTest(t, pkg, "device", config.Arch)
					vm.RunTests(t, g, binary, vm.TestOptions{Timeout: 5 * time.Minute, Args: []string{"-test.run=^TestDevice"}, Env: []string{
						"GOVERBS_DEVICE=rxe0", "GOVERBS_KERNEL=" + config.Kernel}})
				})
			}
		})
	}
}

// boot starts a guest that ends with the test.
func boot(t *testing.T, config vm.Config) *vm.Guest {
	t.Helper()
	parts, err := config.Parts()
	if err != nil {
		t.Fatal(err)
	}
	b, err := bed.Ensure(t.Context(), os.Stderr, parts...)
	if err != nil {
		t.Fatal(err)
	}
	// The clean-up needs the guest after the test's own context has ended.
	g, err := vm.Boot(context.WithoutCancel(t.Context()), b, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}
