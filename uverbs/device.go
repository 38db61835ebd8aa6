package uverbs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A GUID is a 64-bit identifier. It is printed as libibverbs does: most significant byte first.
type GUID uint64

func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// A Device describes an RDMA device that need not be open.
type Device struct {
	Name      string // such as rxe0 or mlx5_0
	Index     int    // the kernel's device index; -1 if the device was found only in sysfs
	NodeGUID  GUID
	NodeType  NodeType
	Ports     int
	FWVersion string // as reported by the kernel; "" if it reports none

	DriverID uint32 // RDMA_DRIVER_* (rdma/ib_user_ioctl_verbs.h)
	ABI      uint64 // ABI version of the driver's uverbs part
	Node     string // such as /dev/infiniband/uverbs0; "" if the kernel has none
	Major    uint32
	Minor    uint32
}

// NodeType is the kind of an RDMA device. The values are those of
// rdma_node_type (sysfs node_type).
type NodeType uint8

// The types of devices.
const (
	NodeCA          NodeType = 1
	NodeSwitch      NodeType = 2
	NodeRouter      NodeType = 3
	NodeRNIC        NodeType = 4 // iWARP
	NodeUSNIC       NodeType = 5
	NodeUSNICUDP    NodeType = 6
	NodeUnspecified NodeType = 7
)

// String returns the same text as ibv_node_type_str(3).
func (n NodeType) String() string {
	names := [...]string{NodeCA: "InfiniBand channel adapter", NodeSwitch: "InfiniBand switch", NodeRouter: "InfiniBand router",
		NodeRNIC: "iWARP NIC", NodeUSNIC: "usNIC", NodeUSNICUDP: "usNIC UDP", NodeUnspecified: "unspecified"}
	if int(n) < len(names) && n != 0 {
		return names[n]
	}
	return "unknown"
}

// Driver returns the name of the kernel driver, such as rxe or mlx5.
func (d Device) Driver() string {
	if s, ok := driverNames[d.DriverID]; ok {
		return s
	}
	return "driver " + strconv.Itoa(int(d.DriverID))
}

var driverNames = map[uint32]string{
	uapi.RDMA_DRIVER_MLX5:       "mlx5",
	uapi.RDMA_DRIVER_MLX4:       "mlx4",
	uapi.RDMA_DRIVER_CXGB4:      "cxgb4",
	uapi.RDMA_DRIVER_MTHCA:      "mthca",
	uapi.RDMA_DRIVER_BNXT_RE:    "bnxt_re",
	uapi.RDMA_DRIVER_OCRDMA:     "ocrdma",
	uapi.RDMA_DRIVER_IRDMA:      "irdma",
	uapi.RDMA_DRIVER_VMW_PVRDMA: "vmw_pvrdma",
	uapi.RDMA_DRIVER_QEDR:       "qedr",
	uapi.RDMA_DRIVER_HNS:        "hns",
	uapi.RDMA_DRIVER_USNIC:      "usnic",
	uapi.RDMA_DRIVER_RXE:        "rxe",
	uapi.RDMA_DRIVER_HFI1:       "hfi1",
	uapi.RDMA_DRIVER_QIB:        "qib",
	uapi.RDMA_DRIVER_EFA:        "efa",
	uapi.RDMA_DRIVER_SIW:        "siw",
	uapi.RDMA_DRIVER_ERDMA:      "erdma",
	uapi.RDMA_DRIVER_MANA:       "mana",
	uapi.RDMA_DRIVER_IONIC:      "ionic",
}

// Devices returns the RDMA devices of this network namespace in the kernel's order. It uses
// RDMA netlink, or sysfs if netlink does not work. It returns [ErrNoDevice] if the kernel has
// no RDMA support. An empty list is not an error.
func Devices() ([]Device, error) {
	found, err := nldev.Devices()
	if err != nil {
		return nil, explainDevices(err)
	}
	all := make([]Device, len(found))
	for i, n := range found {
		d := Device{Name: n.Name, Index: int(int32(n.Index)), NodeGUID: GUID(n.NodeGUID),
			NodeType: NodeType(n.NodeType), Ports: int(n.Ports), FWVersion: n.FWVersion}
		if c := n.Char; c != nil {
			d.DriverID, d.ABI, d.Major, d.Minor = c.DriverID, c.ABI, c.Major, c.Minor
			d.Node = "/dev/infiniband/" + c.Name
		}
		all[i] = d
	}
	return all, nil
}

// explainDevices adds the cause and the fix to an error of listing devices.
func explainDevices(err error) error {
	e := &Error{Op: "list devices", Errno: errnoOf(err), Detail: explainFDs(err), Err: err}
	if errors.Is(err, nldev.ErrNoRDMA) {
		e.Kind = ErrNoDevice
		e.Detail = nldev.NoRDMA
	}
	return e
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	errors.As(err, &errno)
	return errno
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
	fd, err := openNode(&d)
	if err != nil {
		return nil, err
	}
	return newContext(ioctl.New(fd, d.nodeName(), d.DriverID), d, p)
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
			"the kernel's %s driver speaks ABI version %d, this library versions %d to %d: use a newer %s", d.Driver(), d.ABI, low, high, newer)}
	}
	return p, nil
}

// knownProviders are the drivers that goverbs has a provider for. The package has the name of
// the driver.
var knownProviders = []uint32{uapi.RDMA_DRIVER_MLX5, uapi.RDMA_DRIVER_RXE}

func noProvider(d Device) string {
	const dir = "github.com/goverbs/goverbs/provider/"
	if slices.Contains(knownProviders, d.DriverID) {
		return fmt.Sprintf("the program links no provider for the %s driver: add import _ %q, or %q for every driver", d.Driver(), dir+d.Driver(), dir+"all")
	}
	var names []string
	for _, id := range knownProviders {
		names = append(names, driverNames[id])
	}
	return "goverbs has no provider for the " + d.Driver() + " driver: it has those for " + strings.Join(names, " and ")
}

func noSuchDevice(name string, devices []Device) error {
	e := &Error{Op: "open", Object: name, Kind: ErrNoDevice, Errno: unix.ENODEV}
	if len(devices) == 0 {
		e.Detail = "this network namespace has no RDMA device: " + nldev.GetDevice
		return e
	}
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = d.Name
	}
	e.Detail = "no RDMA device of that name: there is " + strings.Join(names, ", ")
	return e
}

// explainOpen adds the cause and the fix to an error of opening the node.
func explainOpen(d *Device, err error) error {
	errno := errnoOf(err)
	e := &Error{Op: "open", Object: d.Name, Errno: errno, Detail: d.Node + ": " + errno.Error()}
	switch errno {
	case unix.ENOENT:
		e.Kind = ErrNoNode
		e.Detail = fmt.Sprintf("%s is missing: in a container pass it in (--device %s), elsewhere let udev make it, or"+
			" `mknod -m 666 %s c %d %d`", d.Node, d.Node, d.Node, d.Major, d.Minor)
	case unix.EACCES:
		e.Detail = fmt.Sprintf("no permission to read and write %s: as root, `chmod 666 %s`, or install rdma-core's udev rules", d.Node, d.Node)
	case unix.EPERM:
		e.Kind = ErrNetns
		e.Detail = "the device belongs to another network namespace, or a container's device list forbids it: move it with" +
			" `rdma dev set " + d.Name + " netns <name>`, or allow the device"
	case unix.EMFILE:
		e.Detail = explainFDs(errno)
	case unix.ENXIO, unix.ENODEV, unix.EIO:
		e.Kind = ErrDeviceGone
		e.Detail = "the device was removed"
	}
	return e
}

// PKeys returns the P_Key table of a port, in host order. It returns [ErrInvalid] if the device
// has no such port.
func (c *Context) PKeys(port int) ([]uint16, error) {
	if err := c.checkPort("read P_Keys", port); err != nil {
		return nil, err
	}
	keys, err := nldev.PKeys(c.name, uint32(port))
	if err != nil {
		return nil, &Error{Op: "read P_Keys", Object: c.name, Errno: errnoOf(err), Detail: explainFDs(err), Err: err}
	}
	return keys, nil
}
