package fakeirdma

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A Config describes the devices of a fabric.
type Config struct {
	Generation uint8 // of the adapter, as the driver counts them; 0: a driver before irdma
	IWARP      bool  // the mode of the adapter
	Old        bool  // a driver to which programs give the sizes of queues, as before Linux 6.7
	Resize     bool  // CQs can be resized
	Strict     bool  // mistakes of programs of other processes fail the test, too
	// Limits, if not nil, changes what the kernel says of the device.
	Limits func(*uapi.IrdmaAllocUcontextResp)
	// Reply, if not nil, changes what the driver replies to a create command: a pointer to the struct of the kernel.
	Reply func(resp any)
	// Record, if not nil, gets what the programs of a device write to its queues and registers. Then
	// the device executes nothing, and the methods of [Device] write completions.
	Record func(device, what string)
}

// E810 is the configuration of most tests.
var E810 = Config{Generation: 2, Resize: true}

// Limits of a device.
const (
	maxQuanta  = 1 << 15 // of a ring
	maxSGE     = 13
	maxInline  = 101
	maxEntries = 1<<20 - 1
	chunk      = 8 // quanta
	minWQ      = 8 // requests
	maxQPs     = 256
	maxMessage = 1<<31 - 1
)

// A Fabric is a computer with devices named irdma0, irdma1 and so on, and a connection manager.
type Fabric struct {
	*fakedev.Fabric
	fakedev.CM
	cfg     Config
	devices []*Device
}

// A Device is an adapter.
type Device struct {
	*fakedev.Device
	fabric *Fabric

	qps    map[uint32]*qp // by number, as are the CQs
	cqs    map[uint32]*cq
	newest *qp
}

// New returns a fabric of n devices on which the process runs until the test ends.
func New(t testing.TB, n int, cfg Config) *Fabric {
	t.Helper()
	f := &Fabric{cfg: cfg}
	f.Fabric = fakedev.New(t, n, f.model())
	f.CM = f.NewCM()
	f.Start(f)
	return f
}

// model describes the devices.
func (f *Fabric) model() fakedev.Model {
	const adapter = 1 // RDMA_NODE_IB_CA
	m := fakedev.Model{Package: "fakeirdma", Driver: uapi.RDMA_DRIVER_IRDMA, ABI: uapi.IRDMA_ABI_VER, Name: "irdma",
		NodeType: adapter, Firmware: "1.71", Record: f.cfg.Record, Strict: f.cfg.Strict}
	m.GIDs, m.Describe, m.Open = f.newDevice, f.describe, f.open
	return m
}

func (f *Fabric) newDevice(base *fakedev.Device) []uapi.IbUverbsGidEntry {
	f.devices = append(f.devices, &Device{Device: base, fabric: f, qps: map[uint32]*qp{}, cqs: map[uint32]*cq{}})
	return base.RoCE()
}

// Device returns device number i.
func (f *Fabric) Device(i int) *Device { return f.devices[i] }

// describe sets what the kernel replies to queries.
func (f *Fabric) describe(core *ioctltest.Kernel) {
	const e810 = 0x1592 // for QSFP
	a := &core.Device
	a.VendorId, a.VendorPartId, a.FwVer = 0x8086, e810, 1<<32|71
	a.MaxMrSize, a.PageSizeCap = 1<<39, 0x40201000
	a.MaxQp, a.MaxCq, a.MaxPd, a.MaxMr, a.MaxAh = maxQPs, 512, 256, 1024, 4096
	a.MaxQpWr, a.MaxCqe, a.MaxSge, a.MaxSgeRd = (maxQuanta-reservedSends)>>3, maxEntries-1, maxSGE, maxSGE
	a.MaxQpRdAtom, a.MaxQpInitRdAtom, a.MaxSrq, a.MaxSrqWr, a.MaxSrqSge = 32, 32, 0, 0, 0
	a.AtomicCap, a.LocalCaAckDelay, a.MaxPkeys = 0, 0, 1
	if f.cfg.IWARP {
		a.MaxPkeys = 0
	}
	p := &core.Ports[0]
	p.MaxMtu, p.ActiveMtu, p.MaxMsgSz = 5, 5, maxMessage
}
