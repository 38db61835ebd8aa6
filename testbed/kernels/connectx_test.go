//go:build vm

package kernels

import (
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/hardware/suite"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A site is a guest with a software ConnectX, and the tests that run there.
type site struct {
	kernel   string
	link     connectx.LinkLayer
	packages []string
	skip     string
	only     string // regular expression for the tests of the packages that are not a provider; "" means all
	repeats  string // the place whose tests those beyond basic repeat (vm.SkipRepeat); may be ""
	cpus     int    // if not as vm.Start chooses
	objects  bool   // s3rdma/objects runs, too
}

var sites = []site{
	{kernel: "6.12", link: connectx.Ethernet, packages: []string{"internal/rdmacm", "provider/mlx5", "provider/mlx5/devx",
		"uverbs/devicetest", "cm/devicetest", "cm", "rdma", "rsocket", "testbed/netconn"}, objects: true, cpus: 2},
	{kernel: "6.12", link: connectx.InfiniBand, packages: []string{"provider/mlx5", "provider/mlx5/devx",
		"uverbs/devicetest", "cm/devicetest"}, skip: suite.Ethernet + "|" + linkless},
	{kernel: "6.1", link: connectx.Ethernet, packages: onEachKernel, skip: ours, repeats: "6.12/roce"},
	{kernel: "7.2", link: connectx.Ethernet, packages: onEachKernel, skip: ours, repeats: "6.12/roce"},
	{kernel: "5.10", link: connectx.Ethernet, packages: onEachKernel, skip: ours, only: basic},
}

var onEachKernel = []string{"provider/mlx5", "provider/mlx5/devx", "uverbs/devicetest", "cm/devicetest", "cm"}

// breaking are tests that break rules of strict mode, on purpose or by closing
// queues in use, with these rules.
var breaking = []struct {
	pkg, rules, tests string
}{
	{"provider/mlx5", "key", "Conformance"},
	{"uverbs/devicetest", "key cq-overrun", "Events|CQOverrunEvent"},
	{"uverbs/devicetest", "key blueflame", "RemoteErrors|DCErrors|UCRevive|ParityAtomic|ParityMR|CloseRace|StressClose"},
	{"cm/devicetest", "key", "CloseMRUnder.*"},
	{"rdma", "key", "Tokens"},
}

// linkless are tests that have passed on Ethernet with the same kernel and do
// not depend on the link layer: the driver's settings, memory, queues without
// their transport, failures.
const linkless = "^TestDeviceConformance$/^MLX5_|^TestDevice(Allocations|Atomic(Errors|sContended)|Close.*" +
	"|Drain.*|Killed|Limits|MRAtAddress|MW.*|Many.*|Memlock|NothingAllocated|NullMR|ODP.*|Open.*|OtherNamespace" +
	"|OwnChannel|QueueFull|Rereg.*|Resize.*|SRQ.*|Solicited|Stress.*|ThreadDomains|WaitCancelled" +
	"|Parity(CQ.*|Fork|HugePage|MR|ODP|PD|ParentDomain|RelaxedOrdering|SRQ|SharedPD|Timestamp))$"

// ours are tests of the library itself, with the provider's settings, of its
// goroutines and interrupted calls, and of rdma_cm's kernel code, which does
// not depend on the device. They run with mlx5_0 on 6.12, some of them only
// if all tests run, and, except those of settings, with rxe0 (TestKernels).
const ours = "^TestDeviceConformance$/^MLX5_|^TestDevice(CloseRace.*|Stress.*|ClientKilled|ServerKilled" +
	"|DialCutAnywhere|Migrate.*|ResizeUnderTraffic)$"

// basic has at least one test of each kind of object and of each way to
// connect. make test runs no more tests of uverbs and cm on 6.1 and 7.2. On
// 5.10 all others pass as well, except:
//   - ReregPD, the same test of ParityMR, and sometimes MRAtAddress. If the driver has no
//     key in its cache, it computes the size of a new one from the region's address
//     and the number of entries from the address given to the region (until 5.11).
//     The firmware refuses a key with more entries than the command has.
//   - RawPacketRights: RLIMIT_MEMLOCK is 64 KiB before 5.16.
//   - tests that create an rxe device beside the ConnectX, which Open refuses there.
const basic = "^TestDevice(RCSend|RCSendImmediate|RCWrite|RCRead|RCInline|RCBatch|UCSend|UDSend|UDReply|SRQ|SRQLimit" +
	"|XRC|Atomics|MWType1|MWType2|ReregAccess|NullMR|ThreadDomains|Limits|QueueFull|Resize|Solicited|WaitCancelled" +
	"|CloseWakes|OpenErrors|OpenElsewhere|DM|DC|DCQuery" +
	"|GIDs|QueryGID|QueryQP|PKeyIndex|Mcast|WQ|ParityDevice|ParityPD|ParityCQ|ParityQP" +
	"|Echo|Reject|PrivateData|UD|GetAddrInfo|Group|CreateEP|ReadWrite|CloseRaceConn|FiveFunctions)$"

// TestConnectX runs the device tests on the software ConnectX.
func TestConnectX(t *testing.T) {
	b := newBuilder(t)
	for _, s := range sites {
		name := map[connectx.LinkLayer]string{connectx.Ethernet: "roce", connectx.InfiniBand: "ib"}[s.link]
		t.Run(path.Join(s.kernel, name), func(t *testing.T) {
			v := &violations{}
			g := s.boot(t, v)
			for _, pkg := range s.packages {
				t.Run(pkg, func(t *testing.T) { s.run(t, g, pkg, b.test(pkg, "device", "amd64"), v) })
			}
			if s.objects {
				v.allow([]string{"blueflame"}) // processes are killed within bursts
				t.Run("s3rdma/objects", func(t *testing.T) { testObjects(t, g) })
			}
		})
	}
}

// boot boots the guest. Its device's network device is named d0, as in guests
// with rxe.
func (s site) boot(t *testing.T, v *violations) *vm.Guest {
	t.Helper()
	t.Cleanup(func() { v.check(t) }) // after the world has stopped
	w := world.StartTest(t, world.Config{LinkLayer: s.link, Devices: 1, Adapt: world.OnDemand(s.kernel), Violation: v.add})
	g := vm.Start(t, vm.Config{Kernel: s.kernel, Root: true, CPUs: s.cpus, VFIOUser: w.Sockets(),
		Modules: []string{"mlx5_ib", "ib_umad", "rdma_ucm", "rdma_rxe"}})
	script := "ip link set lo up\n"
	if s.link == connectx.Ethernet {
		script += "ip link set $(ls /sys/class/infiniband/mlx5_0/device/net) name d0; ip link set d0 up;" +
			" ip addr add 10.9.0.1/24 dev d0\n"
	}
	// The kernel does not send from an address until duplicate address
	// detection ends.
	script += `for i in $(seq 100); do
	grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state && test -z "$(ip -6 addr show tentative)" && exit 0
	sleep 0.1
done
exit 1`
	program.Run(t, g, "sh", "-e", "-c", script)
	return g
}

// run runs a package's tests.
func (s site) run(t *testing.T, g *vm.Guest, pkg, binary string, v *violations) {
	run := func(t *testing.T, rules string, args ...string) {
		t.Helper()
		v.allow(strings.Fields(rules))
		vm.RunTests(t, g, binary, vm.TestOptions{Timeout: patience, Args: args,
			Env: []string{"GOVERBS_DEVICE=mlx5_0", "GOVERBS_KERNEL=" + s.kernel}})
		v.check(t)
	}
	ofProvider := strings.HasPrefix(pkg, "provider/mlx5")
	skip := suite.Scale
	if s.skip != "" {
		skip += "|" + s.skip
	}
	switch {
	case s.link == connectx.InfiniBand && pkg == "cm/devicetest":
		run(t, "", "-test.run="+suite.ByGID)
	case s.only != "" && !ofProvider:
		run(t, "", "-test.run="+s.only, "-test.skip="+skip)
	case s.repeats != "" && !ofProvider:
		t.Run("basic", func(t *testing.T) { run(t, "", "-test.run="+basic, "-test.skip="+skip) })
		t.Run("others", func(t *testing.T) {
			vm.SkipRepeat(t, s.repeats)
			runAll(t, pkg, "^TestDevice", skip+"|"+basic, run)
		})
	default:
		runChoice(t, pkg, skip, run)
	}
}

// runChoice runs all of a package's tests except skip, those that run elsewhere only if all tests run.
func runChoice(t *testing.T, pkg, skip string, run func(t *testing.T, rules string, args ...string)) {
	t.Helper()
	c, ok := elsewhere[pkg]
	if !ok {
		runAll(t, pkg, "^TestDevice", skip, run)
		return
	}
	each, once := c.patterns()
	t.Run("each", func(t *testing.T) { runAll(t, pkg, each[0], skip+"|"+each[1], run) })
	t.Run("once", func(t *testing.T) {
		vm.SkipRepeat(t, "6.12/amd64, and the tests in memory")
		rules := ""
		for _, b := range breaking {
			if b.pkg == pkg {
				rules += " " + b.rules
			}
		}
		run(t, rules, "-test.run="+once[0], "-test.skip="+skip+"|"+once[1])
	})
}

// elsewhere are the choices of packages with tests that run with rxe0, and in memory with the same provider and the
// same model of the device. Tests of on-demand paging and of allocations do not run in memory.
var elsewhere = map[string]choice{
	"uverbs/devicetest": {once: "^TestDevice(BusyAfterWait|LoopsArePreempted|Many" +
		"|Parity(Atomic|CQ|CQEvents|CQEx|MR|PD|QPEx|RelaxedOrdering|SRQ))$"},
	"cm/devicetest": choices["cm/devicetest"],
	"rdma":          {each: choices["rdma"].each + "|^TestDevice(ForeignMemory|NothingAllocated)$"},
	"rsocket":       {each: choices["rsocket"].each + "|^TestDevice(PacketAllocs|NothingAllocated)$"},
}

// runAll runs those of a package's tests that the pattern matches, except skip: first those that break a rule, then the
// others.
func runAll(t *testing.T, pkg, pattern, skip string, run func(t *testing.T, rules string, args ...string)) {
	t.Helper()
	rest := skip
	for _, b := range breaking {
		if b.pkg == pkg {
			these := "^TestDevice(" + b.tests + ")$"
			run(t, b.rules, "-test.run="+these, "-test.skip="+skip)
			rest += "|" + these
		}
	}
	run(t, "", "-test.run="+pattern, "-test.skip="+rest)
}

// violations collects the violations, which another goroutine reports.
type violations struct {
	mu      sync.Mutex
	allowed []string
	seen    []string
}

func (v *violations) allow(rules []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.allowed = rules
}

func (v *violations) add(device string, x engine.Violation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Contains(v.allowed, string(x.Rule)) {
		v.seen = append(v.seen, device+": "+world.Describe(x))
	}
}

// check fails the test for the violations since the last call.
func (v *violations) check(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, text := range v.seen {
		t.Error(text)
	}
	v.seen = nil
}
