package verbstest

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/fakemlx5"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
	"github.com/goverbs/goverbs/internal/uapi"
	_ "github.com/goverbs/goverbs/provider/mlx5" // the driver of the machines' devices
	"github.com/goverbs/goverbs/uverbs"
)

// A Machine is a computer in memory with one device, mlx5_0, on a network. [Machine.AddDevice] adds others.
type Machine struct {
	net     *Network
	name    string
	labels  labelSet
	host    *host
	cm      *rdmacmtest.Machine
	adapter *fakemlx5.Adapter

	first   *Machine   // with the first device of the computer, perhaps this one
	devices []*Machine // further ones of the computer, if this is the first; belongs to mu
	indices int        // that further devices have, also those that are being added; belongs to mu
	index   int        // of the device

	device uint32 // unique in the process
	mac    [6]byte
	lid    uint16 // 0 on Ethernet
	addr   netip.Addr
	addr6  netip.Addr
	local  netip.Addr // link-local
	gids   []uapi.IbUverbsGidEntry

	mu       sync.Mutex
	files    []*file // all that were opened
	plan     plan
	mtu      uverbs.MTU
	portDown bool
	removed  bool
	killed   atomic.Bool
	foreign  atomic.Bool // programs of other processes use the device
	limits   Limits
	numa     int            // NUMA node, or -1
	sum      map[string]int // what the library has left, by kind
	kept     map[kept]int   // what package rdma has given to the program, how often
}

// A file is an open node of the device.
type file struct {
	*fakemlx5.Kernel
	m    *Machine
	core *ioctltest.Kernel
}

// New returns a machine on a new network, and puts the calling goroutine on it. When the
// test ends, it fails the test if RDMA objects of the program remain.
func New(t testing.TB, options ...Option) *Machine {
	t.Helper()
	m := NewNetwork(t, options...).Machine()
	t.Cleanup(m.enter())
	return m
}

// newMachine returns a machine, or a further device of the machine first if it is not nil.
func newMachine(n *Network, number int, device uint32, first *Machine) *Machine {
	m := &Machine{net: n, name: nameOf(number), device: device, numa: -1, mac: macOf(device), kept: map[kept]int{},
		mtu:   uverbs.MTU4096,
		addr:  netip.AddrFrom4([4]byte{192, 0, 2, byte(number)}),
		addr6: netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 15: byte(number)})}
	m.first, m.host = m, &host{m}
	if first != nil {
		m.first, m.host, m.labels = first, first.host, first.labels
		first.mu.Lock()
		first.indices++
		m.index = first.indices
		first.mu.Unlock()
		m.name = fmt.Sprintf("%s on %s", m.Device(), first.name)
	}
	m.local = linkLocal(m.mac)
	m.gids = gidTable(m.netIndex(), m.local, m.addr, m.addr6)
	m.cm = &rdmacmtest.Machine{Addrs: []netip.Addr{m.addr, m.addr6, m.local}, DevIndex: device, NodeGUID: m.guid(),
		SGIDs: map[netip.Addr]uint8{m.local: 1, m.addr: 3, m.addr6: 5}, NetIndex: m.netIndex()}
	if first != nil {
		m.cm.Host = first.cm
	}
	if n.infiniBand {
		m.useInfiniBand(number)
	}
	m.adapter = fakemlx5.NewAdapter(fakemlx5.Config{Loop: &n.loop, InfiniBand: n.infiniBand, LID: m.lid, MAC: m.mac,
		CQEVersion: 1, Resolve: n.resolve, Program: true, Peer: n.peer,
		Violation: func(v engine.Violation) { n.violation(m, v) },
		Problem:   m.problem})
	if err := m.adapter.SetGIDs(m.gids); err != nil {
		n.t.Errorf("verbstest: %s: %v", m.name, err)
	}
	return m
}

// problem reports a command that the device has refused.
func (m *Machine) problem(err error) {
	if m.foreign.Load() {
		return // a program of another process may issue any command
	}
	m.net.report("%s: %v", m.name, err)
}

// UseProcess makes the file that of a program in another process. The rules are those of programs in Go, so those that
// programs on the machine break are no errors any more.
func (f *file) UseProcess(p ioctltest.Process) error {
	f.m.foreign.Store(true)
	return f.Kernel.UseProcess(p)
}

// linkLocal returns the link-local address of an interface.
func linkLocal(mac [6]byte) netip.Addr {
	local := [16]byte{0xfe, 0x80}
	copy(local[8:], eui64(mac))
	return netip.AddrFrom16(local)
}

// gidTable returns the GID table of a RoCE port: both versions of each address.
func gidTable(index uint32, ips ...netip.Addr) (table []uapi.IbUverbsGidEntry) {
	for _, ip := range ips {
		for _, kind := range []uint32{uapi.IB_UVERBS_GID_TYPE_ROCE_V1, uapi.IB_UVERBS_GID_TYPE_ROCE_V2} {
			table = append(table,
				uapi.IbUverbsGidEntry{Gid: ip.As16(), GidIndex: uint32(len(table)), PortNum: 1, GidType: kind,
					NetdevIfindex: index})
		}
	}
	return table
}

// guid returns the node GUID in memory byte order.
func (m *Machine) guid() uint64 { return binary.LittleEndian.Uint64(eui64(m.mac)) }

// eui64 returns the modified EUI-64 of a MAC address (RFC 4291).
func eui64(mac [6]byte) []byte {
	return []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
}

// Name returns the name of the machine on its network.
func (m *Machine) Name() string { return m.name }

// AddDevice adds a device to the machine, mlx5_1 and so on, with addresses and a port. The result stands for it:
// methods that have to do with a device, such as Addr, SetPort and RemoveDevice, and faults of packets and handshakes
// are those of this device. Run and Kill are the same as those of the machine. A connection begins at the first device,
// unless the program chooses another one by the local address.
func (m *Machine) AddDevice() *Machine {
	m.net.t.Helper()
	first := m.first
	d := m.net.add(first)
	first.mu.Lock()
	first.devices = append(first.devices, d)
	first.mu.Unlock()
	return d
}

// Device returns the name of the machine's device.
func (m *Machine) Device() string { return fmt.Sprintf("mlx5_%d", m.index) }

// Addr returns the IP address of the machine's device.
func (m *Machine) Addr() netip.Addr { return m.addr }

// SetNUMANode sets the NUMA node of the device. It is -1 otherwise: the device is near no CPU. The CPUs and their nodes
// are those of the real machine.
func (m *Machine) SetNUMANode(node int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.numa = node
}

// AddrPort returns the IP address of the machine's device with a port.
func (m *Machine) AddrPort(port uint16) netip.AddrPort { return netip.AddrPortFrom(m.addr, port) }

// Run calls f on the machine: goroutines that f starts are on it too.
func (m *Machine) Run(f func()) {
	defer m.enter()()
	f()
}

// check reports what programs have left behind on a device. named has the lines of what was reported before.
func (m *Machine) check(named []string) {
	m.net.t.Helper()
	m.net.loop.Run(m.adapter.HCA.End)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.files {
		for _, l := range f.core.Left() {
			m.left(l.Kind, l.String(), l.Created, named)
		}
		f.core.Finish(m.net.t)
	}
	m.reportSum(named)
}

// all returns the devices of the machine.
func (m *Machine) all() []*Machine {
	m.first.mu.Lock()
	defer m.first.mu.Unlock()
	return append([]*Machine{m.first}, m.first.devices...)
}

func (m *Machine) interfaceAddrs() []net.Addr {
	return []net.Addr{
		&net.IPNet{IP: m.addr.AsSlice(), Mask: net.CIDRMask(24, 32)},
		&net.IPNet{IP: m.addr6.AsSlice(), Mask: net.CIDRMask(64, 128)},
		&net.IPNet{IP: m.local.AsSlice(), Mask: net.CIDRMask(64, 128)},
	}
}
