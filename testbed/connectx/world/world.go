// Package world puts software ConnectX devices, the network between them and
// their sockets together: what a program or a test needs to give guests RDMA
// devices.
//
//	w := world.StartTest(t, world.Config{Devices: 2})
//	g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, VFIOUser: w.Sockets(), Modules: []string{"mlx5_ib"}})
//
// Command cmd/connectx is a world of its own.
package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/control"
	"github.com/goverbs/goverbs/testbed/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx/fabric"
	"github.com/goverbs/goverbs/testbed/connectx/loop"
	"github.com/goverbs/goverbs/testbed/connectx/roce"
	"github.com/goverbs/goverbs/testbed/connectx/trace"
	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

// firstGUID is that of the first device; the others count up, and their MACs too.
const firstGUID = 0x0002_c903_00a0_b0c0

// Config is what a world is made of.
type Config struct {
	Dir     string   // where the sockets are made
	Sockets []string // their paths, if they are not to be made in Dir
	Seed    uint64   // of the network's faults

	// LinkLayer is that of all devices: with Ethernet they are on a switch, with
	// InfiniBand on a subnet.
	LinkLayer connectx.LinkLayer

	// Devices is how many devices there are. Adapt, if not nil, changes what the
	// i-th is made of.
	Devices int
	Adapt   func(i int, c *connectx.Config)

	// Report is told what goes wrong that no guest is told of, a step that
	// panicked among it: the world goes on without that step, and the firmware of
	// the device whose step it was fails (SetHealth). Violation is told of
	// what breaks a rule of strict mode. One goroutine calls both, outside of the
	// loop; of what a device repeats, they are told a hundred times, and Report at
	// the end how often it was not told.
	Report    func(error)
	Violation func(device string, v engine.Violation)
	Tracer    *trace.Tracer
}

// OnDemand returns a Config.Adapt that gives all devices memory on demand, if the
// guest's kernel is 6.12 or newer. A guest of Linux 6.1 died in process_one_work, in a
// kworker, during rdma-core's test_odp (implicit regions and prefetch); whether the
// driver or the device is to blame is not known. 6.12 and 7.2 have not done that.
func OnDemand(kernel string) func(int, *connectx.Config) {
	on := kernel != "5.10" && kernel != "6.1"
	return func(_ int, c *connectx.Config) { c.ODP = on }
}

// A World is a set of devices on a network. What is not said to be for anybody
// is for steps of Loop.
type World struct {
	Loop    *loop.Loop
	Switch  *fabric.Switch // nil with InfiniBand
	Subnet  *fabric.Subnet // nil with Ethernet
	Devices []*Device
	Control *control.Server // of the network and the devices

	cancel  context.CancelFunc
	serving sync.WaitGroup
	teller  *teller
	reports func(error) // Config.Report
}

// A Device is one of a world.
type Device struct {
	*connectx.Device
	Name   string
	Socket string // for vfio-user, good for anybody

	// Slot pulls the device out of its machine by surprise, and plugs it in again.
	Slot *vfiouser.Removable
	// Server connects it to machines.
	Server *vfiouser.Server
}

// Start makes a world. A machine can connect to the sockets when it returns.
func Start(c Config) (w *World, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	w = &World{cancel: cancel, teller: newTeller(), reports: c.Report}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
			w = nil
		}
	}()
	if c.Report == nil || len(c.Sockets) > 0 && len(c.Sockets) != c.Devices {
		return w, fmt.Errorf("world: %d sockets for %d devices, or nobody to report to: see Config", len(c.Sockets), c.Devices)
	}
	w.Loop = &loop.Loop{OnPanic: w.panicked}
	w.Loop.Run(func() {
		n := fabric.Config{Loop: w.Loop, Seed: c.Seed}
		if c.LinkLayer == connectx.Ethernet {
			w.Switch = fabric.NewSwitch(n)
			w.Control = control.NewServer(w.Loop, w.Switch)
		} else {
			w.Subnet = fabric.NewSubnet(n)
			w.Control = control.NewServer(w.Loop, w.Subnet)
		}
		for i := 0; i < c.Devices && err == nil; i++ {
			err = w.add(&c, i)
		}
	})
	for _, d := range w.Devices {
		if err != nil {
			break
		}
		err = w.listen(ctx, d)
	}
	return w, err
}

// add makes the i-th device and connects it to the network.
func (w *World) add(c *Config, i int) error {
	name := fmt.Sprintf("connectx%d", i)
	config := connectx.Config{
		Loop: w.Loop, LinkLayer: c.LinkLayer, GUID: firstGUID + uint64(i), LID: uint16(i + 1),
		Report: func(err error) { w.report(name, err) }, Tracer: c.Tracer.Device(name),
	}
	if c.Violation != nil {
		config.Violation = func(v engine.Violation) {
			v.WQE = bytes.Clone(v.WQE) // it may be the guest's memory, which is good for this step only
			w.teller.tell(matter{name, string(v.Rule)}, func() { c.Violation(name, v) })
		}
	}
	if c.Adapt != nil {
		c.Adapt(i, &config)
	}
	device, err := connectx.New(config)
	if err != nil {
		return err
	}
	d := &Device{Device: device, Name: name, Socket: filepath.Join(c.Dir, name+".sock"), Slot: &vfiouser.Removable{Device: device}}
	if len(c.Sockets) > 0 {
		d.Socket = c.Sockets[i]
	}
	run := func(f func()) { w.Loop.Run(func() { w.Loop.As(d, f) }) }
	d.Server = &vfiouser.Server{Device: d.Slot, Run: run, Report: func(err error) {
		w.report(name, err)
		if errors.Is(err, vfiouser.ErrPanic) {
			w.Loop.Run(d.die)
		}
	}}
	w.Devices = append(w.Devices, d)
	if err := w.attach(d, config.LID); err != nil {
		return err
	}
	return w.Control.Add(control.Device{
		Name: name, Firmware: device, Engine: device.Engine(), Slot: d.Slot,
		Counters: func() any {
			e := device.Engine()
			return Counters{Pages: device.PagesHeld(), Objects: e.Objects(), Counters: e.Counters()}
		},
	})
}

// Counters are what the control socket tells of a device.
type Counters struct {
	Pages   int            `json:"pages"` // of its machine's that it holds
	Objects engine.Objects `json:"objects,omitzero"`
	engine.Counters
}

// attach connects a device to the network.
func (w *World) attach(d *Device, lid uint16) error {
	if w.Switch != nil {
		receive := func(b []byte) { w.Loop.As(d, func() { d.Engine().ReceiveFrame(b) }) }
		port, err := w.Switch.Attach(d.Name, receive, d.SetPort)
		if err != nil {
			return err
		}
		d.Engine().SetLink(port)
		return nil
	}
	receive := func(p *roce.Packet) { w.Loop.As(d, func() { d.Engine().ReceivePacket(p) }) }
	port, err := w.Subnet.Attach(d.Name, receive, d.SetPort)
	if err != nil {
		return err
	}
	d.Engine().SetLink(port)
	return port.SetLID(lid, 0)
}

// listen lets machines connect to a device.
func (w *World) listen(ctx context.Context, d *Device) error {
	l, err := vfiouser.Listen(d.Socket)
	if err != nil {
		return err
	}
	w.serving.Go(func() {
		if err := d.Server.Serve(ctx, l); err != nil {
			w.report(d.Name, err)
		}
	})
	return nil
}

// Sockets are the devices' sockets.
func (w *World) Sockets() []string {
	var all []string
	for _, d := range w.Devices {
		all = append(all, d.Socket)
	}
	return all
}

// panicked is told of a step that panicked. Nobody knows what state its device is
// in, so its driver is to find it dead.
func (w *World) panicked(owner, v any, stack []byte) {
	d, ok := owner.(*Device)
	if !ok {
		w.report("world", fmt.Errorf("a step panicked: %v\n%s", v, stack))
		return
	}
	w.report(d.Name, fmt.Errorf("a step panicked: %v\n%s", v, stack))
	d.die()
}

// die makes the device's firmware fail; the driver resets it.
func (d *Device) die() {
	const internalError = 1
	d.SetHealth(internalError)
}

// report tells of an error of a device's, or the world's.
func (w *World) report(name string, err error) {
	w.teller.tell(matter{name, kindOf(err)}, func() { w.reports(fmt.Errorf("%s: %w", name, err)) })
}

// Describe is a violation in one line.
func Describe(v engine.Violation) string {
	return fmt.Sprintf("violation %s: QP %#x, CQ %#x, SRQ %#x, index %d, at %#x of the ring: %s: % x",
		v.Rule, v.QPN, v.CQN, v.SRQN, v.Index, v.Offset, v.Text, v.WQE)
}

// Close takes the devices out of their machines, and ends the world. It is not
// for steps of the loop.
func (w *World) Close() error {
	w.cancel()
	w.serving.Wait()
	var err error
	if w.Switch != nil {
		err = w.Switch.Close()
	}
	w.teller.close(w.reports)
	return err
}
