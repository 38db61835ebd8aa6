package fakeefa

import (
	"fmt"
	"math/bits"
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A Config describes the devices of a fabric.
type Config struct {
	SubCQs     int    // rings of each CQ
	MaxBatch   uint16 // descriptors that one doorbell may announce; 0: any number
	MinSQ      uint16 // descriptors that a send queue has at least; 0: any number
	LLQOffset  uint32 // of a send queue in its first page
	Caps       uint32 // EFA_QUERY_DEVICE_CAPS_*
	NoAHNumber bool   // the driver of a kernel that does not number AHs
	// Record, if not nil, gets what the programs of a device write to its queues and registers. Then
	// the device executes nothing, and [Device.Inject] writes completions.
	Record func(device, what string)
}

// AllCaps are the capabilities of a device of the model.
const AllCaps = uapi.EFA_QUERY_DEVICE_CAPS_RDMA_READ | uapi.EFA_QUERY_DEVICE_CAPS_RNR_RETRY |
	uapi.EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS | uapi.EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID |
	uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE

// Default is the configuration of most tests.
var Default = Config{SubCQs: 1, MaxBatch: 16, LLQOffset: 256, Caps: AllCaps}

// Limits of a device.
const (
	maxWR      = 4096
	maxSendSGE = 2
	maxRecvSGE = 3
	maxInline  = 32
	maxRDMA    = 1 << 30
	maxCQE     = 1 << 15
	maxQPs     = 256
	mtu        = 8928
	llqSize    = maxWR * sendSize
)

// A Fabric is a computer with devices named efa_0, efa_1 and so on.
type Fabric struct {
	t   testing.TB
	cfg Config

	mu      sync.Mutex
	devices []*Device
	buf     []byte // of the message that is being delivered
}

// A Device is an adapter.
type Device struct {
	fabric *Fabric
	index  uint32
	gid    [16]byte

	files  []*Kernel
	qps    map[uint16]*qp
	ahs    map[uint16]*ah
	mrs    map[uint32]*mr
	pds    uint16
	newest *cq
	keys   uint32
}

// New returns a fabric of n devices on which the process runs until the test ends.
func New(t testing.TB, n int, cfg Config) *Fabric {
	t.Helper()
	f := &Fabric{t: t, cfg: cfg}
	for i := range n {
		d := &Device{fabric: f, index: uint32(i), qps: map[uint16]*qp{}, ahs: map[uint16]*ah{}, mrs: map[uint32]*mr{}}
		d.gid = [16]byte{0: 0xfe, 1: 0x80, 8: 0x02, 11: 0xff, 12: 0xfe, 15: byte(i + 1)}
		f.devices = append(f.devices, d)
	}
	machine.Replace(func() machine.Machine { return f })
	t.Cleanup(func() {
		machine.Replace(nil)
		for _, d := range f.devices {
			for _, k := range d.files {
				k.Kernel.Close(t)
			}
		}
	})
	return f
}

// Device returns device number i.
func (f *Fabric) Device(i int) *Device { return f.devices[i] }

// Name returns the name of a device.
func (d *Device) Name() string { return fmt.Sprintf("efa_%d", d.index) }

func (d *Device) node() string { return fmt.Sprintf("uverbs%d", d.index) }

func (d *Device) guid() uint64 { return 0x0200_00ff_fe00_0001 + uint64(d.index) }

// problem reports a mistake of the provider.
func (f *Fabric) problem(format string, args ...any) { f.t.Errorf("fakeefa: "+format, args...) }

// unspecified is RDMA_NODE_UNSPECIFIED.
const unspecified = 7

// Devices implements machine.Machine.
func (f *Fabric) Devices() (all []nldev.Device, err error) {
	for _, d := range f.devices {
		all = append(all, nldev.Device{Index: d.index, Name: d.Name(), NodeGUID: d.guid(), NodeType: unspecified, Ports: 1,
			FWVersion: "0.0.0.0", Char: &nldev.CharDev{Name: d.node(), ABI: 1, Major: 231, Minor: 200 + d.index,
				DriverID: uapi.RDMA_DRIVER_EFA}})
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
	d.fabric.mu.Lock()
	d.files = append(d.files, k)
	d.fabric.mu.Unlock()
	return ioctl.NewFake(fd, d.node(), uapi.RDMA_DRIVER_EFA, k), nil
}

// describe sets what the kernel replies to queries.
func (d *Device) describe(core *ioctltest.Kernel) {
	a := &core.Device
	a.NodeGuid, a.SysImageGuid = bits.ReverseBytes64(d.guid()), bits.ReverseBytes64(d.guid())
	a.VendorId, a.VendorPartId, a.FwVer = 0x1d0f, 0xefa2, 0
	a.MaxMrSize, a.PageSizeCap = 1<<40, 0xfffff000
	a.MaxQp, a.MaxCq, a.MaxPd, a.MaxMr, a.MaxAh = maxQPs, 512, 256, 1024, 4096
	a.MaxQpWr, a.MaxCqe, a.MaxSge, a.MaxSgeRd = maxWR, maxCQE, maxRecvSGE, 1
	a.MaxQpRdAtom, a.MaxQpInitRdAtom, a.MaxSrq, a.MaxSrqWr, a.MaxSrqSge = 0, 0, 0, 0, 0
	core.XRC = false
	core.GIDs = []uapi.IbUverbsGidEntry{{Gid: d.gid, PortNum: 1}}
	p := &core.Ports[0]
	p.GidTblLen, p.PkeyTblLen, p.Lid, p.MaxMsgSz, p.LinkLayer, p.Flags = 1, 1, 1, mtu, 0, 0
	p.MaxMtu, p.ActiveMtu = 5, 5
}

// PKeys implements machine.Machine.
func (f *Fabric) PKeys(string, uint32) ([]uint16, error) { return []uint16{0xffff}, nil }

// InterfaceNames implements machine.Machine: an EFA device has no network interface.
func (f *Fabric) InterfaceNames([]int) (map[int]string, error) { return nil, nil }

// InterfaceIndex implements machine.Machine.
func (f *Fabric) InterfaceIndex(string) (int, error) { return 0, unix.ENODEV }

// InterfaceAddrs implements machine.Machine.
func (f *Fabric) InterfaceAddrs() ([]net.Addr, error) { return nil, nil }
