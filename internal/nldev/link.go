package nldev

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// AddLink creates a software RDMA device of type "rxe" or "siw", with the given name, on a
// network device. It needs CAP_NET_ADMIN. The kernel loads the driver's module if it can. AddLink
// does the same as `rdma link add NAME type TYPE netdev NETDEV`.
func AddLink(name, linkType, netdev string) error { return kernel.addLink(name, linkType, netdev) }

// DeleteLink removes a device that AddLink created. Some kernels wait until no process has the
// device open.
func DeleteLink(name string) error { return kernel.deleteLink(name) }

func (c client) addLink(name, linkType, netdev string) error {
	attrs := appendString(nil, uapi.RDMA_NLDEV_ATTR_DEV_NAME, name)
	attrs = appendString(attrs, uapi.RDMA_NLDEV_ATTR_LINK_TYPE, linkType)
	attrs = appendString(attrs, uapi.RDMA_NLDEV_ATTR_NDEV_NAME, netdev)
	_, err := fetch(c, query{op: "add link", object: name, cmd: uapi.RDMA_NLDEV_CMD_NEWLINK, attrs: attrs}, ignore)
	if e, ok := err.(*Error); ok {
		e.Hint = addLinkHint(e.Errno, name, linkType, netdev)
	}
	return err
}

// addLinkHint explains the errnos of nldev_newlink, of the drivers' newlink and
// of ib_register_device.
func addLinkHint(errno unix.Errno, name, linkType, netdev string) string {
	switch errno {
	case unix.EPERM:
		return "it needs CAP_NET_ADMIN, and " + linkType + " refuses VLAN devices: use root and the VLAN's parent"
	case unix.EEXIST:
		return fmt.Sprintf("netdev %s has an RDMA device already: use that one or delete it", netdev)
	case unix.ENFILE:
		return fmt.Sprintf("the name %s is taken by another RDMA device", name)
	case unix.ENODEV:
		return fmt.Sprintf("there is no netdev %s in this network namespace", netdev)
	case unix.ENOENT:
		// rxe computes checksums with it on kernels before 6.15. It is only a soft dependency.
		return "the driver lacks a crypto module: modprobe crc32_generic"
	case unix.EINVAL, unix.EOPNOTSUPP:
		module := linkType
		if linkType == "rxe" {
			module = "rdma_rxe"
		}
		return fmt.Sprintf("the kernel knows no link type %q: modprobe %s; or the name is not allowed", linkType, module)
	}
	return ""
}

func (c client) deleteLink(name string) error {
	q := query{op: "delete link", object: name, cmd: uapi.RDMA_NLDEV_CMD_DELLINK, ofDevice: true}
	_, err := fetch(c, q, ignore)
	if e, ok := err.(*Error); ok {
		switch e.Errno {
		case unix.EPERM:
			e.Hint = "it needs CAP_NET_ADMIN: use root"
		case unix.EINVAL:
			e.Hint = "only software devices (rxe, siw) can be deleted; or it has just gone"
		}
	}
	return err
}

func ignore([]byte) (none struct{}, err error) { return none, nil }
