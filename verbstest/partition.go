package verbstest

import (
	"bytes"

	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
)

// Partition separates two machines: packets and messages between their connection managers are lost,
// in both directions. The result ends the partition. What has been delayed by a fault still arrives.
func (n *Network) Partition(a, b *Machine) (heal func()) {
	n.t.Helper()
	n.mustOwn(a)
	n.mustOwn(b)
	if a == b {
		n.t.Fatalf("verbstest: Partition: both machines are %s: name two", a.name)
	}
	cut := [2]*rdmacmtest.Machine{a.cm, b.cm}
	n.cm.Set(func() { n.cuts[cut]++ })
	healPackets := n.lose(fabric.Fault{Port: a.name, Direction: fabric.To, Match: sentBy(b)},
		fabric.Fault{Port: b.name, Direction: fabric.To, Match: sentBy(a)})
	healed := false
	return func() {
		n.cm.Set(func() {
			if !healed {
				healed = true
				n.cuts[cut]--
			}
		})
		healPackets()
	}
}

// sentBy matches the packets of a machine.
func sentBy(m *Machine) fabric.Match {
	if m.net.infiniBand {
		return fabric.Match{Packet: func(p *roce.Packet) bool { return p.Route.SLID == m.lid }}
	}
	const source = 6 // where the frame has the sender's address
	return fabric.Match{Frame: func(frame []byte) bool { return bytes.Equal(frame[source:][:6], m.mac[:]) }}
}

// lose drops packets. The result ends that.
func (n *Network) lose(faults ...fabric.Fault) (heal func()) {
	var ids []int
	n.loop.Run(func() {
		for _, f := range faults {
			f.Action = fabric.Drop
			id, err := n.fabric.AddFault(f)
			if err != nil {
				n.report("%v", err)
				return
			}
			ids = append(ids, id)
		}
	})
	return func() {
		n.loop.Run(func() {
			for _, id := range ids {
				_ = n.fabric.RemoveFault(id) // heal may have been called before
			}
		})
	}
}

// reachable reports whether messages of one connection manager reach another. The connection
// managers are locked.
func (n *Network) reachable(from, to *rdmacmtest.Machine) bool {
	if from != to && (n.down[from] || n.down[to]) {
		return false
	}
	return !n.dead[from] && !n.dead[to] && n.cuts[[2]*rdmacmtest.Machine{from, to}] == 0 &&
		n.cuts[[2]*rdmacmtest.Machine{to, from}] == 0
}

// Kill powers the machine off: from now on none of its packets and messages leave or reach it. Its
// peers are not notified: they find out after timeouts ([Network.SetTimeouts]). A peer that sends nothing finds
// out by the keepalive of package rdma or rsocket. Programs on the machine that still run, because they
// cannot be killed, find that the device has been removed, so that they end and can close their objects.
// What they leave behind is not reported.
func (m *Machine) Kill() {
	n := m.net
	for _, d := range m.all() {
		n.cm.Set(func() {
			n.dead[d.cm] = true
			d.cm.Forgive = true
		})
		d.killed.Store(true)
		d.RemoveDevice() // which also loses its packets
	}
}
