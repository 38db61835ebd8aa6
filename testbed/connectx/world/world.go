// Package world combines software ConnectX devices, the network between them
// and their sockets: what a program or a test needs to give guests RDMA
// devices.
//
//	w := world.StartTest(t, world.Config{Devices: 2})
//	g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, VFIOUser: w.Sockets(), Modules: []string{"mlx5_ib"}})
//
// The command cmd/connectx runs a world as a program.
package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/control"
	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

// firstGUID is the GUID of the first device. The others count up, as do the
// MACs.
const firstGUID = 0x0002_c903_00a0_b0c0

// Config is the configuration of a world.
type Config struct {
	Dir     string   // directory of the sockets
	Sockets []string // their paths, if not in Dir
	Seed    uint64   // of the network's faults

	// LinkLayer is the link layer of all devices. With Ethernet they are
	// connected by a switch, with InfiniBand by a subnet.
	LinkLayer connectx.LinkLayer

	// Devices is the number of devices. Adapt, if not nil, changes the
	// configuration of the i-th one.
	Devices int
	Adapt   func(i int, c *connectx.Config)

	// Report receives errors that no guest gets, including panics of steps: the
	// world continues without the step, and the firmware of its device fails
	// (SetHealth). Violation receives violations of strict mode. One goroutine
	// calls both, outside of the loop. Repeated errors of a device are reported
	// a hundred times. Close reports the number of the suppressed ones.
	Report    func(error)
	Violation func(device string, v engine.Violation)
	Tracer    *trace.Tracer
}

// OnDemand returns a Config.Adapt that enables memory on demand for all
// devices, if the guest's kernel is 6.12 or newer. A guest with Linux 6.1
// crashed in process_one_work, in a kworker, during rdma-core's test_odp
// (implicit regions and prefetch); it is not known whether the driver or the
// device is the cause. 6.12 and 7.2 have not crashed.
func OnDemand(kernel string) func(int, *connectx.Config) {
	on := !crashes(kernel)
	return func(_ int, c *connectx.Config) { c.ODP = on }
}

func crashes(kernel string) bool { return kernel == "5.10" || kernel == "6.1" }

// ByCommands is a Config.Adapt of devices whose memory keys the driver creates by commands only, not by work requests
// from a cache: tests see each registration in a trace, and make it fail.
func ByCommands(_ int, c *connectx.Config) {
	c.Capabilities = append(c.Capabilities, connectx.Capability{Type: connectx.CapGeneral,
		Field: prm.HCACapUMRModifyEntitySizeDisabled, Value: 1})
}

// AlwaysOnDemand is a Config.Adapt that enables memory on demand.
func AlwaysOnDemand(_ int, c *connectx.Config) { c.ODP = true }

// NeedsOnDemand reports whether a module of rdma-core's tests needs [AlwaysOnDemand] instead of [OnDemand] with a
// kernel: test_mlx5_dc does not expect that the registration of such memory fails.
func NeedsOnDemand(kernel, module string) bool { return crashes(kernel) && module == "test_mlx5_dc" }

// A World is a set of devices on a network. Unless documented otherwise,
// methods must be called in steps of Loop.
type World struct {
	Loop    *loop.Loop
	Switch  *fabric.Switch // nil with InfiniBand
	Subnet  *fabric.Subnet // nil with Ethernet
	Devices []*Device
	Control *control.Server // nil with Ethernet

	cancel   context.CancelFunc
	serving  sync.WaitGroup
	reporter *reporter
	reports  func(error) // Config.Report
}

// A Device is a device of a world.
type Device struct {
	*connectx.Device
	Name   string
	Socket string // path of its vfio-user socket

	// Slot removes the device from its machine by surprise, and inserts it
	// again.
	Slot *vfiouser.Removable
	// Server serves the device to machines.
	Server *vfiouser.Server
}

// Start starts a world. When it returns, machines can connect to the sockets.
func Start(c Config) (w *World, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	w = &World{cancel: cancel, reporter: newReporter(), reports: c.Report}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
			w = nil
		}
	}()
	if c.Report == nil || len(c.Sockets) > 0 && len(c.Sockets) != c.Devices {
		return w, fmt.Errorf("world: %d sockets for %d devices, or no Report: see Config", len(c.Sockets), c.Devices)
	}
	w.Loop = &loop.Loop{OnPanic: w.handlePanic}
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

// add creates the i-th device and connects it to the network.
func (w *World) add(c *Config, i int) error {
	name := fmt.Sprintf("connectx%d", i)
	config := connectx.Config{
		Loop: w.Loop, LinkLayer: c.LinkLayer, GUID: firstGUID + uint64(i), LID: uint16(i + 1),
		Report: func(err error) { w.report(name, err) }, Tracer: c.Tracer.Device(name),
	}
	if c.Violation != nil {
		config.Violation = func(v engine.Violation) {
			v.WQE = bytes.Clone(v.WQE) // it may be the guest's memory, which is valid only in this step
			w.reporter.report(reportKey{name, string(v.Rule)}, func() { c.Violation(name, v) })
		}
	}
	if c.Adapt != nil {
		c.Adapt(i, &config)
	}
	device, err := connectx.New(config)
	if err != nil {
		return err
	}
	d := &Device{Device: device, Name: name, Socket: filepath.Join(c.Dir, name+".sock"),
		Slot: &vfiouser.Removable{Device: device}}
	if len(c.Sockets) > 0 {
		d.Socket = c.Sockets[i]
	}
	run := func(f func()) { w.Loop.Run(func() { w.Loop.As(d, f) }) }
	d.Server = &vfiouser.Server{Device: d.Slot, Run: run, Report: func(err error) {
		w.report(name, err)
		if errors.Is(err, vfiouser.ErrPanic) {
			w.Loop.Run(d.failFirmware)
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

// Counters are the counters of a device, as returned by the control socket.
type Counters struct {
	Pages   int            `json:"pages"` // pages given to it by its machine
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

// listen serves a device to machines.
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

// Sockets returns the paths of the devices' sockets.
func (w *World) Sockets() []string {
	var all []string
	for _, d := range w.Devices {
		all = append(all, d.Socket)
	}
	return all
}

// handlePanic handles the panic of a step. The state of its device is undefined,
// so its firmware fails.
func (w *World) handlePanic(owner, v any, stack []byte) {
	d, ok := owner.(*Device)
	if !ok {
		w.report("world", fmt.Errorf("a step panicked: %v\n%s", v, stack))
		return
	}
	w.report(d.Name, fmt.Errorf("a step panicked: %v\n%s", v, stack))
	d.failFirmware()
}

// failFirmware makes the device's firmware fail; the driver resets it.
func (d *Device) failFirmware() {
	const internalError = 1
	d.SetHealth(internalError)
}

// report reports an error of a device, or of the world.
func (w *World) report(name string, err error) {
	w.reporter.report(reportKey{name, kindOf(err)}, func() { w.reports(fmt.Errorf("%s: %w", name, err)) })
}

// Describe returns a violation as one line.
func Describe(v engine.Violation) string {
	return fmt.Sprintf("violation %s: QP %#x, CQ %#x, SRQ %#x, index %d, at %#x of the ring: %s: % x",
		v.Rule, v.QPN, v.CQN, v.SRQN, v.Index, v.Offset, v.Text, v.WQE)
}

// Close removes the devices from their machines, and stops the world. It must
// not be called in a step of the loop.
func (w *World) Close() error {
	w.cancel()
	w.serving.Wait()
	var err error
	if w.Switch != nil {
		err = w.Switch.Close()
	}
	w.reporter.close(w.reports)
	return err
}
