package fakebnxt

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
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

// A Fabric is a computer with devices named bnxt_re0, bnxt_re1 and so on, and a connection manager.
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

	files  []*kernel
	qps    map[uint32]*qp // by number, as are the maps below
	cqs    map[uint32]*cq
	srqs   map[uint32]*srq
	newest *qp
}

// New returns a fabric of n devices on which the process runs until the test ends.
func New(t testing.TB, n int, cfg Config) *Fabric {
	t.Helper()
	const adapter = 1 // RDMA_NODE_IB_CA
	f := &Fabric{cfg: cfg}
	f.Fabric = fakedev.New(t, n, fakedev.Model{Package: "fakebnxt", Driver: uapi.RDMA_DRIVER_BNXT_RE,
		ABI: uapi.BNXT_RE_ABI_VERSION, Name: "bnxt_re", NodeType: adapter, Firmware: "231.0.0.0", GIDs: f.newDevice,
		Describe: f.describe, Open: f.open, Record: cfg.Record, Strict: cfg.Strict})
	f.CM = f.NewCM()
	f.Start(f)
	return f
}

func (f *Fabric) newDevice(base *fakedev.Device) []uapi.IbUverbsGidEntry {
	f.devices = append(f.devices, &Device{Device: base, fabric: f, qps: map[uint32]*qp{}, cqs: map[uint32]*cq{},
		srqs: map[uint32]*srq{}})
	return base.RoCE()
}

// Device returns device number i.
func (f *Fabric) Device(i int) *Device { return f.devices[i] }

// describe sets what the kernel replies to queries.
func (f *Fabric) describe(core *ioctltest.Kernel) {
	a := &core.Device
	a.VendorId, a.VendorPartId, a.FwVer = 0x14e4, f.cfg.Chip, 231
	a.MaxMrSize, a.PageSizeCap = 1<<39, 0xfffff000
	a.MaxQp, a.MaxCq, a.MaxPd, a.MaxMr, a.MaxAh = maxQPs, 512, 256, 1024, 4096
	a.MaxQpWr, a.MaxCqe, a.MaxSge, a.MaxSgeRd = maxWR, maxCQE-1, maxSGE, maxSGE
	if f.cfg.Variable {
		a.MaxSge, a.MaxSgeRd = maxVarSGE, maxVarSGE
	}
	a.MaxQpRdAtom, a.MaxQpInitRdAtom, a.MaxSrq, a.MaxSrqWr, a.MaxSrqSge = 16, 16, 64, maxWR, maxSRQSGE
	a.AtomicCap, a.LocalCaAckDelay = 2, 16
	p := &core.Ports[0]
	p.MaxMtu, p.ActiveMtu = 5, 5
}
