package uverbs

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
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
	names := [...]string{
		NodeCA:          "InfiniBand channel adapter",
		NodeSwitch:      "InfiniBand switch",
		NodeRouter:      "InfiniBand router",
		NodeRNIC:        "iWARP NIC",
		NodeUSNIC:       "usNIC",
		NodeUSNICUDP:    "usNIC UDP",
		NodeUnspecified: "unspecified",
	}
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
	found, err := machine.Devices()
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
