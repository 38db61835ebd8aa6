package vm

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/bed"
	"github.com/goverbs/goverbs/testbed/vm/internal/kmod"
	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// EnvKVM is the variable that requests hardware virtualization. It is not used
// by default, because /dev/kvm often exists and does not work.
const EnvKVM = "GOVERBS_KVM"

// Config describes a guest. Its zero value with a kernel is a guest that runs
// static programs.
type Config struct {
	Kernel string // "5.10", "6.1", "6.12", "6.12-16k" (arm64) or "7.2"
	Arch   string // "amd64" (also "") or "arm64"

	CPUs     int // 2 if zero; Start may choose 1
	MemoryMB int // 1024 if zero

	// SharedMemory makes the guest's memory shareable, for device models
	// outside of QEMU (vfio-user).
	SharedMemory bool

	// VFIOUser lists sockets of device models (vfio-user servers, as of package
	// testbed/connectx/vfiouser) that are in the machine from the start: vfio0,
	// vfio1, ..., each behind a separate root port. AddVFIOUser adds others
	// while the guest runs. They imply SharedMemory.
	VFIOUser []string

	// ICount makes the guest's clock count instructions, one nanosecond each,
	// on one CPU: figures of single-threaded programs become repeatable.
	ICount bool

	// Root mounts a small Debian with the C RDMA programs read-only, and runs
	// commands in it. /run, /tmp and /dev/shm are writable.
	Root bool

	// Preload mounts programs that use TCP, such as iperf3 and redis-server, read-only at /run/preload. The script
	// /run/preload/run runs them, and rsrun runs them with librspreload: on RDMA. It needs Root.
	Preload bool

	// Fabric mounts libfabric, with its headers and programs, read-only at /run/fabric, and sets LD_LIBRARY_PATH to its
	// libraries. It needs Root.
	Fabric bool

	// Apps adds UCX, Open MPI, the server of NFS and fio to the Debian of Root, which it needs.
	Apps bool

	// Share is a directory of the host that the guest has, writable, at /share.
	Share string

	// RXE creates the soft-RoCE device rxe0 on a dummy network device d0 with
	// the address 10.9.0.1/24.
	RXE bool

	// SIW creates the soft-iWARP device siw0 in place of rxe0. It needs kernel "6.12-siw", whose module the bed builds
	// when it is first used.
	SIW bool

	Modules []string // additional kernel modules
	NICs    []NIC    // network devices: eth0, eth1, ...

	// Init is a static program that is the first process, in an initramfs with
	// nothing else but kernel modules. Such a guest runs no commands and ends
	// by itself, see Guest.Wait.
	Init     string
	InitArgs []string // arguments of Init

	KernelArgs []string // added to the kernel's command line
	QEMUArgs   []string // added to QEMU's arguments

	Console io.Writer // receives the serial console; may be nil

	// BootTimeout bounds the time until the guest runs commands; 3 minutes if
	// zero. HangTimeout bounds the time without a heartbeat of the guest; 45
	// seconds if zero.
	BootTimeout time.Duration
	HangTimeout time.Duration

	// Logf logs warnings, such as that KVM was requested and does not work.
	// Standard error if nil.
	Logf func(format string, args ...any)

	kvm bool
}

// Parts returns the parts of the bed that a guest with this Config needs.
func (c Config) Parts() ([]bed.Part, error) {
	kernel, err := bed.KernelPart(c.Kernel, c.Arch)
	if err != nil {
		return nil, err
	}
	parts := []bed.Part{bed.QEMU, kernel}
	if c.Root {
		parts = append(parts, c.root())
	}
	if c.Preload {
		parts = append(parts, bed.Preload)
	}
	if c.Fabric {
		parts = append(parts, bed.Fabric)
	}
	return parts, nil
}

// root returns the part with the guest's Debian.
func (c Config) root() bed.Part {
	if c.Apps {
		return bed.Apps
	}
	return bed.Root
}

// withDefaults sets defaults, and checks the Config.
func (c Config) withDefaults() (Config, error) {
	if c.Arch == "" {
		c.Arch = "amd64"
	}
	c.CPUs = orInt(c.CPUs, 2)
	c.MemoryMB = orInt(c.MemoryMB, 1024)
	if c.BootTimeout == 0 {
		c.BootTimeout = 3 * time.Minute
	}
	if c.HangTimeout == 0 {
		c.HangTimeout = 45 * time.Second
	}
	if c.Logf == nil {
		c.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "vm: "+format+"\n", args...) }
	}
	if c.ICount {
		c.CPUs = 1
	}
	if len(c.VFIOUser) > 0 {
		c.SharedMemory = true
	}
	switch {
	case len(c.VFIOUser) > maxVFIOUser:
		return c, fmt.Errorf("vm: %d VFIOUser devices, there are slots for %d", len(c.VFIOUser), maxVFIOUser)
	case c.Root && c.Arch != "amd64":
		return c, fmt.Errorf("vm: the Debian root is amd64 only: a guest of architecture %s runs only static programs",
			c.Arch)
	case c.Preload && !c.Root:
		return c, fmt.Errorf("vm: Preload needs a shell: set Root")
	case c.Apps && !c.Root:
		return c, fmt.Errorf("vm: Apps is a part of the Debian root: set Root")
	case c.Fabric && !c.Root:
		return c, fmt.Errorf("vm: Fabric needs the C library: set Root")
	case c.SIW && (c.Kernel != siwKernel || c.RXE):
		return c, fmt.Errorf("vm: SIW needs kernel %s, and excludes RXE: the kernel is %s", siwKernel, c.Kernel)
	case c.Init != "" && (c.Root || c.RXE || c.SIW || c.Share != ""):
		return c, fmt.Errorf("vm: Root, RXE and Share need the bed's own first process: they cannot be used with Init")
	}
	return c, nil
}

// siwKernel is the kernel with soft-iWARP.
const siwKernel = "6.12-siw"

func orInt(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}

// A moduleRule is a module that guests load if their kernel has it.
type moduleRule struct {
	name   string
	absent []string // kernels that are known not to have it
}

// usualModules are loaded by every guest. A missing module is an error unless
// absent lists the kernel.
var usualModules = []moduleRule{
	{name: "virtio_pci"},
	{name: "virtio_console"}, // the port to the host
	{name: "9pnet_virtio"},
	{name: "9p"},
}

// testModules are also loaded by guests with the bed's own first process.
var testModules = []moduleRule{
	// rxe requests "crc32" through the crypto API, which is not a dependency
	// known to depmod: without it `rdma link add` fails with ENOENT. Kernel 7.2
	// calls the CRC library.
	{name: "crc32_generic", absent: []string{"7.2"}},
	{name: "rdma_rxe"},
	{name: "ib_uverbs"},
	{name: "rdma_ucm"},
	{name: "dummy"},
	{name: "veth"},
	{name: "virtio_net"},
	{name: "sch_netem"},
}

// modules returns all modules of the guest, in loading order.
func (c Config) modules(kernel bed.KernelImage) ([]kmod.Module, error) {
	tree, err := kmod.Open(kernel.Modules)
	if err != nil {
		return nil, err
	}
	rules := testModules
	if c.Init == "" {
		rules = append(slices.Clone(usualModules), testModules...)
	}
	var names []string
	for _, r := range rules {
		if tree.Has(r.name) || !slices.Contains(r.absent, c.Kernel) {
			names = append(names, r.name)
		}
	}
	if c.SIW {
		names = append(names, "siw")
	}
	return tree.Resolve(append(names, c.Modules...)...)
}

// fabricLib has the libraries of Fabric.
const fabricLib = wire.FabricDir + "/usr/lib/x86_64-linux-gnu"

// environment returns the environment of the guest's commands.
func (c Config) environment() []string {
	env := []string{
		"PATH=" + wire.DefaultPath, "HOME=/root", "LANG=C.UTF-8", "TERM=dumb",
		"GOVERBS_KERNEL=" + c.Kernel,
	}
	if c.Fabric {
		env = append(env, "LD_LIBRARY_PATH="+fabricLib)
	}
	if c.RXE {
		env = append(env, "GOVERBS_DEVICE="+wire.DefaultRXE)
	}
	if c.SIW {
		env = append(env, "GOVERBS_DEVICE="+wire.DefaultSIW)
	}
	return env
}
