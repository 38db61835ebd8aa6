//go:build vm

package doctor

import (
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A fault is planted by a command line. If the fix is a command that the guest can run, the test runs it and checks
// that the fault is mended; then undo restores what the fix does not.
type fault struct {
	name, id, plant, undo string
	limit                 func(*vm.Cmd) // how doctor runs; the fix is then for the shell that runs it
	noFix                 bool          // undo mends it
	args                  []string
	within                []string // a command that runs doctor, such as one that enters a namespace
}

func user(c *vm.Cmd) { c.UID = 1000 }

var faults = []fault{
	{name: "node rights", id: "node-rights", plant: "chmod 600 /dev/infiniband/uverbs0", limit: user},
	{name: "rights of the connection manager's node", id: "node-rights", plant: "chmod 666 /dev/infiniband/uverbs0 && " +
		"chmod 600 /dev/infiniband/rdma_cm", limit: user, undo: "chmod 666 /dev/infiniband/rdma_cm"},
	{name: "node missing", id: "node-missing", plant: "rm /dev/infiniband/uverbs0"},
	{name: "connection manager's node missing", id: "node-missing", plant: "rm /dev/infiniband/rdma_cm"},
	{name: "memlock", id: "memlock", plant: "chmod 666 /dev/infiniband/*", noFix: true, limit: func(c *vm.Cmd) {
		c.UID, c.Rlimits = 1000, []vm.Rlimit{{Resource: unix.RLIMIT_MEMLOCK, Soft: 64 << 10, Hard: 64 << 10}}
	}},
	{name: "descriptors", id: "nofile", plant: "true", noFix: true, limit: func(c *vm.Cmd) {
		c.Rlimits = []vm.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 100, Hard: 100}}
	}},
	{name: "interface down", id: "port-down", plant: "ip link set d0 down"},
	{name: "small MTU", id: "mtu-low", plant: "ip link set d0 mtu 800", undo: "ip link set d0 mtu 1500"},
	{name: "MTU of Ethernet", id: "mtu", plant: "ip link set d0 mtu 1500", undo: "ip link set d0 mtu 1500"},
	{name: "no address", id: "no-gid", plant: "ip addr flush dev d0", noFix: true,
		undo: "ip link set d0 down; ip link set d0 up; ip addr add 10.9.0.1/24 dev d0"},
	{name: "address elsewhere", id: "address-elsewhere", noFix: true, args: []string{"-a", "10.77.0.1"},
		plant: "ip link add d7 type dummy && ip addr add 10.77.0.1/24 dev d7 && ip link set d7 up", undo: "ip link del d7"},
	{name: "no route", id: "no-route", plant: "true", args: []string{"-a", "203.0.113.9"},
		undo: "ip route del 203.0.113.9 dev d0"},
	{name: "no such device", id: "no-such-device", plant: "true", noFix: true, args: []string{"-d", "mlx5_9"}},
	{name: "no huge pages", id: "huge-pages", plant: "echo never > /sys/kernel/mm/transparent_hugepage/enabled"},
	{name: "rdma cgroup", id: "cgroup-rdma", plant: "cd /sys/fs/cgroup && " +
		"echo +rdma > cgroup.subtree_control && mkdir job && echo rxe0 hca_object=2 > job/rdma.max",
		within: []string{"sh", "-c", `echo $$ > /sys/fs/cgroup/job/cgroup.procs; exec "$0" "$@"`}},
	{name: "network namespace", id: "netns", plant: "rdma system set netns exclusive && ip netns add other", noFix: true,
		within: []string{"ip", "netns", "exec", "other"},
		undo:   "ip netns del other; until rdma system set netns shared; do :; done"},
	{name: "interface in another namespace", id: "gid-netns", plant: "ip netns add pod", noFix: true,
		within: []string{"ip", "netns", "exec", "pod"}, undo: "ip netns del pod"},
	{name: "interface of the same name and address", id: "gid-netns", noFix: true, plant: "ip netns add pod && " +
		"ip -n pod link add d0 type dummy && ip -n pod addr add 10.9.0.1/24 dev d0 && ip -n pod link set d0 up",
		within: []string{"ip", "netns", "exec", "pod"}, undo: "ip netns del pod"},
	{name: "two devices with the same address", id: "gid-duplicate", plant: "ip link add d7 type dummy && " +
		"ip addr add 10.9.0.1/24 dev d7 && ip link set d7 up && rdma link add rxe7 type rxe netdev d7",
		undo: "rdma link del rxe7; ip link del d7; ip addr replace 10.9.0.1/24 dev d0"},
	{name: "an interface without RDMA and with the device's address", id: "gid-duplicate", undo: "ip link del d7",
		plant: "ip link add d7 type dummy && ip link set d7 up && ip addr add 10.9.0.1/24 dev d7"},
	// A message of the connection manager is sent again while the interface is down.
	{name: "outage while connecting", id: "gsi-error", plant: "rping -c -a 10.9.0.77 -C 1 & " +
		"until rdma res show qp | grep -q 'type RC'; do :; done; ip link set d0 down; " +
		"until rdma res show qp | grep -q 'type GSI state ERR'; do :; done; kill $!; wait $!; ip link set d0 up"},
	{name: "no device", id: "no-device", plant: "rdma link del rxe0", undo: "true"},
	{name: "a name without an address", id: "peer-name", plant: "true", noFix: true, args: []string{"peer.invalid"}},
	{name: "no peer", id: "peer-tcp", plant: "true", noFix: true, args: []string{"10.9.0.1"}},
}

func TestGuest(t *testing.T) {
	p := newPatient(t, vm.Config{Kernel: "6.12", Root: true, RXE: true})
	t.Run("healthy", p.testHealthy)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { p.test(t, f) })
	}
	t.Run("IPv6 is disabled", p.testIPv6)
	t.Run("peer", p.testPeer)
}

// testHealthy checks that doctor finds nothing on a machine without a fault.
func (p *patient) testHealthy(t *testing.T) {
	p.run(t, "rdma resource show cm_id") // loads the module of the connection manager
	for _, f := range p.examine(t, nil).Findings {
		if f.Severity == "error" || f.Severity == "warning" {
			t.Errorf("%+v", f)
		}
	}
}

func (p *patient) test(t *testing.T, f fault) {
	p.run(t, f.plant)
	found := p.finds(t, f.id, func(c *vm.Cmd) {
		if f.limit != nil {
			f.limit(c)
		}
		if f.within != nil {
			c.Path, c.Args = f.within[0], append(f.within, append([]string{c.Path}, c.Args[1:]...)...)
		}
	}, f.args...)
	if !f.noFix {
		p.run(t, command(found))
	}
	if f.undo != "" && f.noFix {
		p.run(t, f.undo)
	}
	if len(f.args) == 0 || !f.noFix {
		p.mended(t, f.id, f.args...)
	}
	if f.undo != "" && !f.noFix {
		p.run(t, f.undo)
	}
}

// testIPv6 disables IPv6, which removes the addresses. The fix enables it.
func (p *patient) testIPv6(t *testing.T) {
	const address = "ip -6 addr add fd00:9::1/64 dev d0 nodad"
	p.run(t, address+" && echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
	f := p.finds(t, "no-route", nil, "-a", "fd00:9::2")
	if !strings.Contains(f.Seen, "disable_ipv6") {
		t.Errorf("%+v does not name the cause", f)
	}
	p.run(t, command(f)+" && "+address)
	p.mended(t, "no-route", "-a", "fd00:9::2")
	p.run(t, "ip -6 addr del fd00:9::1/64 dev d0")
}

// testPeer runs both ends in the guest.
func (p *patient) testPeer(t *testing.T) {
	listening := program.Start(t, p.Guest, p.doctor, "-listen")
	if !listening.Stdout.Await("doctor listens at port 7473") {
		t.Fatal(listening)
	}
	r := p.examine(t, nil, "10.9.0.1")
	p.checkPeer(t, r)
	if err := listening.Cmd.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := listening.Wait(); err != nil {
		t.Errorf("%v: %v", listening, err)
	}
}

// checkPeer checks that all operations work.
func (p *patient) checkPeer(t *testing.T, r report) {
	t.Helper()
	works := make(map[string]bool)
	for _, f := range r.Findings {
		works[f.ID] = f.Severity == "ok"
	}
	for _, id := range []string{"peer", "ud", "send", "read", "write", "atomic"} {
		if !works[id] {
			t.Errorf("%s does not work: %+v", id, r)
		}
	}
	if r.Figures == nil || r.Figures.Calls == 0 || r.Figures.Writes == 0 {
		t.Errorf("no figures: %+v", r)
	}
}

// TestModules runs doctor in a guest without any other program, while modules are unloaded. The guest has no modprobe,
// so that its kernel cannot load them again.
func TestModules(t *testing.T) {
	p := newPatient(t, vm.Config{Kernel: "6.12"})
	unload, err := p.Install(vm.BuildProgram(t, "github.com/goverbs/goverbs/testbed/doctor/unload", "", "amd64"))
	if err != nil {
		t.Fatal(err)
	}
	p.finds(t, "no-device", nil)
	program.Run(t, p.Guest, unload, "rdma_ucm")
	p.finds(t, "no-rdma-cm", nil)
	program.Run(t, p.Guest, unload, "rdma_rxe", "rdma_cm", "ib_uverbs", "iw_cm", "ib_cm", "ib_core")
	p.finds(t, "no-rdma", nil)
}

// TestAdapter runs doctor with a ConnectX, without the module mlx5_ib and with it.
func TestAdapter(t *testing.T) {
	boot := func(module string) *patient {
		w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.Ethernet})
		return newPatient(t, vm.Config{Kernel: "6.12", VFIOUser: w.Sockets(), Modules: []string{module, "rdma_ucm"}})
	}
	boot("mlx5_core").finds(t, "no-mlx5-ib", nil)
	f := boot("mlx5_ib").finds(t, "port-down", nil) // of a network interface that is down
	if !strings.HasPrefix(f.Seen, "mlx5_0 port 1 is down") {
		t.Error(f)
	}
}

// firewall drops RoCE's packets.
const firewall = "nft 'add table inet filter; " +
	"add chain inet filter input { type filter hook input priority filter; }; " +
	"add rule inet filter input udp dport 4791 drop'"

// TestPair compares the MTUs of two guests, and connects them, also through a firewall.
func TestPair(t *testing.T) {
	left, right, err := vm.Link()
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*patient
	var booting sync.WaitGroup
	for i, nic := range []vm.NIC{left, right} {
		booting.Go(func() {
			ends[i] = newPatient(t, vm.Config{Kernel: "6.12", Root: true, CPUs: 1, MemoryMB: 512, NICs: []vm.NIC{nic},
				Modules: []string{"nf_tables"}})
		})
	}
	booting.Wait()
	for i, p := range ends {
		if p == nil {
			t.FailNow()
		}
		p.run(t, strings.ReplaceAll("ip addr add 10.8.0.N/24 dev eth0 && ip link set eth0 up && "+
			"rdma link add rxe0 type rxe netdev eth0", "N", string(rune('1'+i))))
	}
	listening := program.Start(t, ends[0].Guest, ends[0].doctor, "-listen")
	if !listening.Stdout.Await("doctor listens at port 7473") {
		t.Fatal(listening)
	}
	ends[1].checkPeer(t, ends[1].examine(t, nil, "10.8.0.1"))
	ends[0].run(t, "ip link set eth0 mtu 800")
	f := ends[1].finds(t, "mtu-mismatch", nil, "10.8.0.1")
	for _, p := range ends {
		p.run(t, command(f))
	}
	ends[1].checkPeer(t, ends[1].examine(t, nil, "10.8.0.1"))
	out, err := ends[1].CommandContext(t.Context(), ends[1].doctor, "10.8.0.1").Output()
	if err != nil || !strings.Contains(string(out), "\nRDMA works.") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	testNarrow(t, ends)
	ends[0].run(t, firewall)
	ends[0].run(t, command(ends[1].finds(t, "peer-rdma", nil, "10.8.0.1")))
	ends[1].checkPeer(t, ends[1].examine(t, nil, "10.8.0.1"))
	ends[0].run(t, "rdma link del rxe0")
	ends[1].finds(t, "peer", nil, "10.8.0.1")
	listening.Kill()
}

// narrow drops packets that do not fit an Ethernet with the usual MTU, as a switch between the ends does.
const narrow = "nft 'add table inet narrow; " +
	"add chain inet narrow input { type filter hook input priority filter; }; " +
	"add rule inet narrow input meta length > 1500 drop'"

// testNarrow connects two guests whose MTU is 4200 through a path that drops large packets. The fix sends some and, if
// none arrives, sets a smaller MTU. It changes nothing while they arrive.
func testNarrow(t *testing.T, ends [2]*patient) {
	ends[0].run(t, narrow)
	fix := command(ends[1].finds(t, "send", nil, "10.8.0.1"))
	ping, smaller, found := strings.Cut(fix, " || ")
	if !found {
		t.Fatalf("the fix %q does not set the MTU", fix)
	}
	ends[1].run(t, "! "+ping)
	ends[1].run(t, fix)
	ends[0].run(t, smaller)
	ends[1].checkPeer(t, ends[1].examine(t, nil, "10.8.0.1"))
	ends[0].run(t, "nft delete table inet narrow && ip link set eth0 mtu 4200")
	ends[1].run(t, "ip link set eth0 mtu 4200 && "+ping+" && { "+fix+"; } && test $(cat /sys/class/net/eth0/mtu) = 4200")
}
