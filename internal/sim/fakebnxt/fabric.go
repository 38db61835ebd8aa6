package fakebnxt

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
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// Numbers of chips.
const (
	Stratus  = 0x16d7 // generation P4
	Stingray = 0xd802 // generation P4: BCM58802
	Thor     = 0x1750 // generation P5
	Thor2    = 0x1760 // generation P7
)

// A Config describes the devices of a fabric.
type Config struct {
	Chip     uint32
	Variable bool // send queues of requests with different sizes, if the program supports them
	MSN      bool // the table of PSNs is by message
	Pow2     bool // a driver that rounds the sizes of all queues up, as before Linux 6.4
	Pacing   bool // doorbells wait while the device's queue of doorbells is full: see SetDoorbells
	NoCutOff bool // a ring that a CQ leaves has no entry that says so
	Toggle   bool // doorbells that arm a CQ or an SRQ have a counter of its events
	NoBell   bool // the reply to ALLOC_PD has no doorbell page
	Strict   bool // mistakes of programs of other processes fail the test, too
	// Record, if not nil, gets what the programs of a device write to its queues and registers. Then
	// the device executes nothing, and the methods of [Device] write completions.
	Record func(device, what string)
}

// P5 and P7 are the configurations of most tests.
var (
	P5 = Config{Chip: Thor, Pacing: true}
	P7 = Config{Chip: Thor2, Variable: true, MSN: true, Toggle: true}
)

// Limits of a device.
const (
	maxWR     = 4096
	maxSGE    = 6  // of a request with a fixed size
	maxVarSGE = 13 // of another one
	maxSRQSGE = 6
	maxInline = 96
	maxCQE    = 1 << 15
	maxQPs    = 256
)

// A Fabric is a computer with devices named bnxt_re0, bnxt_re1 and so on.
type Fabric struct {
	t       testing.TB
	cfg     Config
	loop    loop.Loop
	devices []*Device
	cm      *rdmacmtest.Kernel
}

// A Device is an adapter.
type Device struct {
	fabric *Fabric
	index  uint32
	gids   []uapi.IbUverbsGidEntry

	files  []*Kernel
	qps    map[uint32]*qp
	cqs    map[uint32]*cq
	srqs   map[uint32]*srq
	ahs    map[uint32]*ah
	mrs    map[uint32]*mr
	last   map[string]uint32 // number of an object, by kind
	newest *qp
}

// New returns a fabric of n devices on which the process runs until the test ends.
func New(t testing.TB, n int, cfg Config) *Fabric {
	t.Helper()
	f := &Fabric{t: t, cfg: cfg}
	for i := range n {
		f.devices = append(f.devices, newDevice(f, i))
	}
	f.cm = rdmacmtest.New(t)
	first := f.devices[0]
	f.cm.Set(func() {
		f.cm.PathMTU = 5 // IBV_MTU_4096
		f.cm.Machine = rdmacmtest.Machine{Addrs: []netip.Addr{Addr}, DevIndex: first.index + 1,
			NodeGUID: bits.ReverseBytes64(first.guid()), SGIDIndex: uint8(len(first.gids) - 1)}
	})
	machine.Replace(func() machine.Machine { return f })
	t.Cleanup(func() {
		machine.Replace(nil)
		for _, d := range f.devices {
			for _, k := range d.files {
				k.Kernel.Close(t)
			}
		}
		f.loop.Stop()
	})
	return f
}

func newDevice(f *Fabric, i int) *Device {
	d := &Device{fabric: f, index: uint32(i), qps: map[uint32]*qp{}, cqs: map[uint32]*cq{}, srqs: map[uint32]*srq{},
		ahs: map[uint32]*ah{}, mrs: map[uint32]*mr{}, last: map[string]uint32{}}
	local := [16]byte{0: 0xfe, 1: 0x80, 8: 0x02, 11: 0xff, 12: 0xfe, 15: byte(i + 1)}
	v4 := [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: byte(i + 1)}
	for _, gid := range [][16]byte{local, v4} {
		for _, kind := range []uint32{uapi.IB_UVERBS_GID_TYPE_ROCE_V1, uapi.IB_UVERBS_GID_TYPE_ROCE_V2} {
			d.gids = append(d.gids, uapi.IbUverbsGidEntry{Gid: gid, GidIndex: uint32(len(d.gids)), PortNum: 1, GidType: kind})
		}
	}
	return d
}

// Addr is the address of the first device, which programs can connect to with the connection manager.
var Addr = netip.MustParseAddr("192.0.2.1")

// OpenCM implements rdmacm.Machine.
func (f *Fabric) OpenCM() (*rdmacm.File, error) { return f.cm.Open() }

// OpenForeignCM opens the connection manager for a program in another process.
func (f *Fabric) OpenForeignCM() (*rdmacmtest.Foreign, error) { return f.cm.OpenForeign() }

// Device returns device number i.
func (f *Fabric) Device(i int) *Device { return f.devices[i] }

// Name returns the name of a device.
func (d *Device) Name() string { return fmt.Sprintf("bnxt_re%d", d.index) }

func (d *Device) node() string { return fmt.Sprintf("uverbs%d", d.index) }

func (d *Device) guid() uint64 { return 0x0200_00ff_fe00_0001 + uint64(d.index) }

// number returns the number of a new object. The first two QPs belong to the kernel.
func (d *Device) number(kind string) uint32 {
	d.last[kind]++
	return d.last[kind] + 1
}

// problem reports a mistake of the provider.
func (f *Fabric) problem(format string, args ...any) { f.t.Errorf("fakebnxt: "+format, args...) }

func (d *Device) record(format string, args ...any) {
	if f := d.fabric.cfg.Record; f != nil {
		f(d.Name(), fmt.Sprintf(format, args...))
	}
}

// Send implements transport.Port: it delivers a packet to the device with the destination's GID.
func (d *Device) Send(path *transport.Path, p *roce.Packet) {
	p.Route = roce.Route{Version: roce.V2, GRH: true, DGID: path.DGID, HopLimit: path.HopLimit,
		TrafficClass: path.TrafficClass, FlowLabel: path.FlowLabel}
	if int(path.SGIDIndex) < len(d.gids) {
		p.Route.SGID = d.gids[path.SGIDIndex].Gid
	}
	for _, to := range d.fabric.devices {
		for _, g := range to.gids {
			if g.Gid == path.DGID {
				d.fabric.loop.Post(func() {
					if q := to.qps[p.DestQPN]; q != nil {
						q.endpoint.Receive(p)
					}
				})
				return
			}
		}
	}
}

// Devices implements machine.Machine.
func (f *Fabric) Devices() (all []nldev.Device, err error) {
	const adapter = 1 // RDMA_NODE_IB_CA
	for _, d := range f.devices {
		all = append(all, nldev.Device{Index: d.index + 1, Name: d.Name(), NodeGUID: d.guid(), NodeType: adapter, Ports: 1,
			FWVersion: "231.0.0.0", Char: &nldev.CharDev{Name: d.node(), ABI: uapi.BNXT_RE_ABI_VERSION, Major: 231,
				Minor: 192 + d.index, DriverID: uapi.RDMA_DRIVER_BNXT_RE}})
	}
	return all, nil
}

// OpenDevice implements machine.Machine.
func (f *Fabric) OpenDevice(name string) (*ioctl.Device, error) {
	for _, d := range f.devices {
		if d.Name() == name {
			return d.open()
		}
	}
	return nil, unix.ENOENT
}

func (d *Device) open() (*ioctl.Device, error) {
	file, fd, err := devfile.Open(d.node())
	if err != nil {
		return nil, err
	}
	k := d.newKernel(file)
	d.fabric.loop.Run(func() { d.files = append(d.files, k) })
	return ioctl.NewFake(fd, d.node(), uapi.RDMA_DRIVER_BNXT_RE, k), nil
}

// describe sets what the kernel replies to queries.
func (d *Device) describe(core *ioctltest.Kernel) {
	a := &core.Device
	a.NodeGuid, a.SysImageGuid = bits.ReverseBytes64(d.guid()), bits.ReverseBytes64(d.guid())
	a.VendorId, a.VendorPartId, a.FwVer = 0x14e4, d.fabric.cfg.Chip, 231
	a.MaxMrSize, a.PageSizeCap = 1<<39, 0xfffff000
	a.MaxQp, a.MaxCq, a.MaxPd, a.MaxMr, a.MaxAh = maxQPs, 512, 256, 1024, 4096
	a.MaxQpWr, a.MaxCqe, a.MaxSge, a.MaxSgeRd = maxWR, maxCQE-1, maxSGE, maxSGE
	if d.fabric.cfg.Variable {
		a.MaxSge, a.MaxSgeRd = maxVarSGE, maxVarSGE
	}
	a.MaxQpRdAtom, a.MaxQpInitRdAtom, a.MaxSrq, a.MaxSrqWr, a.MaxSrqSge = 16, 16, 64, maxWR, maxSRQSGE
	a.AtomicCap, a.LocalCaAckDelay = 2, 16
	core.XRC, core.GIDs = false, d.gids
	p := &core.Ports[0]
	p.MaxMtu, p.ActiveMtu, p.GidTblLen = 5, 5, uint32(len(d.gids))
}

// PKeys implements machine.Machine.
func (f *Fabric) PKeys(string, uint32) ([]uint16, error) { return []uint16{0xffff}, nil }

// InterfaceNames implements machine.Machine: the devices have no network interfaces.
func (f *Fabric) InterfaceNames([]int) (map[int]string, error) { return nil, nil }

// InterfaceIndex implements machine.Machine.
func (f *Fabric) InterfaceIndex(string) (int, error) { return 0, unix.ENODEV }

// InterfaceAddrs implements machine.Machine.
func (f *Fabric) InterfaceAddrs() ([]net.Addr, error) { return nil, nil }
