package uverbs

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A Context is an open device: struct ibv_context. All other objects are created on it, and
// Close closes all of them. Any number of goroutines may call its methods.
type Context struct {
	dev     *ioctl.Device
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

	mu      sync.Mutex
	objects objectList
	byID    map[uint64]any // by the user handle that the kernel returns in events
	lastID  uint64

	channelMu sync.Mutex
	channel   *CompChannel // the default channel, created at first use

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

// Open opens the RDMA device with the given name. The empty name means the first device with an
// active port, or, if no device has one, the first that can be opened.
//
// Its errors match [ErrNoDevice], [ErrNoProvider], [ErrNoNode], [ErrNetns], [ErrABI],
// [ErrNotSupported] or os.ErrPermission. The error text describes the fix.
func Open(name string) (*Context, error) {
	devices, err := Devices()
	if err != nil {
		return nil, err
	}
	if name == "" {
		return openFirst(devices)
	}
	for _, d := range devices {
		if d.Name == name {
			return d.Open()
		}
	}
	return nil, noSuchDevice(name, devices)
}

func openFirst(devices []Device) (*Context, error) {
	if len(devices) == 0 {
		return nil, noSuchDevice("", nil)
	}
	var spare *Context
	var errs []error
	for _, d := range devices {
		c, err := d.Open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, err := c.activePort(); err == nil {
			if spare == nil {
				return c, nil
			}
			if err := spare.Close(); err != nil {
				return nil, errors.Join(err, c.Close())
			}
			return c, nil
		}
		if spare == nil {
			spare = c
		} else {
			errs = append(errs, c.Close())
		}
	}
	if spare != nil {
		return spare, nil
	}
	return nil, errors.Join(errs...)
}

// newContext takes ownership of dev. It closes dev if the provider or the kernel reports an
// error.
func newContext(dev *ioctl.Device, device Device, p provider) (*Context, error) {
	return startContext(dev, device, func(c *Context) (providerContext, error) { return p.Open(dev, c.getContext) })
}

func startContext(dev *ioctl.Device, device Device, open func(*Context) (providerContext, error)) (_ *Context, err error) {
	c := &Context{dev: dev, device: device, name: device.Name,
		byID: make(map[uint64]any)}
	c.creating.none.L = &c.creating.mu
	defer func() {
		if err != nil {
			err = errors.Join(err, dev.Close())
		}
	}()
	if c.impl, err = open(c); err != nil {
		return nil, c.wrap("open", c.name, err, "")
	}
	if s, ok := c.impl.(driver.Storer); ok {
		c.memory = new(driver.MRs)
		s.StoreIn(c.memory)
	}
	if c.events, err = newEventReader(c); err != nil {
		return nil, errors.Join(err, c.impl.Retire())
	}
	go c.events.run()
	c.ticket = leak.Track(c.name, "context")
	contexts.Lock()
	defer contexts.Unlock()
	if contexts.open == nil {
		contexts.open = make(map[*Context]struct{})
	}
	contexts.open[c] = struct{}{}
	return c, nil
}

// getContext issues the command that creates the kernel's context, for the provider.
func (c *Context) getContext(uhwIn, uhwOut []byte) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT)
	vectors := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS)
	support := ioctl.OutOf[uint64](cmd, uapi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT)
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := c.dev.Do(cmd); err != nil {
		return driver.Reply{}, explainGetContext(err)
	}
	c.vectors, c.coreSupport = int(*vectors), *support
	copy(uhwOut, reply)
	return driver.Reply{}, nil
}

func explainGetContext(err error) error {
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return &Error{Op: "open", Kind: ErrNotSupported, Errno: errnoOf(err),
			Detail: "the kernel has no ioctl that makes a verbs context: Linux 5.10 or newer is needed"}
	}
	if errors.Is(err, unix.ENOMEM) {
		return &Error{Op: "open", Errno: unix.ENOMEM,
			Detail: "the kernel has no memory for a verbs context, or the device no register pages left: close Contexts that are not needed"}
	}
	return err
}

// Device returns what was known of the device before it was opened.
func (c *Context) Device() Device { return c.device }

// Name returns the device's name: rxe0, mlx5_0.
func (c *Context) Name() string { return c.name }

// CompVectors returns the number of completion vectors: CQConfig.Vector must be less.
func (c *Context) CompVectors() int { return c.vectors }

// Close destroys every object that was created on c, closes the device and releases the memory.
// Posts, polls and waits in other goroutines return [ErrClosed]. Close is idempotent, and waits
// for a Close in progress.
//
// It ends the waits, destroys the objects and replaces their rings with zero pages, closes the
// descriptor, and then unpins the memory. If the kernel refuses to destroy an object, Close
// returns its error. Closing the descriptor destroys the object all the same, unless c was
// imported or [Context.ExportFD] was called: then the object lives on with the descriptors of the
// others, and its memory stays pinned until the process ends.
func (c *Context) Close() error {
	c.closeOnce.Do(func() { c.closeErr = c.closeAll() })
	return c.closeErr
}

func (c *Context) closeAll() error {
	c.idle.Store(nil)
	c.ending.Store(true)
	c.creating.stop()

	var errs []error
	for r := range ranks {
		for _, o := range c.ranked(r) {
			errs = append(errs, o.close())
		}
	}
	errs = append(errs, c.events.close(), c.impl.Retire(), c.dev.Close())
	errs = append(errs, c.finalizeAll()...)

	contexts.Lock()
	delete(contexts.open, c)
	contexts.Unlock()
	c.ticket.Done()
	return errors.Join(errs...)
}

func (c *Context) ranked(r rank) []*object {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*object
	for o := range c.objects.all {
		if o.rank == r {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *object) int { return int(a.handle) - int(b.handle) })
	return all
}

// finalizeAll finalizes the objects that the kernel refused to destroy. The kernel has
// destroyed them since, when the descriptor was closed, unless the kernel's context has, or may
// have, another descriptor. Then the device may still access their memory, which is kept.
func (c *Context) finalizeAll() (errs []error) {
	shared := c.imported || c.exported.Load()
	for r := range ranks {
		for _, o := range c.ranked(r) {
			o.mu.Lock()
			if !o.closed { // its own Close may have run first
				if shared {
					o.keep()
				}
				errs = append(errs, o.finalize())
			}
			o.mu.Unlock()
		}
	}
	return errs
}

// keep keeps the memory of o for as long as the process runs. The caller holds o.mu.
func (o *object) keep() {
	o.kept = true
	contexts.Lock()
	defer contexts.Unlock()
	contexts.kept = append(contexts.kept, o)
}

// id adds v to the table in which events from the kernel look up their objects, and returns its
// number. Numbers are never reused, so a late event of a closed object finds nothing.
func (c *Context) id(v any) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	c.byID[c.lastID] = v
	return c.lastID
}

// forget removes a number from that table. 0 means no number.
func (c *Context) forget(id uint64) {
	if id == 0 {
		return
	}
	c.mu.Lock()
	delete(c.byID, id)
	c.mu.Unlock()
	c.events.forget(id)
}

func (c *Context) lookup(id uint64) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id]
}

// checkPort checks a port number.
func (c *Context) checkPort(op string, port int) error {
	if port < 1 || port > max(c.device.Ports, 1) {
		return invalid(op, c.name, "port "+strconv.Itoa(port)+" is out of range: the device has ports 1 to "+strconv.Itoa(c.device.Ports))
	}
	return nil
}

// openNode opens the character device and checks that it is the one that Devices found.
func openNode(d *Device) (fd int, err error) {
	path := d.Node
	fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, explainOpen(d, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, errors.Join(os.NewSyscallError("fstat", err), unix.Close(fd))
	}
	dev := unix.Mkdev(d.Major, d.Minor)
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != dev {
		e := &Error{Op: "open", Object: d.Name, Kind: ErrNoNode, Errno: unix.ENODEV,
			Detail: path + " is not the device's node: it should be character device " +
				strconv.Itoa(int(d.Major)) + ":" + strconv.Itoa(int(d.Minor)) + "; let udev make it afresh, or mknod it"}
		return -1, errors.Join(e, unix.Close(fd))
	}
	return fd, nil
}
