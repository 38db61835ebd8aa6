package fakeefa

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakedev"
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
	*fakedev.Fabric
	cfg     Config
	devices []*Device
}

// A Device is an adapter.
type Device struct {
	*fakedev.Device
	fabric *Fabric
	gid    [16]byte
	qps    map[uint32]*qp
	newest *cq
}

// unspecified is RDMA_NODE_UNSPECIFIED.
const unspecified = 7

// New returns a fabric of n devices on which the process runs until the test ends.
func New(t testing.TB, n int, cfg Config) *Fabric {
	t.Helper()
	f := &Fabric{cfg: cfg}
	f.Fabric = fakedev.New(t, n, fakedev.Model{Package: "fakeefa", Driver: uapi.RDMA_DRIVER_EFA, ABI: 1, Name: "efa_",
		NodeType: unspecified, Firmware: "0.0.0.0", GIDs: f.newDevice, Describe: describe, Open: f.open, Record: cfg.Record})
	f.Start(f)
	return f
}

func (f *Fabric) newDevice(base *fakedev.Device) []uapi.IbUverbsGidEntry {
	d := &Device{Device: base, fabric: f, gid: base.LinkLocal(), qps: map[uint32]*qp{}}
	f.devices = append(f.devices, d)
	return []uapi.IbUverbsGidEntry{{Gid: d.gid, PortNum: 1}}
}

// Device returns device number i.
func (f *Fabric) Device(i int) *Device { return f.devices[i] }

// describe sets what the kernel replies to queries.
func describe(core *ioctltest.Kernel) {
	a := &core.Device
	a.VendorId, a.VendorPartId, a.FwVer = 0x1d0f, 0xefa2, 0
	a.MaxMrSize, a.PageSizeCap = 1<<40, 0xfffff000
	a.MaxQp, a.MaxCq, a.MaxPd, a.MaxMr, a.MaxAh = maxQPs, 512, 256, 1024, 4096
	a.MaxQpWr, a.MaxCqe, a.MaxSge, a.MaxSgeRd = maxWR, maxCQE, maxRecvSGE, 1
	a.MaxQpRdAtom, a.MaxQpInitRdAtom, a.MaxSrq, a.MaxSrqWr, a.MaxSrqSge = 0, 0, 0, 0, 0
	p := &core.Ports[0]
	p.PkeyTblLen, p.Lid, p.MaxMsgSz, p.LinkLayer, p.Flags = 1, 1, mtu, 0, 0
	p.MaxMtu, p.ActiveMtu = 5, 5
}
