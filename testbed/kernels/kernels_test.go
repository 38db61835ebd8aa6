//go:build vm

package kernels

import (
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// library are the packages with tests with the build tag device, which need
// GOVERBS_DEVICE.
var library = []string{"internal/nldev", "internal/rdmacm", "provider/rxe", "uverbs/devicetest", "cm/devicetest", "cm",
	"rdma", "rsocket"}

// programs are commands with tests with the build tag device. The tests use rxe0's
// address, and do not depend on the kernel.
var programs = []string{"cmd/internal/rping", "cmd/ucmatose"}

// conns has what every net.Conn must do, of rsocket.Conn.
var conns = []string{"testbed/netconn"}

// mistakes are programs with mistakes, and what rxe reports for each. Linux 6.1
// reports five of them with another status.
var mistakes = []string{"verbstest/mistakes"}

// A place is a kernel on which the library is tested, and the tests that run
// there.
type place struct {
	config   vm.Config
	packages []string
	run      string // the tests that run, or "" for all
	skip     string // those of them that are skipped
	repeats  string // the place that has the same tests (vm.SkipRepeat), or ""
}

// scale are tests that take long and do not depend on the kernel: one of them
// is enough.
const scale = "Scale"

// behaviour are tests that do not depend on the architecture: they take long,
// and have passed on the same kernel for amd64.
const behaviour = scale + "|Parity.*|RDMACM|Stress.*|Many.*|Churn|.*Killed|.*Race.*|DialCut.*|Migrate.*|Async" +
	"|Removal|Unprivileged"

// pages are tests that depend on the kernel's page size: mapped rings,
// registered memory, memory excluded from forks.
const pages = "Open|Conformance|RingsUnmapped|MRAtAddress|Memlock|Limits|Rereg.*|MWType.*|QueueFull|Resize" +
	"|SRQResize|CloseWithChildren|CloseWakes|NothingAllocated|RCGather|RCInline|RCBatch|Parity(MR|HugePage|Fork|PD)"

// unsafe are tests on kernels where Open refuses rxe: that it does, and those
// that do not need an open device.
const unsafe = "Open|AgainstSysfs|AgainstTool|ClientNode|Resources|System|Ports|Links|Kernel"

var places = []place{
	{vm.Config{Kernel: "6.1", Arch: "amd64", RXE: true, Root: true}, library, "", scale, ""},
	{vm.Config{Kernel: "6.12", Arch: "amd64", RXE: true, Root: true}, slices.Concat(library, programs, mistakes,
		conns), "", "", ""},
	{vm.Config{Kernel: "7.2", Arch: "amd64", RXE: true, Root: true}, slices.Concat(library, mistakes), "", scale,
		""},
	{vm.Config{Kernel: "6.12", Arch: "arm64", RXE: true}, library, "", behaviour, "6.12/amd64 and 6.12-16k/arm64"},
	{vm.Config{Kernel: "6.12-16k", Arch: "arm64", RXE: true}, []string{"provider/rxe", "uverbs/devicetest"}, pages, "",
		""},
	{vm.Config{Kernel: "5.10", Arch: "amd64", RXE: true, Root: true},
		[]string{"internal/nldev", "internal/rdmacm", "provider/rxe"}, unsafe, "", ""},
}

// A builder builds each test binary once.
type builder struct {
	t     *testing.T
	built map[string]string // by package, tags and architecture
}

func newBuilder(t *testing.T) *builder { return &builder{t, map[string]string{}} }

func (b *builder) test(pkg, tags, arch string) string {
	b.t.Helper()
	key := strings.Join([]string{pkg, tags, arch}, " ")
	if b.built[key] == "" {
		b.built[key] = vm.BuildTest(b.t, "github.com/goverbs/goverbs/"+pkg, tags, arch)
	}
	return b.built[key]
}

func TestKernels(t *testing.T) {
	b := newBuilder(t)
	for _, p := range places {
		t.Run(path.Join(p.config.Kernel, p.config.Arch), func(t *testing.T) {
			if p.repeats != "" {
				vm.SkipRepeat(t, p.repeats)
			}
			g := vm.Start(t, p.config)
			for _, pkg := range p.packages {
				t.Run(pkg, func(t *testing.T) {
					args := []string{"-test.run=^TestDevice"}
					if p.run != "" {
						args[0] += "(" + p.run + ")$"
					}
					if p.skip != "" {
						args = append(args, "-test.skip=^TestDevice("+p.skip+")$")
					}
					vm.RunTests(t, g, b.test(pkg, "device", p.config.Arch), vm.TestOptions{Timeout: 5 * time.Minute, Args: args,
						Env: []string{"GOVERBS_DEVICE=rxe0", "GOVERBS_KERNEL=" + p.config.Kernel}})
				})
			}
			if p.config.Arch != "amd64" {
				testHermetic(t, g, b, p.config.Arch)
			}
		})
	}
}

// hermetic are tests of packages with architecture-specific code, and of the
// provider that uses it. Tests that need the sources, such as those of the
// disassembly, do not depend on the architecture of the machine.
var hermetic = []struct{ pkg, run string }{
	{"mmio", "^Test(Stores|Load|Copy64|Ring.*|Ordered)$"},
	{"provider/mlx5", "^Test(Conformance|Requests|Binds|Registers|MapOffsets|Records|Ladder|Purge|ECE|Settings)$"},
}

func testHermetic(t *testing.T, g *vm.Guest, b *builder, arch string) {
	for _, h := range hermetic {
		t.Run("hermetic/"+h.pkg, func(t *testing.T) {
			vm.RunTests(t, g, b.test(h.pkg, "", arch),
				vm.TestOptions{Timeout: 5 * time.Minute, Args: []string{"-test.run=" + h.run}})
		})
	}
}
