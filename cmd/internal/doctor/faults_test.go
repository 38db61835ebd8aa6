package doctor

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A fault is planted in a healthy machine, and found as the finding with this id.
type fault struct {
	name     string // for docs/doctor.md
	id       string
	severity check.Severity
	plant    func(f *fake)
	request  check.Request
}

// faults lists the faults of a machine. Those of two machines are in package peer and in testbed/doctor.
var faults = []fault{
	{"the kernel has no RDMA core", "no-rdma", check.Error, func(f *fake) {
		f.devices, f.err = nil, nldev.ErrNoRDMA
		f.remove("sys/class/infiniband")
	}, check.Request{}},
	{"a sandbox hides netlink and sysfs", "device-list", check.Error, func(f *fake) {
		f.devices, f.err = nil, unix.EACCES
	}, check.Request{}},
	{"`ib_uverbs` is not loaded", "no-uverbs", check.Error, func(f *fake) {
		f.remove("sys/class/infiniband_verbs")
		f.devices[0].Char = nil
	}, check.Request{}},
	{"`rdma_ucm` is not loaded", "no-rdma-cm", check.Error, func(f *fake) {
		f.remove("sys/class/misc/rdma_cm")
	}, check.Request{}},
	{"no device and no adapter", "no-device", check.Error, func(f *fake) { f.noDevice(); f.remove(pciSlot) },
		check.Request{}},
	{"a device that does not exist is requested", "no-such-device", check.Error, func(*fake) {},
		check.Request{Device: "mlx5_7"}},
	{"an adapter without a driver", "no-driver", check.Error, func(f *fake) {
		f.noDevice()
		f.remove(pciSlot + "infiniband")
		f.remove(pciSlot + "driver")
	}, check.Request{}},
	{"`mlx5_ib` is not loaded", "no-mlx5-ib", check.Error, func(f *fake) { f.noDevice(); f.driver("mlx5_core") },
		check.Request{}},
	{"an adapter that is reserved for a virtual machine", "foreign-driver", check.Warning, func(f *fake) {
		f.noDevice()
		f.driver("vfio-pci")
	}, check.Request{}},
	{"the device's node is missing", "node-missing", check.Error, func(f *fake) { f.remove("dev/infiniband/uverbs0") },
		check.Request{}},
	{"a container without the device's node", "node-missing", check.Error, func(f *fake) {
		f.remove("dev/infiniband/uverbs0")
		f.write(".dockerenv", "")
	}, check.Request{}},
	{"the node of another device", "node-missing", check.Error, func(f *fake) { f.refuse["uverbs0"] = unix.ENXIO },
		check.Request{}},
	{"a file system or a security module forbids the node", "node-rights", check.Error, func(f *fake) {
		f.refuse["uverbs0"] = unix.EACCES
		f.write("proc/self/status", "Name:\tdoctor\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-7")
	}, check.Request{}},
	{"the user has no right to the node", "node-rights", check.Error, func(f *fake) { f.refuse["uverbs0"] = unix.EACCES },
		check.Request{}},
	{"the device cgroup forbids the node", "node-forbidden", check.Error, func(f *fake) {
		f.refuse["uverbs0"] = unix.EPERM
	}, check.Request{}},
	{"the node of the connection manager is missing", "node-missing", check.Error, func(f *fake) {
		f.remove("dev/infiniband/rdma_cm")
	}, check.Request{}},
	{"opening the node fails", "node-error", check.Error, func(f *fake) { f.refuse["uverbs0"] = unix.EIO },
		check.Request{}},
	{"the device belongs to another network namespace", "netns", check.Error, func(f *fake) {
		f.exclusive = true
		f.refuse["uverbs0"] = unix.EPERM
	}, check.Request{}},
	{"goverbs has no provider for the driver", "no-provider", check.Error, func(f *fake) {
		f.devices[0].Char.DriverID = uapi.RDMA_DRIVER_HNS
	}, check.Request{}},
	{"an Amazon EFA", "no-connections", check.Warning, func(f *fake) {
		f.devices[0].Char.DriverID = uapi.RDMA_DRIVER_EFA
	}, check.Request{}},
	{"little locked memory in a shell", "memlock", check.Error, func(f *fake) {
		f.limits[unix.RLIMIT_MEMLOCK] = 64 << 10
	}, check.Request{}},
	{"little locked memory in a service", "memlock-service", check.Warning, func(f *fake) {
		f.limits[unix.RLIMIT_MEMLOCK] = 8 << 20
		f.write("proc/self/cgroup", "0::/system.slice/kv.service")
	}, check.Request{}},
	{"little locked memory in a container", "memlock-container", check.Warning, func(f *fake) {
		f.limits[unix.RLIMIT_MEMLOCK] = 8 << 20
		f.write("run/.containerenv", "")
	}, check.Request{}},
	{"few descriptors", "nofile", check.Warning, func(f *fake) { f.limits[unix.RLIMIT_NOFILE] = 256 }, check.Request{}},
	{"the rdma cgroup allows too few objects", "cgroup-rdma", check.Error, func(f *fake) {
		f.write("sys/fs/cgroup/user.slice/rdma.max", "mlx5_0 hca_handle=max hca_object=3")
	}, check.Request{}},
	{"the rdma cgroup has no handle left", "cgroup-rdma", check.Error, func(f *fake) {
		f.write("sys/fs/cgroup/user.slice/rdma.max", "mlx5_0 hca_handle=2 hca_object=max")
		f.write("sys/fs/cgroup/user.slice/rdma.current", "mlx5_0 hca_handle=2 hca_object=0")
	}, check.Request{}},
	{"the rdma cgroup has a limit", "cgroup-rdma", check.Note, func(f *fake) {
		f.write("sys/fs/cgroup/user.slice/rdma.max", "mlx5_0 hca_handle=100 hca_object=max")
	}, check.Request{}},
	{"the network interface is down", "port-down", check.Error, func(f *fake) {
		f.port("1: DOWN", "3: Disabled", "Ethernet")
		f.write("sys/class/net/eth0/flags", "0x1002")
	}, check.Request{}},
	{"no cable", "no-link", check.Error, func(f *fake) {
		f.port("1: DOWN", "2: Polling", "Ethernet")
		f.write("sys/class/net/eth0/operstate", "down")
	}, check.Request{}},
	{"the port is disabled", "port-disabled", check.Error, func(f *fake) {
		f.port("1: DOWN", "3: Disabled", "InfiniBand")
	},
		check.Request{}},
	{"the port does not become active", "port-state", check.Error, func(f *fake) {
		f.port("3: ARMED", "5: LinkUp", "Ethernet")
	}, check.Request{}},
	{"InfiniBand without a subnet manager", "no-subnet-manager", check.Error, func(f *fake) {
		f.port("2: INIT", "5: LinkUp", "InfiniBand")
	}, check.Request{}},
	{"soft-RoCE after an outage", "gsi-error", check.Error, func(f *fake) {
		f.devices[0].Char.DriverID = uapi.RDMA_DRIVER_RXE
		f.gsi["mlx5_0"] = []uint32{1}
	}, check.Request{}},
	{"an adapter whose queue pair for connections has failed", "gsi-error", check.Error, func(f *fake) {
		f.gsi["mlx5_0"] = []uint32{1}
	}, check.Request{}},
	{"an MTU too small for RoCE", "mtu-small", check.Error, func(f *fake) { f.write("sys/class/net/eth0/mtu", "300") },
		check.Request{}},
	{"a small MTU", "mtu-low", check.Warning, func(f *fake) { f.write("sys/class/net/eth0/mtu", "1000") },
		check.Request{}},
	{"the usual MTU of Ethernet", "mtu", check.Note, func(f *fake) { f.write("sys/class/net/eth0/mtu", "1500") },
		check.Request{}},
	{"no address at all", "no-gid", check.Error, func(f *fake) { f.remove(port1 + "gids") }, check.Request{}},
	{"no IP address", "no-gid", check.Warning, func(f *fake) {
		f.gid("mlx5_0", 1, "", "", "eth0")
		f.gid("mlx5_0", 2, "", "", "eth0")
	}, check.Request{}},
	{"RoCE v1 only", "gid-v1", check.Warning, func(f *fake) {
		for i := range 3 {
			f.gid("mlx5_0", i, mlx5Addr, "IB/RoCE v1", "eth0")
		}
	}, check.Request{}},
	{"the network interface is in another network namespace", "gid-netns", check.Error, func(f *fake) {
		f.addrs = map[string][]netip.Addr{"lo": {netip.MustParseAddr("127.0.0.1")}}
	}, check.Request{}},
	{"a container whose network interface is another one", "gid-netns", check.Error, func(f *fake) {
		f.addrs["eth0"] = []netip.Addr{netip.MustParseAddr("10.244.0.7")}
		f.write(".dockerenv", "")
	}, check.Request{}},
	{"an interface of the same name and address in this namespace", "gid-netns", check.Error, func(f *fake) {
		clear(f.binds)
	}, check.Request{Address: mlx5Addr}},
	{"two devices with the same address", "gid-duplicate", check.Warning, func(f *fake) {
		f.addDevice("mlx5_1", "eth1", mlx5Addr, uapi.RDMA_DRIVER_MLX5)
	}, check.Request{}},
	{"two devices with the same address, where doctor may not ask the connection manager", "gid-duplicate", check.Warning,
		func(f *fake) {
			f.addDevice("mlx5_1", "eth1", mlx5Addr, uapi.RDMA_DRIVER_MLX5)
			f.bindErr = unix.EACCES
		}, check.Request{}},
	{"two ports of a device with the same address", "gid-duplicate", check.Warning, (*fake).twoPorts, check.Request{}},
	{"soft-RoCE on the network interface of an adapter", "gid-duplicate", check.Warning, func(f *fake) {
		f.addDevice("rxe0", "eth0", mlx5Addr, uapi.RDMA_DRIVER_RXE)
	}, check.Request{}},
	{"a network interface without RDMA has the device's address", "gid-duplicate", check.Error, func(f *fake) {
		f.addrs["br0"] = f.addrs["eth0"]
		clear(f.binds)
	}, check.Request{Address: mlx5Addr}},
	{"an address without a GID", "no-gid-for-address", check.Error, func(f *fake) {
		f.addrs["eth0"] = append(f.addrs["eth0"], netip.MustParseAddr("192.0.2.9"))
	}, check.Request{Address: "192.0.2.9"}},
	{"an address of an interface without RDMA", "address-elsewhere", check.Error, func(f *fake) {
		f.addrs["eth1"] = []netip.Addr{netip.MustParseAddr("198.51.100.1")}
		f.source = netip.MustParseAddr("198.51.100.1")
	}, check.Request{Address: "198.51.100.77"}},
	{"no route to the peer", "no-route", check.Error, func(f *fake) {
		f.source = netip.Addr{}
		f.write("sys/class/net/eth0/ifindex", "2")
	}, check.Request{Address: "203.0.113.5"}},
	{"IPv6 is disabled", "no-route", check.Error, func(f *fake) {
		f.source = netip.Addr{}
		f.write("proc/sys/net/ipv6/conf/all/disable_ipv6", "1")
	}, check.Request{Address: "2001:db8::5"}},
	{"IPv6 is disabled for the network interface", "no-route", check.Error, func(f *fake) {
		f.source = netip.Addr{}
		f.write("proc/sys/net/ipv6/conf/all/disable_ipv6", "0")
		f.write("proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1")
	}, check.Request{Address: "2001:db8::5"}},
	{"a kernel without IPv6", "no-route", check.Error, func(f *fake) {
		f.source = netip.Addr{}
	}, check.Request{Address: "2001:db8::5"}},
	{"the connection manager uses RoCE v1", "cm-roce-v1", check.Warning, func(f *fake) {
		f.write("sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "IB/RoCE v1")
	}, check.Request{}},
	{"no priority flow control", "pfc", check.Note, func(f *fake) { f.pfc = 0 }, check.Request{}},
	{"the network loses packets", "loss", check.Note, func(f *fake) {
		f.write(port1+"hw_counters/packet_seq_err", "17")
		f.write(port1+"hw_counters/out_of_sequence", "4012")
	}, check.Request{}},
	{"a slow PCI slot", "pci-link", check.Warning, func(f *fake) { f.write(pciSlot+"current_link_width", "8") },
		check.Request{}},
	{"relaxed ordering is disabled", "relaxed-ordering", check.Note, func(f *fake) {
		f.write(pciSlot+"config", configSpace(0))
	}, check.Request{}},
	{"the IOMMU translates", "iommu", check.Note, func(f *fake) { f.write(pciSlot+"iommu_group/type", "DMA-FQ") },
		check.Request{}},
	{"a process on the CPUs of another NUMA node", "numa", check.Warning, func(f *fake) {
		f.write("proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t4-7")
	}, check.Request{}},
	{"no huge pages", "huge-pages", check.Note, func(f *fake) {
		f.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]")
	}, check.Request{}},
	{"two adapters with different firmware", "firmware-differs", check.Note, func(f *fake) {
		f.addDevice("mlx5_1", "eth1", "198.51.100.1", uapi.RDMA_DRIVER_MLX5)
		f.devices[1].FWVersion = "28.39.1002"
	}, check.Request{}},
	{"soft-RoCE of an old kernel", "rxe-old", check.Error, func(f *fake) {
		f.devices[0].Char.DriverID = uapi.RDMA_DRIVER_RXE
		f.write("proc/sys/kernel/osrelease", "5.10.0-30-amd64")
	}, check.Request{}},
	{"a limit outside of the container", "use-limit", check.Error, func(f *fake) {
		f.try["mlx5_0"] = &uverbs.Error{Op: "create QP", Object: "mlx5_0", Errno: unix.EAGAIN}
	}, check.Request{}},
	{"the device refuses to create objects", "use", check.Error, func(f *fake) {
		f.try["mlx5_0"] = &uverbs.Error{Op: "allocate PD", Object: "mlx5_0", Errno: unix.EIO}
	}, check.Request{}},
	{"memory cannot be registered", "use-memlock", check.Error, func(f *fake) {
		f.try["mlx5_0"] = &uverbs.Error{Op: "register memory", Object: "mlx5_0", Kind: uverbs.ErrMemlock, Errno: unix.ENOMEM}
	}, check.Request{}},
}

// noDevice removes the RDMA device, but not its adapter.
func (f *fake) noDevice() {
	f.devices = nil
	f.remove(ib + "mlx5_0")
}

// driver binds the adapter to a driver that creates no RDMA device.
func (f *fake) driver(name string) {
	f.remove(pciSlot + "infiniband")
	f.remove(pciSlot + "driver")
	f.write("sys/bus/pci/drivers/"+name+"/x", "")
	f.symlink("../../drivers/"+name, pciSlot+"driver")
}

// port sets the state of the port.
func (f *fake) port(state, physical, layer string) {
	f.write(port1+"state", state)
	f.write(port1+"phys_state", physical)
	f.write(port1+"link_layer", layer)
	if layer == "InfiniBand" {
		f.remove(port1 + "gid_attrs/ndevs")
	}
}

// twoPorts adds a port with the same address on another network interface.
func (f *fake) twoPorts() {
	f.devices[0].Ports = 2
	f.addrs["eth1"] = f.addrs["eth0"]
	for from, to := range map[string]string{port1: ib + "mlx5_0/ports/2", "sys/class/net/eth0": "sys/class/net/eth1"} {
		if err := os.CopyFS(filepath.Join(f.root, to), os.DirFS(filepath.Join(f.root, from))); err != nil {
			f.t.Fatal(err)
		}
	}
	for i := range 3 {
		f.write(fmt.Sprintf("%smlx5_0/ports/2/gid_attrs/ndevs/%d", ib, i), "eth1")
	}
}

// configSpace returns a PCI configuration space with a PCI Express capability whose control register is given.
func configSpace(control byte) string {
	b := make([]byte, 256)
	b[0x34], b[0x40], b[0x41], b[0x60], b[0x68] = 0x40, 0x05, 0x60, 0x10, control
	return string(b)
}

// find returns the finding with an id.
func find(t *testing.T, findings []check.Finding, id string) check.Finding {
	t.Helper()
	i := slices.IndexFunc(findings, func(f check.Finding) bool { return f.ID == id && f.Severity > check.OK })
	if i < 0 {
		t.Fatalf("no finding %s in %+v", id, findings)
	}
	return findings[i]
}

// TestFaults checks that each fault is found, and does not lead to errors about other subjects.
func TestFaults(t *testing.T) {
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			c.plant(f)
			findings := f.run(c.request)
			for _, g := range findings {
				if g.Severity == check.Error && g.ID != c.id {
					t.Errorf("also %+v", g)
				}
			}
			got := find(t, findings, c.id)
			if got.Severity != c.severity || got.Seen == "" || got.Why == "" || got.Fix == "" {
				t.Errorf("%+v, want severity %v and all texts", got, c.severity)
			}
		})
	}
}

// TestReload checks that the fix of a failed GSI queue pair names the kernel module that creates the devices.
func TestReload(t *testing.T) {
	for driver, want := range map[uint32]string{
		uapi.RDMA_DRIVER_MLX4:    "modprobe -r mlx4_ib && modprobe mlx4_ib (",
		uapi.RDMA_DRIVER_CXGB4:   "modprobe -r iw_cxgb4 && modprobe iw_cxgb4 (",
		uapi.RDMA_DRIVER_BNXT_RE: "modprobe -r bnxt_re && modprobe bnxt_re (",
		1000:                     "unload the kernel module of the device's driver, and load it again (",
	} {
		f := newFake(t)
		f.devices[0].Char.DriverID = driver
		f.gsi["mlx5_0"] = []uint32{1}
		if fix := find(t, f.run(check.Request{}), "gsi-error").Fix; !strings.HasPrefix(fix, want) {
			t.Errorf("driver %d: %q, want %q", driver, fix, want)
		}
	}
}

// TestNoBinding checks that doctor compares the addresses of network interfaces where it cannot use the connection
// manager.
func TestNoBinding(t *testing.T) {
	f := newFake(t)
	f.bindErr, f.gsi = unix.EACCES, nil
	if findings := f.run(check.Request{Address: mlx5Addr}); check.Worst(findings) > check.OK {
		t.Errorf("%+v", findings)
	}
	f.addrs["eth0"] = []netip.Addr{netip.MustParseAddr("10.244.0.7")}
	find(t, f.run(check.Request{}), "gid-netns")
}

// TestInterface checks that a fix names a network interface that is up, has an address and is no bridge, before others.
func TestInterface(t *testing.T) {
	f := newFake(t)
	f.noDevice()
	f.remove(pciSlot)
	for name, flags := range map[string]string{"bond0": "0x1002", "eth1": "0x1003", "lo": "0x9"} {
		f.write("sys/class/net/"+name+"/flags", flags)
	}
	f.write("sys/class/net/bonding_masters", "bond0")
	for name, state := range map[string]string{"docker0": "down", "br0": "up"} {
		f.write("sys/class/net/"+name+"/flags", "0x1003")
		f.write("sys/class/net/"+name+"/operstate", state)
		f.addrs[name] = []netip.Addr{netip.MustParseAddr("172.17.0.1")}
	}
	f.write("sys/class/net/eth0/device/vendor", "0x15b3")
	fix := func() string { return find(t, f.run(check.Request{}), "no-device").Fix }
	for _, want := range []string{"eth0", "br0", "eth1", "docker0", "bond0"} {
		if got := fix(); !strings.HasSuffix(got, " "+want) {
			t.Errorf("%s, want the interface %s", got, want)
		}
		f.remove("sys/class/net/" + want)
	}
	if got := fix(); !strings.HasSuffix(got, " INTERFACE") {
		t.Errorf("%s, of a machine without an interface", got)
	}
}

// TestBond checks that the devices of a bond, which share its addresses, are not reported.
func TestBond(t *testing.T) {
	f := newFake(t)
	f.addDevice("mlx5_1", "eth0", mlx5Addr, uapi.RDMA_DRIVER_MLX5)
	if findings := f.run(check.Request{Address: mlx5Addr}); check.Worst(findings) > check.OK {
		t.Errorf("%+v", findings)
	}
}

// TestVirtualFunction checks that a virtual function is not reported for a setting of its physical function.
func TestVirtualFunction(t *testing.T) {
	f := newFake(t)
	f.write(pciSlot+"config", configSpace(0))
	f.write(pciSlot+"physfn/x", "")
	if findings := f.run(check.Request{}); check.Worst(findings) > check.OK {
		t.Errorf("%+v", findings)
	}
}

// TestUnused checks that the error of a device or port is a warning if another one works.
func TestUnused(t *testing.T) {
	f := newFake(t)
	f.addDevice("mlx5_1", "eth1", "198.51.100.1", uapi.RDMA_DRIVER_MLX5)
	f.write("sys/class/net/eth1/flags", "0x1002")
	f.write(ib+"mlx5_1/ports/1/state", "1: DOWN")
	findings := f.run(check.Request{})
	got := find(t, findings, "port-down")
	if got.Severity != check.Warning || got.Device != "mlx5_1" || got.Port != 1 || check.Worst(findings) != check.Warning {
		t.Errorf("%+v", findings)
	}
	if got := find(t, f.run(check.Request{Device: "mlx5_1"}), "port-down"); got.Severity != check.Error {
		t.Errorf("%+v of the only device that is checked", got)
	}
	f.remove("dev/infiniband/rdma_cm")
	if got := find(t, f.run(check.Request{}), "port-down"); got.Severity != check.Error {
		t.Errorf("%+v while no device works", got)
	}
}

func TestHealthy(t *testing.T) {
	f := newFake(t)
	f.write(pciSlot+"config", configSpace(1<<4))
	findings := f.run(check.Request{Address: mlx5Addr})
	for _, g := range findings {
		if g.Severity > check.OK {
			t.Errorf("%+v on a healthy machine", g)
		}
	}
	for _, id := range []string{"port", "gid", "address", "mtu", "numa", "firmware", "kernel", "use"} {
		if !slices.ContainsFunc(findings, func(g check.Finding) bool { return g.ID == id }) {
			t.Errorf("no fact %s", id)
		}
	}
}

// TestHostileFiles checks that files with unexpected contents do no harm.
func TestHostileFiles(t *testing.T) {
	for _, text := range []string{"", "-1", "0-99999999999999", strings.Repeat("x", 1<<16), "a:b:c\n::::\n=\n"} {
		f := newFake(t)
		for _, path := range []string{"proc/self/status", "proc/self/cgroup", "proc/sys/kernel/osrelease",
			"sys/fs/cgroup/user.slice/rdma.max", "sys/class/net/eth0/mtu", "sys/class/net/eth0/flags", pciSlot + "config",
			pciSlot + "numa_node", port1 + "state", "sys/devices/system/node/node0/cpulist"} {
			f.write(path, text)
		}
		if len(f.run(check.Request{})) == 0 {
			t.Errorf("%.10q: no finding", text)
		}
	}
}
