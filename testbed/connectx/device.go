package connectx

import (
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/testbed/connectx/pci"
)

// A LinkLayer is the link layer of a port.
type LinkLayer uint8

const (
	InfiniBand LinkLayer = iota
	Ethernet             // with RoCE
)

// Config is the configuration of a device. Zero fields, other than Loop and
// GUID, mean a default.
type Config struct {
	Loop      *loop.Loop
	LinkLayer LinkLayer
	PCIDevice uint16  // PCI device ID; default: 0x1017, a ConnectX-5
	GUID      uint64  // of node and port
	MAC       [6]byte // Ethernet; default: derived from the GUID
	LID       uint16  // InfiniBand; default: 1

	// Firmware is the firmware version: major, minor, subminor.
	Firmware [3]uint16

	// NoISSI removes the interface versions, as in old firmware: the driver
	// then uses version 0, with other commands for SRQs.
	NoISSI bool

	// ECE has the supported options of enhanced connection establishment, if
	// the device has the capability ece_support; default: 0x30000002. The
	// options have no effect. The highest four bits are a version.
	ECE uint32

	// ODP enables memory on demand: the driver creates memory keys whose pages
	// are provided on access, and the device requests them by page faults.
	ODP bool

	// FirstUAR is the number of the first UAR page, in units of 4 KiB; default:
	// 16. BAR 0 has room for at least 2^13-208 pages from there on. From 65536
	// on, page numbers do not fit into 16 bits.
	FirstUAR uint32

	// Capabilities replace values of the device's capabilities. They cannot
	// exceed the maximum values, which Offered returns.
	Capabilities []Capability

	// BootPages and InitPages are the numbers of 4 KiB pages that the firmware
	// requests before and with INIT_HCA.
	BootPages, InitPages int

	// Report, if not nil, receives mistakes of the driver that are not reported
	// elsewhere, as a *Complaint.
	Report func(error)
	Tracer *trace.Tracer

	// Lenient disables the checks of package engine's rules. Otherwise
	// Violation receives each violation.
	Lenient   bool
	Violation func(engine.Violation)

	// As in engine.Config: variants of completions.
	StaleSRQN             bool
	ShuffleRQ, ShuffleSRQ int

	// As in engine.Config: the packets of out-of-order queue pairs.
	Reorder int
}

// A Machine is a machine into which a device is plugged.
type Machine interface {
	// View returns the n contiguous bytes of memory at a DMA address. They are
	// valid until the loop's current step ends. It returns an error if the
	// memory does not exist.
	View(addr uint64, n int) ([]byte, error)
	// Interrupt raises an MSI-X vector.
	Interrupt(vector int) error
}

// A Device is one PCI function.
type Device struct {
	config  Config
	space   *pci.Space
	machine Machine // nil while unplugged
	start   time.Time

	cmdq     commandQueue
	health   health
	hca      *engine.HCA
	caps     capabilities
	pages    pageManager
	eqs      eventQueues
	uars     uars
	lost     uars    // what was allocated when the device was last stopped
	domains  numbers // transport domains
	counters numbers // sets of Q counters
	users    numbers // user contexts
	owners   owners
	umems    numbers
	reserved numbers
	rates    map[uint16]uint16 // of entries of the table of rates, their users
	memories map[uint32]*umem
	port     portState
	failures []*failure

	enabled, running bool // after ENABLE_HCA, INIT_HCA
	issi             uint16
	gone             bool
}

// New returns a device that is not plugged in.
func New(c Config) (*Device, error) {
	if c.Loop == nil || c.GUID == 0 {
		return nil, errors.New("connectx: a device needs a loop and a GUID: set Config.Loop and Config.GUID")
	}
	setDefault(&c.PCIDevice, 0x1017)
	setDefault(&c.MAC, macOf(c.GUID))
	setDefault(&c.LID, 1)
	setDefault(&c.Firmware, [3]uint16{16, 35, 1234})
	setDefault(&c.BootPages, 8)
	setDefault(&c.InitPages, 100)
	setDefault(&c.ECE, 0x3000_0002)
	setDefault(&c.FirstUAR, minFirstUAR)
	if c.LID >= 0xc000 || c.BootPages < 0 || c.InitPages < 0 || c.BootPages+c.InitPages > maxPages {
		return nil, fmt.Errorf("connectx: LID %#x, %d boot pages and %d pages: LIDs go to 0xbfff, pages to %d in all",
			c.LID, c.BootPages, c.InitPages, maxPages)
	}
	if c.FirstUAR < minFirstUAR || c.FirstUAR > maxFirstUAR {
		return nil, fmt.Errorf("connectx: FirstUAR is %d: it is from %d to %d", c.FirstUAR, minFirstUAR, maxFirstUAR)
	}
	d := &Device{config: c, start: time.Now()}
	var err error
	if d.caps, err = newCapabilities(&c); err != nil {
		return nil, err
	}
	if d.space, err = newSpace(&d.config); err != nil {
		return nil, fmt.Errorf("connectx: %w", err)
	}
	d.port = newPort(&d.config)
	d.caps.setBAR(&c)
	d.caps.reset()
	d.hca = d.newEngine()
	d.hca.SetUp(true)
	d.Reset()
	return d, nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// macOf derives a MAC from a GUID, the inverse of how adapters derive GUIDs
// from MACs.
func macOf(guid uint64) [6]byte {
	return [6]byte{0x02, byte(guid >> 48), byte(guid >> 40), byte(guid >> 16), byte(guid >> 8), byte(guid)}
}

// Plug plugs the device into a machine or, if m is nil, unplugs it. It also
// resets the device.
func (d *Device) Plug(m Machine) {
	d.machine = m
	d.Reset()
}

// Reset resets the device to the state after New: it removes the driver's
// objects, its pages and injected failures. The port's state remains.
func (d *Device) Reset() {
	d.cmdq = commandQueue{}
	d.health = health{}
	d.failures = nil
	d.gone = false
	d.space.Reset()
	d.config.Tracer.Reset()
	d.disable()
}

// disable releases everything that a driver has set up.
func (d *Device) disable() {
	d.caps.reset()
	d.stop()
	d.enabled, d.issi = false, 0
	d.pages = pageManager{}
}

// stop destroys all objects.
func (d *Device) stop() {
	d.running = false
	d.eqs = eventQueues{}
	if len(d.uars.used) > 0 {
		d.lost = d.uars
	}
	d.uars = newUARs(&d.config, &d.caps)
	d.domains = newNumbers("transport domain", 1, 1<<d.caps.general(prm.HCACapLogMaxTransportDomain))
	d.counters = newNumbers("counter set", 1, 255)
	d.users = newUsers(&d.caps)
	d.owners = newOwners()
	d.umems = newNumbers("umem", 1, 1<<d.caps.general(prm.HCACapLogMaxUMem)-1)
	d.reserved = newReserved()
	d.rates = make(map[uint16]uint16)
	d.memories = make(map[uint32]*umem)
	d.port.restart()
	d.hca.Reset()
	d.limitFrames()
	d.address()
}

// A Complaint is an error passed to Config.Report.
type Complaint struct {
	Kind string // equal for errors that differ only in numbers
	Err  error
}

// Error implements error.
func (c *Complaint) Error() string { return c.Err.Error() }

// Unwrap returns the error.
func (c *Complaint) Unwrap() error { return c.Err }

var errUnplugged = errors.New("connectx: the device is not plugged in")

func (d *Device) view(addr uint64, n int) ([]byte, error) {
	if d.machine == nil {
		return nil, errUnplugged
	}
	return d.machine.View(addr, n)
}

func (d *Device) report(format string, args ...any) {
	if d.config.Report != nil {
		d.config.Report(&Complaint{Kind: format, Err: fmt.Errorf("connectx: "+format, args...)})
	}
}

// ticks returns the internal timer in nanoseconds, as in device_frequency_khz.
func (d *Device) ticks() uint64 { return uint64(time.Since(d.start)) }
