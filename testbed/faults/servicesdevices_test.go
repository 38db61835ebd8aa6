//go:build vm

package faults

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// testRXEServices runs the services on rxe.
func (p *pair) testRXEServices(t *testing.T) {
	testServices(t, &services{devices: rxeDevices{p}, ends: p.ends, limit: p.scale.limit, at: p.at})
}

type rxeDevices struct{ *pair }

func (d rxeDevices) lose(t *testing.T, percent float64) {
	d.disturb(t, fault{netem: fmt.Sprintf("loss %g%%", percent)})
	t.Cleanup(func() {
		drops := 0
		for _, e := range d.ends {
			q, err := e.qdisc()
			if err != nil {
				t.Error(err)
			}
			drops += q.Drops
		}
		if drops == 0 {
			t.Error("no packet was lost")
		}
	})
}

func (d rxeDevices) remove(t *testing.T) { d.ends[0].output(t, "rdma", "link", "del", "rxe0") }

func (d rxeDevices) killing() {}

func (d rxeDevices) restore(t *testing.T) {
	e := d.ends[0]
	e.output(t, "rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")
	e.gid = e.findGID(t)
}

// TestConnectXServices runs the services in two guests with a software ConnectX each.
func TestConnectXServices(t *testing.T) {
	d := &connectXDevices{}
	d.w = world.StartTest(t, world.Config{Devices: 2, LinkLayer: connectx.Ethernet,
		Violation: func(device string, v engine.Violation) {
			switch {
			case v.Rule == "blueflame": // processes are killed, and a device is removed, within bursts
			case v.Rule == "unknown-queue" && d.removed.Load():
				// A kernel that removes a device destroys the queues before it takes the registers from the programs.
			case v.Rule == "key" && (d.removed.Load() || d.killed.Load()):
				// The kernel destroys the objects of a process from the newest to the oldest: an MR before the QP
				// whose requests name it.
			default:
				t.Errorf("%s: %s", device, world.Describe(v))
			}
		}})
	var booting sync.WaitGroup
	for i, socket := range d.w.Sockets() {
		booting.Go(func() {
			d.ends[i] = &end{address: fmt.Sprint("10.8.0.", i+1), guest: vm.Start(t, vm.Config{Kernel: "6.12", Root: true,
				CPUs: 1, MemoryMB: 512, VFIOUser: []string{socket}, Modules: []string{"mlx5_ib", "rdma_ucm"}})}
		})
	}
	booting.Wait()
	if slices.Contains(d.ends[:], nil) {
		t.FailNow()
	}
	for _, e := range d.ends {
		d.setUp(t, e)
	}
	port := 7500
	at := func() string {
		port++
		return fmt.Sprint(d.ends[0].address, ":", port)
	}
	testServices(t, &services{devices: d, ends: d.ends, limit: quick.limit, at: at, repeats: "TestFaults/services"})
}

type connectXDevices struct {
	w       *world.World
	ends    [2]*end
	removed atomic.Bool // a device was
	killed  atomic.Bool // a process was
}

// setUp gives the guest's network device its address.
func (d *connectXDevices) setUp(t *testing.T, e *end) {
	t.Helper()
	program.Until(t, e.guest, "test -e /sys/class/infiniband/mlx5_0/device/net")
	program.Run(t, e.guest, "sh", "-e", "-c", "d=$(ls /sys/class/infiniband/mlx5_0/device/net); ip link set lo up;"+
		" ip addr add "+e.address+"/24 dev $d; ip link set $d up")
	program.Until(t, e.guest, "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
}

func (d *connectXDevices) lose(t *testing.T, percent float64) {
	var id int
	var err error
	d.w.Loop.Run(func() {
		id, err = d.w.Switch.AddFault(fabric.Fault{Action: fabric.Drop, Probability: percent / 100})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.w.Loop.Run(func() {
			for _, f := range d.w.Switch.Faults() {
				if f.ID == id && f.Hit == 0 {
					t.Error("no packet was lost")
				}
			}
			err = d.w.Switch.RemoveFault(id)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func (d *connectXDevices) busy(t *testing.T) {
	t.Helper()
	const many = 200 // more than a connection takes
	sent := func() uint64 { return d.w.Switch.Ports()[0].Counters.Sent }
	var from uint64
	d.w.Loop.Run(func() { from = sent() })
	if !d.w.AwaitTest(t, 30*time.Second, func() bool { return sent() > from+many }) {
		t.Fatal("the programs do not communicate")
	}
}

func (d *connectXDevices) remove(t *testing.T) {
	d.removed.Store(true)
	d.ends[0].output(t, "sh", "-c", "echo 1 > /sys/class/infiniband/mlx5_0/device/remove")
}

func (d *connectXDevices) killing() { d.killed.Store(true) }

func (d *connectXDevices) restore(t *testing.T) {
	d.ends[0].output(t, "sh", "-c", "echo 1 > /sys/bus/pci/rescan")
	d.setUp(t, d.ends[0])
}
