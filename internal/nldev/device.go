package nldev

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// NoIndex is the Index of a device that was found in sysfs.
const NoIndex = ^uint32(0)

// Device is an RDMA device in the kernel's device list.
type Device struct {
	Index     uint32 // the kernel's number of the device, or NoIndex
	Name      string // "rxe0", "mlx5_0"; may change by rename, unlike Index
	NodeGUID  uint64 // as a number: 0x505400fffe123456 prints as 5054:00ff:fe12:3456
	NodeType  uint8  // RDMA_NODE_IB_CA (also RoCE), RDMA_NODE_RNIC, ...
	Ports     uint32 // number of ports; they count from 1
	FWVersion string // empty if the driver does not report one
	Char      *CharDev
}

// CharDev is a character device in /dev/infiniband. A Device's Char is its uverbs node, or nil if
// the node is unknown.
type CharDev struct {
	Name         string // "uverbs0": the file in /dev/infiniband
	ABI          uint64 // the driver's ABI version for a uverbs node, otherwise the node's
	Major, Minor uint32
	DriverID     uint32 // RDMA_DRIVER_*; RDMA_DRIVER_UNKNOWN if not applicable
}

// Devices returns the RDMA devices of this network namespace in the order of their index. It uses
// netlink or, if netlink is not available, sysfs. Having no device is not an error. If there is
// no RDMA subsystem, the error is ErrNoRDMA.
func Devices() ([]Device, error) { return kernel.devices() }

// ClientCharDev returns the node of a client that is not part of a device, such as "rdma_cm". The
// kernel loads the client's module if necessary.
func ClientCharDev(client string) (CharDev, error) { return kernel.clientCharDev(client) }

func (c client) devices() ([]Device, error) {
	devs, err := c.netlinkDevices()
	if err == nil || !refused(err) {
		return devs, err
	}
	devs, sysErr := c.sys.Devices()
	switch {
	case errors.Is(sysErr, ErrNoRDMA):
		return nil, err // the error of netlink explains more
	case sysErr != nil:
		return nil, fmt.Errorf("%w; and sysfs: %w", err, sysErr)
	}
	return devs, nil
}

func (c client) netlinkDevices() ([]Device, error) {
	conn, err := c.open("list devices", "")
	if err != nil {
		return nil, err
	}
	defer conn.t.close()
	devs, err := conn.list()
	if err != nil {
		return nil, err
	}
	out := devs[:0]
	for _, d := range devs {
		cd, err := conn.charDev(&d.Index, "uverbs")
		switch {
		case err == nil:
			d.Char = &cd
		case errnoIs(err, unix.ENODEV):
			continue // removed since the list was read
		case errnoIs(err, unix.EINVAL, unix.EOPNOTSUPP, unix.ENOENT):
			// A kernel before 5.3, a device without uverbs, or one that was removed (EINVAL then,
			// not ENODEV): sysfs tells them apart.
			d.Char = c.sys.charDevOf(d.Name)
			if d.Char == nil && c.sys.lacks(d.Name) {
				continue
			}
		default:
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// list returns the devices without their nodes.
func (c *conn) list() ([]Device, error) {
	devs, err := ask(c, query{op: "list devices", cmd: uapi.RDMA_NLDEV_CMD_GET, dump: true}, decodeDevice)
	slices.SortFunc(devs, func(a, b Device) int { return cmp.Compare(a.Index, b.Index) })
	return devs, err
}

// find returns the index of the device with the given name.
func (c *conn) find(op, dev string) (uint32, error) {
	devs, err := c.list()
	if err != nil {
		return 0, err
	}
	for _, d := range devs {
		if d.Name == dev {
			return d.Index, nil
		}
	}
	return 0, &Error{Op: op, Object: dev, Errno: unix.ENODEV,
		Hint: "no RDMA device has this name in this network namespace"}
}

func decodeDevice(b []byte) (Device, error) {
	var d Device
	seen, err := decode(b, map[uint16]any{
		uapi.RDMA_NLDEV_ATTR_DEV_INDEX:     &d.Index,
		uapi.RDMA_NLDEV_ATTR_DEV_NAME:      (*fileName)(&d.Name),
		uapi.RDMA_NLDEV_ATTR_PORT_INDEX:    &d.Ports,
		uapi.RDMA_NLDEV_ATTR_FW_VERSION:    &d.FWVersion,
		uapi.RDMA_NLDEV_ATTR_NODE_GUID:     &d.NodeGUID,
		uapi.RDMA_NLDEV_ATTR_DEV_NODE_TYPE: &d.NodeType,
	})
	if err == nil && !(seen[uapi.RDMA_NLDEV_ATTR_DEV_INDEX] && seen[uapi.RDMA_NLDEV_ATTR_DEV_NAME]) {
		err = malformed("a device without index or name")
	}
	return d, err
}

func (c client) clientCharDev(client string) (CharDev, error) {
	conn, err := c.open("find node of", client)
	if err == nil {
		defer conn.t.close()
		var cd CharDev
		if cd, err = conn.charDev(nil, client); err == nil {
			return cd, nil
		}
	}
	if refused(err) || errnoIs(err, unix.ENOENT) {
		if cd, sysErr := c.sys.ClientCharDev(client); sysErr == nil {
			return cd, nil
		}
	}
	return CharDev{}, err
}

// charDev returns the node of a client, for one device if index is not nil.
func (c *conn) charDev(index *uint32, client string) (CharDev, error) {
	var attrs []byte
	if index != nil {
		attrs = appendU32(attrs, uapi.RDMA_NLDEV_ATTR_DEV_INDEX, *index)
	}
	attrs = appendString(attrs, uapi.RDMA_NLDEV_ATTR_CHARDEV_TYPE, client)
	q := query{op: "find node of", object: client, cmd: uapi.RDMA_NLDEV_CMD_GET_CHARDEV, attrs: attrs}
	list, err := ask(c, q, decodeCharDev)
	switch {
	case err == nil && len(list) == 1:
		return list[0], nil
	case err == nil:
		err = wrap(q.op, client, malformed("%d replies", len(list)))
	}
	if e, ok := err.(*Error); ok && index == nil && (e.Errno == unix.EOPNOTSUPP || e.Errno == unix.ENOENT) {
		e.Hint = "no loaded module provides it: modprobe " + cmp.Or(clientModules[client], "rdma-client-"+client)
	}
	return CharDev{}, err
}

// clientModules are the modules that provide clients.
var clientModules = map[string]string{
	"uverbs": "ib_uverbs", "rdma_cm": "rdma_ucm", "umad": "ib_umad", "issm": "ib_umad"}

func decodeCharDev(b []byte) (CharDev, error) {
	var cd CharDev
	var number uint64
	seen, err := decode(b, map[uint16]any{
		uapi.RDMA_NLDEV_ATTR_CHARDEV_NAME:     (*fileName)(&cd.Name),
		uapi.RDMA_NLDEV_ATTR_CHARDEV_ABI:      &cd.ABI,
		uapi.RDMA_NLDEV_ATTR_CHARDEV:          &number,
		uapi.RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID: &cd.DriverID,
	})
	cd.Major, cd.Minor = uapi.HugeDecodeDev(number)
	if err == nil && !(seen[uapi.RDMA_NLDEV_ATTR_CHARDEV_NAME] && seen[uapi.RDMA_NLDEV_ATTR_CHARDEV]) {
		err = malformed("a node without name or number")
	}
	return cd, err
}
