package connectx

import (
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx/loop"
	"github.com/goverbs/goverbs/testbed/connectx/pci"
	"github.com/goverbs/goverbs/testbed/connectx/prm"
	"github.com/goverbs/goverbs/testbed/connectx/trace"
)

// A LinkLayer is what a port is connected to.
type LinkLayer uint8

const (
	InfiniBand LinkLayer = iota
	Ethernet             // with RoCE
)

// Config is what a device is made of. Zero fields, other than Loop and GUID,
// have a default.
type Config struct {
	Loop      *loop.Loop
	LinkLayer LinkLayer
	PCIDevice uint16  // PCI device number: 0x1017, a ConnectX-5
	GUID      uint64  // of node and port
	MAC       [6]byte // Ethernet; made of the GUID
	LID       uint16  // InfiniBand; 1

	// Firmware is the version: major, minor, subminor.
	Firmware [3]uint16

	// NoISSI leaves out the versions of the interface, which old firmware does not
	// have: the driver uses the first one then, with other commands for SRQs.
	NoISSI bool

	// ECE is the options of enhanced connection establishment that the device has,
	// if it has the capability ece_support: 0x30000002. The numbers mean nothing
	// here, and the highest four bits are a version.
	ECE uint32

	// ODP gives the device memory on demand: the driver makes memory keys whose pages
	// come when they are needed, and the device asks for them by page faults.
	ODP bool

	// FirstUAR is the number of the first page of the UAR, in units of 4 KiB: 16.
	// BAR 0 is large enough for 2^13-16 pages from there on. From 65536 on, numbers of
	// pages do not fit into 16 bits.
	FirstUAR uint32

	// Capabilities replace the values of those that the device has. More than it
	// has cannot be claimed.
	Capabilities []Capability

	// BootPages and InitPages are how many pages of 4 KiB the firmware asks the
	// host for before and with INIT_HCA.
	BootPages, InitPages int

	// Report is told, as a *Complaint, what a driver does that it should not, and
	// that nobody else is told of; nil: nobody is.
	Report func(error)
	Tracer *trace.Tracer

	// Lenient ends the checks of package engine's rules. Violation is told of what
	// breaks one.
	Lenient   bool
	Violation func(engine.Violation)

	// These are as in engine.Config: what adapters do to completions.
	StaleSRQN             bool
	ShuffleRQ, ShuffleSRQ int
}

// A Machine is what a device is plugged into.
type Machine interface {
	// View returns n bytes of memory at a DMA address. They are good until the
	// loop's step ends. The bytes are in one piece; an error says that they are
	// not there.
	View(addr uint64, n int) ([]byte, error)
	// Interrupt raises an MSI-X vector.
	Interrupt(vector int) error
}

// A Device is one PCI function.
type Device struct {
	config  Config
	space   *pci.Space
	machine Machine // nil: not plugged in
	start   time.Time

	cmdq     commandQueue
	health   health
	hca      *engine.HCA
	caps     capabilities
	pages    pageManager
	eqs      eventQueues
	uars     uars
	domains  numbers // transport domains
	counters numbers // sets of Q counters
	port     portState
	failures []*failure

	enabled, running bool // ENABLE_HCA and INIT_HCA were done
	issi             uint16
	gone             bool
}

// New makes a device that is not plugged in.
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
	setDefault(&c.FirstUAR, leastFirstUAR)
	if c.LID >= 0xc000 || c.BootPages < 0 || c.InitPages < 0 || c.BootPages+c.InitPages > maxPages {
		return nil, fmt.Errorf("connectx: LID %#x, %d boot pages and %d pages: LIDs go to 0xbfff, pages to %d in all",
			c.LID, c.BootPages, c.InitPages, maxPages)
	}
	if c.FirstUAR < leastFirstUAR || c.FirstUAR > mostFirstUAR {
		return nil, fmt.Errorf("connectx: FirstUAR is %d: it is from %d to %d", c.FirstUAR, leastFirstUAR, mostFirstUAR)
	}
	d := &Device{config: c, start: time.Now()}
	var err error
	if d.caps, err = newCapabilities(c.LinkLayer, c.ODP, c.Capabilities); err != nil {
		return nil, err
	}
	if d.space, err = newSpace(&d.config); err != nil {
		return nil, fmt.Errorf("connectx: %w", err)
	}
	d.port = newPort(&d.config)
	d.caps.setUARSize(c.barSize())
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

// macOf makes a MAC of a GUID, as adapters make GUIDs of MACs.
func macOf(guid uint64) [6]byte {
	return [6]byte{0x02, byte(guid >> 48), byte(guid >> 40), byte(guid >> 16), byte(guid >> 8), byte(guid)}
}

// Plug puts the device into a machine, or takes it out with nil. Either way it
// is as after Reset.
func (d *Device) Plug(m Machine) {
	d.machine = m
	d.Reset()
}

// Reset puts the device into the state in which it was made: the driver's
// objects, its pages and what was given by the control methods are gone. The
// port's state stays.
func (d *Device) Reset() {
	d.cmdq = commandQueue{}
	d.health = health{}
	d.failures = nil
	d.gone = false
	d.space.Reset()
	d.config.Tracer.Reset()
	d.disable()
}

// disable is what a card does when its driver lets go of it.
func (d *Device) disable() {
	d.caps.reset()
	d.stop()
	d.enabled, d.issi = false, 0
	d.pages = pageManager{}
}

// stop drops all objects.
func (d *Device) stop() {
	d.running = false
	d.eqs = eventQueues{}
	d.uars = newUARs(&d.config, &d.caps)
	d.domains = newNumbers("transport domain", 1, 1<<d.caps.general(prm.HCACapLogMaxTransportDomain))
	d.counters = newNumbers("counter set", 1, 255)
	d.port.restart()
	d.hca.Reset()
	d.limitFrames()
	d.address()
}

// A Complaint is what Config.Report is told of.
type Complaint struct {
	Kind string // the same for those that differ in numbers only
	Err  error
}

// Error implements error.
func (c *Complaint) Error() string { return c.Err.Error() }

// Unwrap is the error.
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

// ticks is the internal timer: nanoseconds, device_frequency_khz says it.
func (d *Device) ticks() uint64 { return uint64(time.Since(d.start)) }
