package uverbs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

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
	return nil, noSuchDevice(name, devices, exclusive())
}

func openFirst(devices []Device) (*Context, error) {
	if len(devices) == 0 {
		return nil, noSuchDevice("", nil, exclusive())
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

// Open opens the device. See the function [Open] for the errors.
func (d Device) Open() (*Context, error) {
	if d.Node == "" {
		return nil, &Error{Op: "open", Object: d.Name, Kind: ErrNoNode, Errno: unix.ENOENT,
			Detail: "the kernel offers no user-space access to it: load the module ib_uverbs"}
	}
	p, err := d.provider()
	if err != nil {
		return nil, err
	}
	dev, err := d.openNode()
	if err != nil {
		return nil, err
	}
	return newContext(dev, d, p)
}

// openNode opens the node for commands.
func (d *Device) openNode() (*ioctl.Device, error) {
	if m := machine.Current(); m != nil {
		dev, err := m.OpenDevice(d.Name)
		if err != nil {
			return nil, explainOpen(d, err)
		}
		return dev, nil
	}
	fd, err := openNode(d)
	if err != nil {
		return nil, err
	}
	return ioctl.New(fd, d.nodeName(), d.DriverID), nil
}

// nodeName is the base name of the node.
func (d *Device) nodeName() string { return d.Node[strings.LastIndexByte(d.Node, '/')+1:] }

// provider returns the provider of the device's driver.
func (d *Device) provider() (provider, error) {
	p, ok := driver.Lookup(d.DriverID).(provider)
	if !ok {
		return nil, &Error{Op: "open", Object: d.Name, Kind: ErrNoProvider, Detail: noProvider(*d)}
	}
	if low, high := p.ABI(); d.ABI < low || d.ABI > high {
		newer := "goverbs"
		if d.ABI < low {
			newer = "kernel"
		}
		return nil, &Error{Op: "open", Object: d.Name, Kind: ErrABI, Errno: unix.ENOSYS, Detail: fmt.Sprintf(
			"the kernel's %s driver speaks ABI version %d, this library versions %d to %d: use a newer %s",
			d.Driver(), d.ABI, low, high, newer)}
	}
	return p, nil
}

// knownProviders are the drivers that goverbs has a provider for. The package has the name of
// the driver.
var knownProviders = []uint32{uapi.RDMA_DRIVER_MLX5, uapi.RDMA_DRIVER_RXE, uapi.RDMA_DRIVER_EFA,
	uapi.RDMA_DRIVER_BNXT_RE, uapi.RDMA_DRIVER_IRDMA, uapi.RDMA_DRIVER_SIW}

func noProvider(d Device) string {
	const dir = "github.com/goverbs/goverbs/provider/"
	if slices.Contains(knownProviders, d.DriverID) {
		return fmt.Sprintf("the program links no provider for the %s driver: add import _ %q, or %q for every driver",
			d.Driver(), dir+d.Driver(), dir+"all")
	}
	var names []string
	for _, id := range knownProviders {
		names = append(names, driverNames[id])
	}
	return "goverbs has no provider for the " + d.Driver() + " driver: it has those for " +
		strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// exclusive reports whether each device belongs to one network namespace. It is for explanations: if the
// kernel cannot be asked, it returns false, which is the default.
func exclusive() bool {
	if machine.Current() != nil {
		return false
	}
	shared, err := nldev.NetnsMode()
	return err == nil && !shared
}

func noSuchDevice(name string, devices []Device, exclusive bool) error {
	e := &Error{Op: "open", Object: name, Kind: ErrNoDevice, Errno: unix.ENODEV}
	if len(devices) == 0 && exclusive {
		e.Detail = "this network namespace has no RDMA device: " + nldev.MoveDevice
		return e
	}
	if len(devices) == 0 {
		e.Detail = "this network namespace has no RDMA device: " + nldev.GetDevice
		return e
	}
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = d.Name
	}
	e.Detail = "no RDMA device of that name: there is " + strings.Join(names, ", ")
	if exclusive {
		e.Detail += "; " + nldev.MoveDevice
	}
	return e
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
				strconv.Itoa(int(d.Major)) + ":" + strconv.Itoa(int(d.Minor)) + "; let udev create it again, or use mknod"}
		return -1, errors.Join(e, unix.Close(fd))
	}
	return fd, nil
}

// explainOpen adds the cause and the fix to an error of opening the node.
func explainOpen(d *Device, err error) error {
	errno := errnoOf(err)
	e := &Error{Op: "open", Object: d.Name, Errno: errno, Detail: d.Node + ": " + errno.Error()}
	switch errno {
	case unix.ENOENT:
		e.Kind = ErrNoNode
		e.Detail = fmt.Sprintf("%s is missing: in a container pass it in (--device %s), elsewhere let udev create it, or"+
			" `mknod -m 666 %s c %d %d`", d.Node, d.Node, d.Node, d.Major, d.Minor)
	case unix.EACCES:
		e.Detail = fmt.Sprintf("no permission to read and write %s: as root, `chmod 666 %s`, or install rdma-core's udev "+
			"rules", d.Node, d.Node)
	case unix.EPERM:
		e.Kind = ErrNetns
		e.Detail = "the device belongs to another network namespace, or a container's device list forbids it: move it with" +
			" `rdma dev set " + d.Name + " netns <name>`, let all namespaces share the devices with `rdma system set netns" +
			" shared`, or allow the device"
	case unix.EMFILE:
		e.Detail = explainFDs(errno)
	case unix.ENXIO, unix.ENODEV, unix.EIO:
		e.Kind = ErrDeviceGone
		e.Detail = "the device was removed"
	}
	return e
}

// newContext takes ownership of dev. It closes dev if the provider or the kernel reports an
// error.
func newContext(dev *ioctl.Device, device Device, p provider) (*Context, error) {
	open := func(c *Context) (providerContext, error) { return p.Open(dev, c.getContext) }
	return startContext(dev, device, open)
}

func startContext(
	dev *ioctl.Device, device Device, open func(*Context) (providerContext, error),
) (_ *Context, err error) {
	c := &Context{dev: dev, machine: machine.Current(), device: device, name: device.Name}
	c.creating.none.L = &c.creating.mu
	defer func() {
		if err != nil {
			err = errors.Join(err, dev.Close())
		}
	}()
	if c.impl, err = open(c); err != nil {
		return nil, c.wrap("open", c.name, err, "")
	}
	if s, ok := c.impl.(driver.MRAccessor); ok {
		c.memory = new(driver.MRs)
		s.SetMRs(c.memory)
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
			Detail: "the kernel has no ioctl that creates a verbs context: Linux 5.10 or newer is needed"}
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
		return &Error{Op: "open", Errno: errnoOf(err),
			Detail: "the node could be opened, but the ioctl is refused, as a seccomp filter or security module of a " +
				"container or sandbox does: permit ioctl(2) with RDMA_VERBS_IOCTL (0xc0181b01) in its seccomp profile"}
	}
	if errors.Is(err, unix.ENOMEM) {
		return &Error{Op: "open", Errno: unix.ENOMEM,
			Detail: "the kernel has no memory for a verbs context, or the device no register pages left: close Contexts " +
				"that are not needed"}
	}
	return err
}
