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
	divided  bool   // choices has the tests that repeat; otherwise all do
	once     string // more tests that repeat; may be ""
	objects  bool   // s3rdma/objects runs, too
}

// patience is how long the tests of a package may take in a guest. Those of rdma on arm64 take more than five minutes
// on a busy machine.
const patience = 15 * time.Minute

// scale are tests that take long and do not depend on the kernel: one of them
// is enough.
const scale = "Scale"

// behaviour are tests that do not depend on the architecture: they take long,
// and have passed on the same kernel for amd64.
const behaviour = scale + "|Parity.*|RDMACM|Stress.*|Many.*|Churn|.*Killed|.*Race.*|DialCut.*|Migrate.*|Async" +
	"|Removal|Unprivileged|Rails"

// crowds are tests of cm with many clients at once, which take long.
const crowds = "^TestDevice(Burst|Flood)$"

// many are tests of cm with 300 connections that have as many or more in memory. Flood has as many in a guest.
const many = "^TestDevice(Scale|Burst)$"

// interrupted are tests of cm with calls and processes that end at every moment, and of goroutines that wait.
// CloseRaceConn, DialCut and AcceptCut, which are short, are their like.
const interrupted = "^TestDevice(CloseRace(Listener|ID|Sync)|DialCutAnywhere|ClientKilled|ServerKilled" +
	"|CloseListenerWithRequests|MigrateUnderEvents|CompParks|EventsPark)$"

// A choice divides the tests of a package into those that run on each kernel and those that run once. One of the
// patterns is "" and means the rest.
type choice struct{ each, once string }

// choices are those of packages with tests that depend neither on the kernel nor on the device: of the library's
// goroutines and allocations, of crowds, and of services, which use the kernel only through uverbs and cm. Those of
// services run in memory, too, with the provider of the ConnectX and the same model of it.
var choices = map[string]choice{
	"uverbs/devicetest": {once: "^TestDevice(NothingAllocated|Allocations|BusyAfterWait|LoopsArePreempted|Many)$"},
	"cm/devicetest":     {once: crowds + "|" + interrupted},
	"rdma": {each: "^TestDevice$/^(Messages|Calls|OneSided|Group|Stress|CloseBoth)$|^TestDeviceShared$/^Messages$" +
		"|^TestDeviceTokens$"},
	"rsocket": {each: "^TestDevice$/^(HalfClose|CloseWakes|Ring|Stress)$"},
}

// patterns returns -run and -skip of the tests that run on each kernel, and of the others.
func (c choice) patterns() (each, once [2]string) {
	const all = "^TestDevice"
	switch {
	case c.each != "":
		return [2]string{c.each, "^$"}, [2]string{all, c.each}
	case c.once != "":
		return [2]string{all, c.once}, [2]string{c.once, "^$"}
	}
	return [2]string{all, "^$"}, [2]string{}
}

// pages are tests that depend on the kernel's page size: mapped rings,
// registered memory, memory excluded from forks.
const pages = "Open|Conformance|RingsUnmapped|MRAtAddress|Memlock|Limits|Rereg.*|MWType.*|QueueFull|Resize" +
	"|SRQResize|CloseWithChildren|CloseWakes|NothingAllocated|RCGather|RCInline|RCBatch|Parity(MR|HugePage|Fork|PD)"

// unsafe are tests on kernels where Open refuses rxe: that it does, and those
// that do not need an open device.
const unsafe = "Open|AgainstSysfs|AgainstTool|ClientNode|Resources|System|Ports|Links|Kernel"

var places = []place{
	{config: vm.Config{Kernel: "6.1", Arch: "amd64", RXE: true, Root: true, CPUs: 2}, packages: library, skip: scale,
		repeats: "6.12/amd64 and 7.2/amd64", divided: true, once: "Parity.*"}, // of rdma-core
	{config: vm.Config{Kernel: "6.12", Arch: "amd64", RXE: true, Root: true, CPUs: 2},
		packages: slices.Concat(library, programs, mistakes, conns), objects: true},
	{config: vm.Config{Kernel: "7.2", Arch: "amd64", RXE: true, Root: true, CPUs: 2},
		packages: slices.Concat(library, mistakes), skip: scale, repeats: "6.12/amd64", divided: true},
	{config: vm.Config{Kernel: "6.12", Arch: "arm64", RXE: true}, packages: library, skip: behaviour,
		repeats: "6.12/amd64 and 6.12-16k/arm64"},
	{config: vm.Config{Kernel: "6.12-16k", Arch: "arm64", RXE: true},
		packages: []string{"provider/rxe", "uverbs/devicetest"}, run: pages},
	{config: vm.Config{Kernel: "5.10", Arch: "amd64", RXE: true, Root: true, CPUs: 2},
		packages: []string{"internal/nldev", "internal/rdmacm", "provider/rxe"}, run: unsafe},
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
			if p.repeats != "" && !p.divided {
				vm.SkipRepeat(t, p.repeats)
			}
			g := vm.Start(t, p.config)
			for _, pkg := range p.packages {
				t.Run(pkg, func(t *testing.T) { p.test(t, g, pkg, b.test(pkg, "device", p.config.Arch)) })
			}
			if p.objects {
				t.Run("s3rdma/objects", func(t *testing.T) { testObjects(t, g) })
			}
			if p.config.Arch != "amd64" {
				testHermetic(t, g, b, p.config.Arch)
			}
		})
	}
}

// TestSIW runs the device tests of uverbs and cm on siw. Those of programs, of services and of the provider are in
// testbed/interop.
func TestSIW(t *testing.T) {
	vm.SkipRepeat(t, "6.12/amd64 on rxe; the bed builds the kernel's module")
	g := vm.Start(t, vm.Config{Kernel: "6.12-siw", SIW: true, Root: true, CPUs: 2})
	for _, pkg := range []string{"uverbs/devicetest", "cm/devicetest"} {
		t.Run(pkg, func(t *testing.T) {
			vm.RunTests(t, g, vm.BuildTest(t, "github.com/goverbs/goverbs/"+pkg, "device", ""), vm.TestOptions{
				Timeout: patience, Args: []string{"-test.run=^TestDevice", "-test.skip=" + many},
				Env: []string{"GOVERBS_DEVICE=siw0", "GOVERBS_KERNEL=6.12"}})
		})
	}
}

// test runs a package's tests.
func (p *place) test(t *testing.T, g *vm.Guest, pkg, binary string) {
	run := func(t *testing.T, run, skip string) {
		t.Helper()
		if p.skip != "" {
			skip += "|^TestDevice(" + p.skip + ")$"
		}
		vm.RunTests(t, g, binary, vm.TestOptions{Timeout: patience,
			Args: []string{"-test.run=" + run, "-test.skip=" + skip},
			Env:  []string{"GOVERBS_DEVICE=rxe0", "GOVERBS_KERNEL=" + p.config.Kernel}})
	}
	c := choices[pkg]
	switch {
	case p.run != "":
		run(t, "^TestDevice("+p.run+")$", "^$")
	case !p.divided && pkg == "cm/devicetest":
		run(t, "^TestDevice", many)
		t.Run("many", func(t *testing.T) {
			vm.SkipRepeat(t, "the test in memory")
			run(t, many, "^$")
		})
	case !p.divided || c == choice{}:
		run(t, "^TestDevice", "^$")
	default:
		each, once := c.patterns()
		if p.once != "" {
			also := "|^TestDevice(" + p.once + ")$"
			each[1], once[0] = each[1]+also, once[0]+also
		}
		t.Run("each", func(t *testing.T) { run(t, each[0], each[1]) })
		t.Run("once", func(t *testing.T) {
			vm.SkipRepeat(t, p.repeats)
			run(t, once[0], once[1])
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
				vm.TestOptions{Timeout: patience, Args: []string{"-test.run=" + h.run}})
		})
	}
}
