package doctor

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A fake is a machine: the files below its root, and a kernel that reports what the fields say.
type fake struct {
	t    *testing.T
	root string

	devices   []nldev.Device
	err       error // of Devices
	exclusive bool
	refuse    map[string]error // of opening nodes, by name
	try       map[string]error // of using devices
	limits    map[int]uint64
	addrs     map[string][]netip.Addr
	binds     map[netip.Addr]string // the devices of local addresses
	bindErr   error                 // of Bind, of all addresses
	gsi       map[string][]uint32   // of FailedGSI
	source    netip.Addr
	pfc       uint8
}

func (f *fake) Devices() ([]nldev.Device, error) { return f.devices, f.err }
func (f *fake) ConnectionManager() (nldev.CharDev, error) {
	_, err := os.Stat(filepath.Join(f.root, "sys/class/misc/rdma_cm"))
	return nldev.CharDev{Name: "rdma_cm", Major: 10, Minor: 122}, err
}

func (f *fake) SharedDevices() (bool, error) { return !f.exclusive, nil }
func (f *fake) FailedGSI(device string) ([]uint32, error) {
	if f.gsi == nil {
		return nil, unix.EACCES
	}
	return f.gsi[device], nil
}

func (f *fake) FlowControl(netdev string) (uint8, error) {
	if netdev == "eth9" {
		return 0, unix.EOPNOTSUPP
	}
	return f.pfc, nil
}

func (f *fake) Bind(local netip.Addr) (string, error) {
	if f.bindErr != nil {
		return "", f.bindErr
	}
	for _, addrs := range f.addrs {
		if device := f.binds[local]; device != "" && slices.Contains(addrs, local) {
			return device, nil
		}
	}
	return "", &cm.Error{Op: "bind", Object: local.String(), Kind: uverbs.ErrNoDevice, Errno: unix.ENODEV}
}

func (f *fake) Try(device string) error { return f.try[device] }

func (f *fake) OpenNode(path string) error {
	if err := f.refuse[filepath.Base(path)]; err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	_, err := os.Stat(path)
	return err
}

func (f *fake) Limit(resource int) (uint64, error) { return f.limits[resource], nil }

func (f *fake) Addresses() (map[string][]netip.Addr, error) { return f.addrs, nil }

func (f *fake) Source(netip.Addr) (netip.Addr, error) {
	if !f.source.IsValid() {
		return f.source, unix.ENETUNREACH
	}
	return f.source, nil
}

// write writes a file, and its directories.
func (f *fake) write(path, text string) {
	f.t.Helper()
	name := filepath.Join(f.root, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// remove removes a file or directory.
func (f *fake) remove(path string) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.root, path)); err != nil {
		f.t.Fatal(err)
	}
}

// Names of the healthy machine's parts.
const (
	ib       = "sys/class/infiniband/"
	port1    = ib + "mlx5_0/ports/1/"
	pciSlot  = "sys/bus/pci/devices/0000:3b:00.0/"
	mlx5Addr = "192.0.2.1"
)

// newFake returns a healthy server with one ConnectX.
func newFake(t *testing.T) *fake {
	f := &fake{t: t, root: t.TempDir(), pfc: 1 << 3, refuse: map[string]error{}, try: map[string]error{},
		limits: map[int]uint64{unix.RLIMIT_MEMLOCK: unix.RLIM_INFINITY, unix.RLIMIT_NOFILE: 65536},
		addrs:  map[string][]netip.Addr{}, binds: map[netip.Addr]string{}, gsi: map[string][]uint32{},
		source: netip.MustParseAddr(mlx5Addr)}
	f.addDevice("mlx5_0", "eth0", mlx5Addr, uapi.RDMA_DRIVER_MLX5)
	for path, text := range map[string]string{
		pciSlot + "vendor": "0x15b3", pciSlot + "class": "0x020000", pciSlot + "numa_node": "0",
		pciSlot + "infiniband/mlx5_0/x": "", pciSlot + "driver/x": "",
		pciSlot + "current_link_speed": "16.0 GT/s PCIe", pciSlot + "max_link_speed": "16.0 GT/s PCIe",
		pciSlot + "current_link_width": "16", pciSlot + "max_link_width": "16",
		pciSlot + "iommu_group/type":                 "identity",
		"sys/class/misc/rdma_cm/dev":                 "10:122",
		"dev/infiniband/rdma_cm":                     "",
		"proc/self/status":                           "Name:\tdoctor\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-7",
		"proc/self/cgroup":                           "0::/user.slice/session-1.scope",
		"proc/sys/kernel/osrelease":                  "6.12.1",
		"proc/sys/kernel/hostname":                   "node-7",
		"sys/devices/system/node/node0/cpulist":      "0-3",
		"sys/devices/system/node/node1/cpulist":      "4-7",
		"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
		"proc/sys/vm/nr_hugepages":                   "0",
	} {
		f.write(path, text)
	}
	f.symlink("../../../bus/pci/devices/0000:3b:00.0", ib+"mlx5_0/device")
	return f
}

// symlink creates a symbolic link.
func (f *fake) symlink(target, path string) {
	f.t.Helper()
	if err := os.Symlink(target, filepath.Join(f.root, path)); err != nil {
		f.t.Fatal(err)
	}
}

// addDevice adds an RDMA device with one RoCE port.
func (f *fake) addDevice(name, netdev, addr string, driver uint32) {
	n := len(f.devices)
	char := &nldev.CharDev{Name: fmt.Sprintf("uverbs%d", n), Major: 231, Minor: uint32(192 + n), DriverID: driver, ABI: 1}
	f.devices = append(f.devices, nldev.Device{Index: uint32(n), Name: name, Ports: 1, FWVersion: "28.43.1014",
		Char: char})
	port := ib + name + "/ports/1/"
	for path, text := range map[string]string{
		port + "state": "4: ACTIVE", port + "phys_state": "5: LinkUp", port + "link_layer": "Ethernet",
		ib + name + "/board_id":                              "MT_0000000838",
		"sys/class/infiniband_verbs/" + char.Name + "/ibdev": name,
		"dev/infiniband/" + char.Name:                        "",
		"sys/class/net/" + netdev + "/mtu":                   "9000",
		"sys/class/net/" + netdev + "/flags":                 "0x1003",
		"sys/class/net/" + netdev + "/operstate":             "up",
	} {
		f.write(path, text)
	}
	a := netip.MustParseAddr(addr)
	f.addrs[netdev], f.binds[a] = append(f.addrs[netdev], a), cmp.Or(f.binds[a], name)
	f.gid(name, 0, "fe80::1", "RoCE v2", netdev)
	f.gid(name, 1, addr, "IB/RoCE v1", netdev)
	f.gid(name, 2, addr, "RoCE v2", netdev)
}

// gid writes an entry of the GID table. The empty address is an unused entry.
func (f *fake) gid(device string, index int, addr, kind, netdev string) {
	var g [16]byte
	if addr != "" {
		g = netip.MustParseAddr(addr).As16()
	}
	var groups []string
	for i := 0; i < len(g); i += 2 {
		groups = append(groups, fmt.Sprintf("%02x%02x", g[i], g[i+1]))
	}
	port := ib + device + "/ports/1/"
	f.write(fmt.Sprintf("%sgids/%d", port, index), strings.Join(groups, ":"))
	f.write(fmt.Sprintf("%sgid_attrs/types/%d", port, index), kind)
	f.write(fmt.Sprintf("%sgid_attrs/ndevs/%d", port, index), netdev)
}

// run runs the checks.
func (f *fake) run(r check.Request) []check.Finding {
	findings := check.Run(&check.System{Root: f.root, Kernel: f}, r)
	for i := range findings {
		for _, s := range []*string{&findings[i].Seen, &findings[i].Fix} {
			*s = strings.ReplaceAll(*s, f.root, "")
		}
	}
	return findings
}
