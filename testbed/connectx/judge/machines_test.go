//go:build vm

package main

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// machines are guests with devices of one world: the first guest has two
// devices, the second, if it exists, the third one and, with RoCE, the kernel's
// rxe on a network card at the same switch.
type machines struct {
	place
	world    *world.World
	guests   []*vm.Guest
	nextPort int               // TCP port: each pair of programs has another one
	ours     map[string]string // paths of our programs by the names of their C counterparts
}

// An end is the location of one program of a pair.
type end struct {
	guest  *vm.Guest
	device string
	host   string // the address for the TCP connection of the programs
	ip     string // in RoCE mode, the address of its GID
	gid    int    // in RoCE mode, the GID's index
}

// startMachines boots guests. A violation, a kernel warning or an object that
// is left in a guest or a device fails the test.
func startMachines(t *testing.T, p place, guests int) *machines {
	t.Helper()
	m := &machines{place: p, nextPort: 18515, ours: map[string]string{}}
	m.world = world.StartTest(t, world.Config{LinkLayer: p.layer(), Devices: guests + 1, Violation: m.violation(t)})
	sockets := m.world.Sockets()
	configs := []vm.Config{p.guest(m.world), p.guest(m.world)}[:guests]
	configs[0].VFIOUser = sockets[:2]
	if guests > 1 {
		configs[1].VFIOUser = sockets[2:]
		m.cable(t, configs)
	}
	m.guests = make([]*vm.Guest, guests)
	var booting sync.WaitGroup
	for i, c := range configs {
		booting.Go(func() { m.guests[i] = vm.Start(t, c) })
	}
	booting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	m.addresses(t)
	for i, d := range []string{"mlx5_0", "mlx5_1", "mlx5_0"}[:guests+1] {
		// The driver creates a queue pair for memory keys on first use.
		e := m.end(t, i/2, d, "fe80::")
		m.play(t, game{Program: "ibv_rc_pingpong", Args: "-n 1", Core: true}, e, e)
	}
	return m
}

// card is the switch port of rxe's network card.
const card = "card"

// cable connects two guests by TCP without the devices. With RoCE the second
// also gets a card at the switch, for rxe.
func (m *machines) cable(t *testing.T, configs []vm.Config) {
	t.Helper()
	a, b, err := vm.Link()
	if err != nil {
		t.Fatal(err)
	}
	configs[0].NICs, configs[1].NICs = []vm.NIC{a}, []vm.NIC{b}
	if m.link != roce {
		return
	}
	nic, conn, err := vm.Plug()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.world.Switch.Stream(card, conn); err != nil {
		t.Fatal(err)
	}
	configs[1].NICs = append(configs[1].NICs, nic)
}

// roceAddresses are the addresses of each guest. The first also has an address
// in rxe's network.
var roceAddresses = [2]string{net + "net mlx5_0 10.9.0.1 10.9.1.1; net mlx5_1 10.9.2.1",
	net + "net mlx5_0 10.9.0.2; ip link set eth1 up; ip addr add 10.9.1.2/24 dev eth1;" +
		" rdma link add rxe0 type rxe netdev eth1"}

// net defines a shell function that assigns addresses to a device's network
// device.
const net = `
net() {
	d=$(ls /sys/class/infiniband/$1/device/net)
	shift
	ip link set $d up
	for a; do ip addr add $a/24 dev $d; done
}
`

// addresses assigns addresses to the guests' devices. A host must respond to
// ARP requests for an address only at the address's own network device, because
// all are on one switch.
func (m *machines) addresses(t *testing.T) {
	t.Helper()
	const own = "ip link set lo up; echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore"
	for i, g := range m.guests {
		script := own
		if len(m.guests) > 1 {
			script += fmt.Sprintf("; ip addr add 10.8.1.%d/24 dev eth0; ip link set eth0 up", i+1)
		}
		if m.link == roce {
			// The kernel does not send from an address until duplicate address
			// detection ends.
			script += roceAddresses[i] + `
for i in $(seq 100); do test -z "$(ip -6 addr show tentative)" && exit 0; sleep 0.1; done; exit 1`
		}
		m.output(t, g, script)
	}
}

// end returns the end of a guest's device. ip is its address with RoCE, or
// "fe80::" for the link-local one, which works between devices of the same
// guest: their IPv4 addresses would be local.
func (m *machines) end(t *testing.T, guest int, device, ip string) end {
	t.Helper()
	e := end{guest: m.guests[guest], device: device, host: fmt.Sprintf("10.8.1.%d", guest+1), ip: ip}
	if m.link != roce {
		return e
	}
	gid := "fe80:"
	if a, err := netip.ParseAddr(ip); err == nil && a.Is4() {
		b := a.As4()
		gid = fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])
	}
	out := m.output(t, e.guest, fmt.Sprintf(`
cd /sys/class/infiniband/%s/ports/1
for i in $(seq 200); do
	for f in gids/*; do
		n=${f#gids/}
		read g < $f
		case $g in %s*) read v < gid_attrs/types/$n; case $v in "RoCE v2") echo $n; exit;; esac;; esac
	done
	sleep 0.1
done
exit 1`, device, gid))
	if _, err := fmt.Sscan(out, &e.gid); err != nil {
		t.Fatalf("%q is not the index of a GID: %v", out, err)
	}
	return e
}

// violation returns a function that fails the test for a violation. It logs the
// first ones only.
func (m *machines) violation(t *testing.T) func(string, engine.Violation) {
	n := 0
	return func(device string, v engine.Violation) {
		if n++; n <= 10 {
			t.Errorf("%s: %s", device, world.Describe(v))
		}
	}
}

// output runs a shell script that must succeed.
func (m *machines) output(t *testing.T, g *vm.Guest, script string) string {
	t.Helper()
	return program.Run(t, g, "sh", "-e", "-c", script)
}

// port returns an unused port.
func (m *machines) port() int {
	m.nextPort++
	return m.nextPort - 1
}

// inUse returns the objects in use in the guests and the devices. Drivers keep
// memory keys for reuse.
func (m *machines) inUse(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, g := range m.guests {
		all = append(all, strings.Split(m.output(t, g, "rdma resource show"), "\n")...)
	}
	m.world.Loop.Run(func() {
		for _, d := range m.world.Devices {
			n := d.Engine().Objects()
			n.MKeys, n.Translations = 0, 0
			all = append(all, fmt.Sprintf("%s: %+v", d.Name, n))
		}
	})
	return all
}

// leavesNothing runs a test, and checks that the same objects are in use after
// it. The kernel releases objects of the last process with a delay.
func (m *machines) leavesNothing(t *testing.T, test func(*testing.T)) {
	before := m.inUse(t)
	test(t)
	d := cmp.Diff(before, m.inUse(t))
	for i := 0; i < 100 && d != ""; i++ {
		d = cmp.Diff(before, m.inUse(t))
	}
	if d != "" {
		t.Errorf("leaked objects (-before +after):\n%s", d)
	}
}
