package verbstest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
)

// A Network is an Ethernet, or an InfiniBand subnet, with machines.
type Network struct {
	t          testing.TB
	infiniBand bool
	loop       loop.Loop
	fabric     wires
	cm         *rdmacmtest.Kernel

	seed       uint64
	stepped    bool
	ended      atomic.Bool // the test
	handshakes handshakes
	// What separates machines, under the lock of cm.
	cuts map[[2]*rdmacmtest.Machine]int
	dead map[*rdmacmtest.Machine]bool
	down map[*rdmacmtest.Machine]bool // its port

	mu       sync.Mutex // locked after loop
	created  int        // number of machines, including those that are being created
	machines []*Machine
	lids     map[uint16]*Machine // on InfiniBand
	gids     map[[16]byte]*Machine
	allowed  map[Rule]bool   // rules that programs may break
	reported map[string]bool // texts of broken rules
	leftovers
}

// wires is a *fabric.Switch or a *fabric.Subnet.
type wires interface {
	AddFault(fabric.Fault) (id int, err error)
	RemoveFault(id int) error
	SetLink(port string, up bool) error
}

// NewNetwork returns a network without machines. It exists until the test ends.
func NewNetwork(t testing.TB, options ...Option) *Network {
	t.Helper()
	n := &Network{t: t, gids: map[[16]byte]*Machine{}, lids: map[uint16]*Machine{}, cuts: map[[2]*rdmacmtest.Machine]int{},
		dead: map[*rdmacmtest.Machine]bool{}, down: map[*rdmacmtest.Machine]bool{}}
	t.Cleanup(n.end) // after all others
	for _, set := range options {
		set(n)
	}
	if c := (fabric.Config{Loop: &n.loop, Seed: n.seed}); n.infiniBand {
		n.fabric = fabric.NewSubnet(c)
	} else {
		n.fabric = fabric.NewSwitch(c)
	}
	n.cm = rdmacmtest.NewKernel()
	t.Cleanup(n.checkCM) // after the machines
	n.cm.Set(func() {
		n.cm.Machine, n.cm.Current = rdmacmtest.Machine{}, n.currentCM
		n.cm.OnMessage, n.cm.Reachable, n.cm.Caller = n.onMessage, n.reachable, caller
		n.cm.Timeouts = rdmacmtest.Timeouts(defaultTimeouts)
		n.cm.RealTime, n.cm.MulticastRoute, n.cm.NoGroups6 = true, true, !n.infiniBand
		if n.infiniBand {
			n.cm.PathMTU = mtu4096
		}
	})
	return n
}

// currentCM returns the machine of the calling goroutine.
func (n *Network) currentCM() *rdmacmtest.Machine {
	if m := current(); m != nil && m.net == n {
		return m.cm
	}
	return &n.cm.Machine
}

// devices counts the devices of the process: indices, GUIDs and device numbers are unique.
var devices atomic.Uint32

// Machine adds a machine to the network. Its device is attached and its port is up.
func (n *Network) Machine() *Machine {
	n.t.Helper()
	m := n.add(nil)
	addMachine(m)
	n.t.Cleanup(func() {
		n.beginEnd()
		m.awaitGoroutines()
		removeMachine(m)
		named := m.checkKept()
		for _, d := range m.all() {
			d.check(named)
		}
	})
	return m
}

// add adds a machine, or a further device of the machine first, to the network.
func (n *Network) add(first *Machine) *Machine {
	n.t.Helper()
	m := n.newMachine(first)
	if m == nil {
		n.t.Fatalf("verbstest: a network has at most %d devices", maxMachines)
	}
	n.cm.Set(func() { n.cm.Others = append(n.cm.Others, m.cm) })
	n.attach(m)
	return m
}

// maxMachines is how many devices a network has addresses for.
const maxMachines = 250

// newMachine returns a machine with the next address, or nil if there is none left. It creates the
// machine without n.mu: that needs the loop, whose steps lock n.mu.
func (n *Network) newMachine(first *Machine) *Machine {
	n.mu.Lock()
	number := n.created + 1
	if number > maxMachines {
		n.mu.Unlock()
		return nil
	}
	n.created = number
	n.mu.Unlock()
	m := newMachine(n, number, devices.Add(1), first)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machines = append(n.machines, m)
	for _, g := range m.gids {
		n.gids[g.Gid] = m
	}
	n.lids[m.lid] = m
	return m
}

// end stops the network: packets and timers that are on their way have no effect, and nothing is
// reported any more.
func (n *Network) end() {
	n.checkGoroutines()
	n.summarize()
	n.ended.Store(true)
	n.loop.Stop()
}

// report fails the test, unless it has ended.
func (n *Network) report(format string, args ...any) {
	if !n.ended.Load() {
		n.t.Errorf("verbstest: "+format, args...)
	}
}

// attach connects the machine's adapter with the switch.
func (n *Network) attach(m *Machine) {
	n.loop.Run(func() {
		hca := m.adapter.HCA
		var link engine.Link
		var err error
		switch f := n.fabric.(type) {
		case *fabric.Switch:
			link, err = f.Attach(m.name, hca.ReceiveFrame, hca.SetUp)
		case *fabric.Subnet:
			var port *fabric.SubnetPort
			if port, err = f.Attach(m.name, hca.ReceivePacket, hca.SetUp); err == nil {
				link, err = port, port.SetLID(m.lid, 0)
			}
		}
		if err != nil {
			n.report("%v", err)
			return
		}
		hca.SetLink(link)
	})
}

// resolve returns the MAC address of a GID, which belongs to a machine or a multicast group.
func (n *Network) resolve(gid [16]byte) ([6]byte, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.gids[gid]; m != nil {
		return m.mac, true
	}
	switch ip := netip.AddrFrom16(gid).Unmap(); {
	case ip.Is4() && ip.IsMulticast():
		return [6]byte{0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15]}, true
	case ip.IsMulticast():
		return [6]byte{0x33, 0x33, gid[12], gid[13], gid[14], gid[15]}, true
	}
	return [6]byte{}, false
}

// peer returns the device of the machine at the other end of a path, or nil.
func (n *Network) peer(p *transport.Path) *engine.HCA {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.gids[p.DGID]
	if n.infiniBand {
		m = n.lids[p.DLID]
	}
	if m == nil {
		return nil
	}
	return m.adapter.HCA
}

// macOf returns the address of a device.
func macOf(device uint32) (mac [6]byte) {
	mac[0] = 0x02 // locally administered
	binary.BigEndian.PutUint32(mac[2:], device)
	return mac
}

func nameOf(number int) string { return fmt.Sprintf("machine %d", number) }
