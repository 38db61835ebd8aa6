package fakedev

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A Model describes the devices of a fabric.
type Model struct {
	Package  string // precedes the mistakes that are reported
	Driver   uint32 // RDMA_DRIVER_*
	ABI      uint64
	Name     string // of devices, without their number
	NodeType uint8
	Firmware string
	// GIDs returns the GID table of a device.
	GIDs func(*Device) []uapi.IbUverbsGidEntry
	// Describe sets what the kernel replies to queries of the device and the port, except GUIDs and GIDs.
	Describe func(*ioctltest.Kernel)
	// Open returns the driver of a new file. It is called in the loop.
	Open func(*Kernel) Driver
	// Record, if not nil, is called with what [Device.Record] gets.
	Record func(device, what string)
	// Strict makes mistakes of programs of other processes fail the test, too.
	Strict bool
}

// A Fabric is a computer with devices that reach each other. It implements machine.Machine.
type Fabric struct {
	Loop loop.Loop

	t       testing.TB
	model   Model
	devices []*Device
}

// A Device is an adapter with one port.
type Device struct {
	Fabric *Fabric
	Index  int
	GIDs   []uapi.IbUverbsGidEntry
	Files  []*Kernel
	AHs    map[uint32]*AH
	MRs    map[uint32]*MR

	qps  map[uint32]*QP    // with endpoints
	last map[string]uint32 // number of an object, by kind
}

// New returns a fabric of n devices. [Fabric.Start] follows.
func New(t testing.TB, n int, m Model) *Fabric {
	f := &Fabric{t: t, model: m}
	for i := range n {
		d := &Device{Fabric: f, Index: i, AHs: map[uint32]*AH{}, MRs: map[uint32]*MR{}, qps: map[uint32]*QP{},
			last: map[string]uint32{}}
		d.GIDs = m.GIDs(d)
		f.devices = append(f.devices, d)
	}
	return f
}

// Start lets the process run on m, which is the fabric or embeds it, until the test ends.
func (f *Fabric) Start(m machine.Machine) {
	machine.Replace(func() machine.Machine { return m })
	f.t.Cleanup(func() {
		machine.Replace(nil)
		for _, d := range f.devices {
			for _, k := range d.Files {
				k.Kernel.Close(f.t)
			}
		}
		f.Loop.Stop()
	})
}

// Devices implements machine.Machine, as do the methods below.
func (f *Fabric) Devices() (all []nldev.Device, err error) {
	for _, d := range f.devices {
		m := &f.model
		all = append(all, nldev.Device{Index: uint32(d.Index) + 1, Name: d.Name(), NodeGUID: d.guid(), NodeType: m.NodeType,
			Ports: 1, FWVersion: m.Firmware, Char: &nldev.CharDev{Name: d.node(), ABI: m.ABI, Major: 231,
				Minor: 192 + uint32(d.Index), DriverID: m.Driver}})
	}
	return all, nil
}

// OpenDevice opens the node of a device.
func (f *Fabric) OpenDevice(name string) (*ioctl.Device, error) {
	for _, d := range f.devices {
		if d.Name() == name {
			return d.open()
		}
	}
	return nil, unix.ENOENT
}

// PKeys returns the default key.
func (f *Fabric) PKeys(string, uint32) ([]uint16, error) { return []uint16{0xffff}, nil }

// InterfaceNames returns nothing: the devices have no network interfaces.
func (f *Fabric) InterfaceNames([]int) (map[int]string, error) { return nil, nil }

// InterfaceIndex fails: see InterfaceNames.
func (f *Fabric) InterfaceIndex(string) (int, error) { return 0, unix.ENODEV }

// InterfaceAddrs returns nothing: see InterfaceNames.
func (f *Fabric) InterfaceAddrs() ([]net.Addr, error) { return nil, nil }

// Problem reports a mistake of the model, or of a program.
func (f *Fabric) Problem(format string, args ...any) {
	f.t.Errorf(f.model.Package+": "+format, args...)
}

// Name returns the name of a device.
func (d *Device) Name() string { return fmt.Sprintf("%s%d", d.Fabric.model.Name, d.Index) }

func (d *Device) node() string { return fmt.Sprintf("uverbs%d", d.Index) }

func (d *Device) guid() uint64 { return 0x0200_00ff_fe00_0001 + uint64(d.Index) }

// LinkLocal returns the GID that the GUID gives.
func (d *Device) LinkLocal() [16]byte {
	return [16]byte{0: 0xfe, 1: 0x80, 8: 0x02, 11: 0xff, 12: 0xfe, 15: byte(d.Index + 1)}
}

// RoCE returns the GID table of a port with an IPv4 address, of both versions of RoCE.
func (d *Device) RoCE() (all []uapi.IbUverbsGidEntry) {
	v4 := [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: byte(d.Index + 1)}
	for _, gid := range [][16]byte{d.LinkLocal(), v4} {
		for _, kind := range []uint32{uapi.IB_UVERBS_GID_TYPE_ROCE_V1, uapi.IB_UVERBS_GID_TYPE_ROCE_V2} {
			all = append(all, uapi.IbUverbsGidEntry{Gid: gid, GidIndex: uint32(len(all)), PortNum: 1, GidType: kind})
		}
	}
	return all
}

// Next returns the number of a new object of a kind. The first two belong to the kernel.
func (d *Device) Next(kind string) uint32 {
	d.last[kind]++
	return d.last[kind] + 1
}

// Free returns the lowest number that no object has, from first on.
func Free[T any](all map[uint32]T, first uint32) uint32 {
	for {
		if _, taken := all[first]; !taken {
			return first
		}
		first++
	}
}

// Record records what a program writes to its queues and registers, if the model says so.
func (d *Device) Record(format string, args ...any) {
	if f := d.Fabric.model.Record; f != nil {
		f(d.Name(), fmt.Sprintf(format, args...))
	}
}

// Recording reports whether the device only records: then it executes nothing.
func (d *Device) Recording() bool { return d.Fabric.model.Record != nil }

func (d *Device) open() (*ioctl.Device, error) {
	file, fd, err := devfile.Open(d.node())
	if err != nil {
		return nil, err
	}
	k := d.newKernel(file)
	d.Fabric.Loop.Run(func() {
		k.use(d.Fabric.model.Open(k))
		d.Files = append(d.Files, k)
	})
	return ioctl.NewFake(fd, d.node(), d.Fabric.model.Driver, k), nil
}

// describe sets what the kernel replies to queries.
func (d *Device) describe(core *ioctltest.Kernel) {
	a := &core.Device
	a.NodeGuid, a.SysImageGuid = bits.ReverseBytes64(d.guid()), bits.ReverseBytes64(d.guid())
	core.XRC, core.GIDs = false, d.GIDs
	core.Ports[0].GidTblLen = uint32(len(d.GIDs))
	d.Fabric.model.Describe(core)
}

// A CM is the connection manager of a fabric. It implements rdmacm.Machine.
type CM struct{ kernel *rdmacmtest.Kernel }

// Addr is the address of the first device, which programs can connect to with the connection manager.
var Addr = netip.MustParseAddr("192.0.2.1")

// NewCM returns a connection manager with [Addr], which is in the last entry of the GID table.
func (f *Fabric) NewCM() CM {
	c := CM{rdmacmtest.New(f.t)}
	first := f.devices[0]
	c.kernel.Set(func() {
		c.kernel.PathMTU = 5 // IBV_MTU_4096
		c.kernel.Machine = rdmacmtest.Machine{Addrs: []netip.Addr{Addr}, DevIndex: uint32(first.Index) + 1,
			NodeGUID: bits.ReverseBytes64(first.guid()), SGIDIndex: uint8(len(first.GIDs) - 1)}
	})
	return c
}

// OpenCM implements rdmacm.Machine.
func (c CM) OpenCM() (*rdmacm.File, error) { return c.kernel.Open() }

// OpenForeignCM opens the connection manager for a program in another process.
func (c CM) OpenForeignCM() (*rdmacmtest.Foreign, error) { return c.kernel.OpenForeign() }
