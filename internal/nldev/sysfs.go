package nldev

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// Sysfs reads RDMA attributes below Root, which is /sys except in tests.
type Sysfs struct{ Root string }

func (s Sysfs) path(elem ...string) string {
	return filepath.Join(append([]string{s.Root}, elem...)...)
}

// read returns the contents of a file without surrounding white space.
func (s Sysfs) read(elem ...string) (string, error) {
	b, err := os.ReadFile(s.path(elem...))
	return strings.TrimSpace(string(b)), err
}

// Devices returns the devices in class/infiniband, in the order of their names.
func (s Sysfs) Devices() ([]Device, error) {
	list, err := os.ReadDir(s.path("class", "infiniband"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoRDMA
	}
	if err != nil {
		return nil, err
	}
	var out []Device
	for _, e := range list {
		d, err := s.device(e.Name())
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // removed since the directory was read
		}
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func (s Sysfs) device(dev string) (Device, error) {
	d := Device{Index: NoIndex, Name: dev}
	guid, err := s.read("class", "infiniband", dev, "node_guid")
	if err != nil {
		return d, err
	}
	if d.NodeGUID, err = parseGUID(guid); err != nil {
		return d, fmt.Errorf("sysfs: node_guid of %s: %w", dev, err)
	}
	typ, err := s.read("class", "infiniband", dev, "node_type") // "1: CA"
	if err != nil {
		return d, err
	}
	number, _, _ := strings.Cut(typ, ":")
	n, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return d, fmt.Errorf("sysfs: node_type of %s: %w", dev, err)
	}
	d.NodeType = uint8(n)
	ports, err := os.ReadDir(s.path("class", "infiniband", dev, "ports"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	d.Ports = uint32(len(ports))
	d.FWVersion, _ = s.read("class", "infiniband", dev, "fw_ver") // optional
	d.Char = s.charDevOf(dev)
	return d, nil
}

// charDevOf returns the uverbs node of a device, or nil if it has none.
func (s Sysfs) charDevOf(dev string) *CharDev {
	list, _ := os.ReadDir(s.path("class", "infiniband_verbs"))
	for _, e := range list {
		if ib, err := s.read("class", "infiniband_verbs", e.Name(), "ibdev"); err != nil || ib != dev {
			continue
		}
		cd, err := s.node("infiniband_verbs", e.Name())
		if err != nil {
			return nil
		}
		cd.DriverID = s.driverID(dev)
		return &cd
	}
	return nil
}

// hasRDMA reports whether the kernel has the RDMA subsystem and sysfs shows it.
func (s Sysfs) hasRDMA() bool {
	_, err := os.Stat(s.path("class", "infiniband"))
	return err == nil
}

// lacks reports whether sysfs is available and does not have the device.
func (s Sysfs) lacks(dev string) bool {
	if !s.hasRDMA() {
		return false
	}
	_, err := os.Lstat(s.path("class", "infiniband", dev))
	return errors.Is(err, fs.ErrNotExist)
}

// ClientCharDev returns the node of a client that is a misc device (rdma_cm).
func (s Sysfs) ClientCharDev(client string) (CharDev, error) {
	if !validName(client) {
		return CharDev{}, fmt.Errorf("sysfs: %q is not a name", client)
	}
	return s.node("misc", client)
}

// node reads the device number and the ABI version of a character device.
func (s Sysfs) node(class, name string) (CharDev, error) {
	cd := CharDev{Name: name}
	dev, err := s.read("class", class, name, "dev")
	if err != nil {
		return cd, err
	}
	major, minor, _ := strings.Cut(dev, ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return cd, fmt.Errorf("sysfs: device number of %s: %w", name, err)
	}
	cd.Major, cd.Minor = uint32(ma), uint32(mi)
	abi, err := s.read("class", class, name, "abi_version")
	if err != nil {
		return cd, err
	}
	if cd.ABI, err = strconv.ParseUint(abi, 10, 64); err != nil {
		return cd, fmt.Errorf("sysfs: abi_version of %s: %w", name, err)
	}
	return cd, nil
}

// drivers maps the name of the kernel driver that a device is bound to. An auxiliary device is
// bound to the RDMA driver, a PCI device to the network driver.
var drivers = map[string]uint32{
	"mlx5_core": uapi.RDMA_DRIVER_MLX5, "mlx5_ib": uapi.RDMA_DRIVER_MLX5,
	"mlx4_core": uapi.RDMA_DRIVER_MLX4, "mlx4_ib": uapi.RDMA_DRIVER_MLX4,
	"cxgb4": uapi.RDMA_DRIVER_CXGB4, "ib_mthca": uapi.RDMA_DRIVER_MTHCA,
	"bnxt_en": uapi.RDMA_DRIVER_BNXT_RE, "bnxt_re": uapi.RDMA_DRIVER_BNXT_RE,
	"be2net": uapi.RDMA_DRIVER_OCRDMA, "ocrdma": uapi.RDMA_DRIVER_OCRDMA,
	"irdma": uapi.RDMA_DRIVER_IRDMA, "i40e": uapi.RDMA_DRIVER_IRDMA, "ice": uapi.RDMA_DRIVER_IRDMA,
	"vmw_pvrdma": uapi.RDMA_DRIVER_VMW_PVRDMA,
	"qede":       uapi.RDMA_DRIVER_QEDR, "qedr": uapi.RDMA_DRIVER_QEDR,
	"hns3": uapi.RDMA_DRIVER_HNS, "hns_roce": uapi.RDMA_DRIVER_HNS,
	"usnic_verbs": uapi.RDMA_DRIVER_USNIC, "hfi1": uapi.RDMA_DRIVER_HFI1, "ib_qib": uapi.RDMA_DRIVER_QIB,
	"efa": uapi.RDMA_DRIVER_EFA, "erdma": uapi.RDMA_DRIVER_ERDMA,
	"mana": uapi.RDMA_DRIVER_MANA, "mana_ib": uapi.RDMA_DRIVER_MANA,
	"ionic": uapi.RDMA_DRIVER_IONIC, "ionic_rdma": uapi.RDMA_DRIVER_IONIC,
}

// driverID derives the driver id, which sysfs does not have, from the bound driver. A device
// without one is a software device: rxe if it has the file "parent", siw if its name begins with
// "siw". Otherwise the result is RDMA_DRIVER_UNKNOWN.
func (s Sysfs) driverID(dev string) uint32 {
	if link, err := os.Readlink(s.path("class", "infiniband", dev, "device", "driver")); err == nil {
		driver, _, _ := strings.Cut(filepath.Base(link), ".") // "mlx5_ib.rdma"
		return drivers[driver]
	}
	if _, err := os.Stat(s.path("class", "infiniband", dev, "parent")); err == nil {
		return uapi.RDMA_DRIVER_RXE
	}
	if strings.HasPrefix(dev, "siw") {
		return uapi.RDMA_DRIVER_SIW
	}
	return uapi.RDMA_DRIVER_UNKNOWN
}

// parseGUID parses a GUID such as 5054:00ff:fe12:3456.
func parseGUID(s string) (uint64, error) {
	if len(s) != 19 || strings.Count(s, ":") != 3 {
		return 0, fmt.Errorf("%q is no GUID", s)
	}
	return strconv.ParseUint(strings.ReplaceAll(s, ":", ""), 16, 64)
}
