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

// EnvKVM is the variable that asks for hardware virtualization. It is never
// used unasked: a /dev/kvm that exists often runs no guest.
const EnvKVM = "GOVERBS_KVM"

// Config describes a guest. Its zero value, with a kernel, is a guest that
// runs static programs.
type Config struct {
	Kernel string // "5.10", "6.1", "6.12", "6.12-16k" (arm64) or "7.2"
	Arch   string // "amd64" (also "") or "arm64"

	CPUs     int // 2 if zero
	MemoryMB int // 1024 if zero

	// SharedMemory makes the guest's memory one that other processes can map:
	// device models that run outside of QEMU (vfio-user) need it.
	SharedMemory bool

	// VFIOUser lists sockets of device models (vfio-user servers, such as
	// package testbed/connectx/vfiouser makes) that are in the machine from the
	// start: vfio0, vfio1, ..., each behind a root port of its own. AddVFIOUser
	// adds others while the guest runs. They imply SharedMemory.
	VFIOUser []string

	// ICount makes the guest's clock count instructions, one nanosecond each,
	// on one CPU: figures of single-threaded programs become repeatable.
	ICount bool

	// Root mounts a small Debian with the C RDMA programs, read-only, and
	// runs commands in it. /run, /tmp and /dev/shm are writable.
	Root bool

	// Share is a directory of the host that the guest sees, and may change,
	// at /share.
	Share string

	// RXE makes the soft-RoCE device rxe0 on a dummy network device d0 with
	// the address 10.9.0.1/24.
	RXE bool

	Modules []string // kernel modules beyond the usual ones
	NICs    []NIC    // network devices: eth0, eth1, ...

	// Init is a static program that is the first process, in an initramfs
	// that holds nothing else but kernel modules. Such a guest runs no
	// commands: it ends by itself, see Guest.Wait.
	Init     string
	InitArgs []string // arguments of Init

	KernelArgs []string // added to the kernel's command line
	QEMUArgs   []string // added to QEMU's arguments

	Console io.Writer // gets the serial console as it comes; may be nil

	// BootTimeout bounds the time until the guest runs commands; 3 minutes if
	// zero. HangTimeout bounds the time for which a guest may show no sign of
	// life; 45 seconds if zero.
	BootTimeout time.Duration
	HangTimeout time.Duration

	// Logf is told what is worth knowing but no error, such as that KVM was
	// asked for and does not work. Standard error if nil.
	Logf func(format string, args ...any)

	kvm bool
}

// Parts lists the parts of the bed that a guest of this kind needs.
func (c Config) Parts() ([]bed.Part, error) {
	kernel, err := bed.KernelPart(c.Kernel, c.Arch)
	if err != nil {
		return nil, err
	}
	parts := []bed.Part{bed.QEMU, kernel}
	if c.Root {
		parts = append(parts, bed.Root)
	}
	return parts, nil
}

// withDefaults fills in what was left open, and refuses what cannot be.
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
		return c, fmt.Errorf("vm: %d VFIOUser devices, more than the %d that there are slots for", len(c.VFIOUser), maxVFIOUser)
	case c.Root && c.Arch != "amd64":
		return c, fmt.Errorf("vm: the Debian root is amd64: a guest of architecture %s runs static programs only", c.Arch)
	case c.Init != "" && (c.Root || c.RXE || c.Share != ""):
		return c, fmt.Errorf("vm: Root, RXE and Share are the work of the bed's own first process: they do not go with Init")
	}
	return c, nil
}

func orInt(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}

// moduleRule is a module that guests load where their kernel has it.
type moduleRule struct {
	name   string
	absent []string // the kernels that do without, for a reason
}

// usualModules are what every guest loads. A module that a kernel lacks is an
// error unless it is listed as absent here.
var usualModules = []moduleRule{
	{name: "virtio_pci"},
	{name: "virtio_console"}, // the port to the host
	{name: "9pnet_virtio"},
	{name: "9p"},
}

// testModules are what guests with the bed's own first process load as well.
var testModules = []moduleRule{
	// rxe asks for "crc32" through the crypto API, which is no dependency that
	// depmod sees: without it `rdma link add` fails with ENOENT. Kernel 7.2
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

// modules resolves all modules of the guest, in loading order.
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
	return tree.Resolve(append(names, c.Modules...)...)
}

// environment is what commands of the guest find in their environment.
func (c Config) environment() []string {
	env := []string{
		"PATH=" + wire.DefaultPath, "HOME=/root", "LANG=C.UTF-8", "TERM=dumb",
		"GOVERBS_KERNEL=" + c.Kernel,
	}
	if c.RXE {
		env = append(env, "GOVERBS_DEVICE="+wire.DefaultRXE)
	}
	return env
}
