package uverbs

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/machine"
)

// A Context is an open device: struct ibv_context. All other objects are created on it, and
// Close closes all of them. Any number of goroutines may call its methods.
type Context struct {
	dev     *ioctl.Device
	machine machine.Machine // on which the device is
	device  Device
	name    string // device name, such as rxe0
	impl    providerContext
	memory  *driver.MRs // nil if the device never leaves storing or loading data to the CPU
	vectors int
	// coreSupport is the set of features of the kernel's verbs core: IB_UVERBS_CORE_SUPPORT_*.
	coreSupport uint64
	// imported reports whether the Context was imported: another Context has the kernel's
	// default event file.
	imported bool
	// exported reports whether ExportFD was called.
	exported atomic.Bool

	ticket *leak.Ticket
	events *eventReader

	creating creations
	ending   atomic.Bool // set when Close begins
	// deviceGone is set by markDeviceGone and never cleared.
	deviceGone atomic.Bool
	portsDown  atomic.Uint64 // a bit for each port, from port 1 on, whose last event says that it is down

	mu      sync.Mutex
	objects objectList
	ids     idTable

	common commonChannels

	idle atomic.Pointer[idleHook]

	attrMu sync.Mutex
	attr   *DeviceAttr // see limits

	gids gidHints

	closeOnce sync.Once
	closeErr  error
}

// contexts keeps the open contexts reachable, and so the memory that their devices may write:
// it stays mapped even if a program drops a Context without Close.
var contexts struct {
	sync.Mutex
	open map[*Context]struct{}
	// kept are the objects whose memory the kernel still has after Close: see finalizeAll.
	kept []*object
}

// Device returns what was known of the device before it was opened.
func (c *Context) Device() Device { return c.device }

// Name returns the device's name: rxe0, mlx5_0.
func (c *Context) Name() string { return c.name }

// CompVectors returns the number of completion vectors: CQConfig.Vector must be less.
func (c *Context) CompVectors() int { return c.vectors }

// id adds q to the table in which events from the kernel look up their objects, and returns its
// id.
func (c *Context) id(q queue) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ids.add(q)
}

// forget removes an id from that table. 0 means no id.
func (c *Context) forget(id uint64) {
	if id == 0 {
		return
	}
	c.mu.Lock()
	c.ids.remove(id)
	c.mu.Unlock()
	c.events.forget(id)
}

// lookup returns the queue with an id, or nil.
func (c *Context) lookup(id uint64) queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ids.get(id)
}

// checkPort checks a port number.
func (c *Context) checkPort(op string, port int) error {
	if port < 1 || port > max(c.device.Ports, 1) {
		return invalid(op, c.name,
			"port "+strconv.Itoa(port)+" is out of range: the device has ports 1 to "+strconv.Itoa(c.device.Ports))
	}
	return nil
}
