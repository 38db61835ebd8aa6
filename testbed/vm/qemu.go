package vm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm/bed"
	"github.com/goverbs/goverbs/testbed/vm/internal/tsc"
	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// A commandLine collects QEMU's arguments and the files that it inherits.
type commandLine struct {
	args      []string
	files     []*os.File // descriptors 3 and up of QEMU
	localEnds []*os.File // our ends
}

func (q *commandLine) add(args ...string) { q.args = append(q.args, args...) }

// inherit passes a file to QEMU and returns its descriptor there.
func (q *commandLine) inherit(f *os.File) int {
	q.files = append(q.files, f)
	return 2 + len(q.files)
}

// chardev adds a character device that is a socket to this process.
func (q *commandLine) chardev(id string) (*os.File, error) {
	ours, theirs, err := socketPair(unix.SOCK_STREAM, id)
	if err != nil {
		return nil, err
	}
	q.localEnds = append(q.localEnds, ours)
	q.add("-chardev", fmt.Sprintf("socket,id=%s,fd=%d", id, q.inherit(theirs)))
	return ours, nil
}

// share adds a directory that the guest can mount.
func (q *commandLine) share(tag, path string, readOnly bool) {
	fs := fmt.Sprintf("local,id=fs-%s,path=%s,security_model=none,multidevs=remap", tag, escape(path))
	if readOnly {
		fs += ",readonly=on"
	}
	q.add("-fsdev", fs, "-device", fmt.Sprintf("virtio-9p-pci,fsdev=fs-%s,mount_tag=%s", tag, tag))
}

// escape doubles commas, as required by QEMU's option syntax.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// close closes QEMU's ends, which it has inherited.
func (q *commandLine) close() error {
	var err error
	for _, f := range q.files {
		err = errors.Join(err, f.Close())
	}
	q.files = nil
	return err
}

// abandon closes both ends.
func (q *commandLine) abandon() error {
	err := q.close()
	for _, f := range q.localEnds {
		err = errors.Join(err, f.Close())
	}
	return err
}

// machine adds the arguments of the machine itself.
func (q *commandLine) machine(c Config, kernel bed.KernelImage, initramfs string) {
	q.add("-nodefaults", "-no-user-config", "-nic", "none", "-no-reboot", "-display", "none",
		"-m", strconv.Itoa(c.MemoryMB), "-smp", strconv.Itoa(c.CPUs),
		"-kernel", kernel.Image, "-initrd", initramfs, "-append", strings.Join(c.kernelArgs(), " "))
	cpu := emulatedCPU
	switch c.Arch {
	case "arm64":
		cpu = "max,pauth-impdef=on" // the architected algorithm is slow to emulate
		q.add("-machine", "virt,gic-version=3")
	default:
		q.add("-machine", "q35,hpet=off")
		// Slots for hot-plugged devices (DeviceAdd).
		for i := range hotplugSlots {
			q.rootPort(c, hotplugBus(i), i+1)
		}
	}
	if c.SharedMemory {
		q.add("-object", fmt.Sprintf("memory-backend-memfd,id=memory,size=%dM,share=on", c.MemoryMB),
			"-machine", "memory-backend=memory")
	}
	switch {
	case c.kvm:
		q.add("-accel", "kvm", "-cpu", "host")
	case c.ICount:
		q.add("-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", cpu)
	default:
		q.add("-accel", "tcg,thread=multi", "-cpu", cpu)
	}
}

// emulatedCPU is the amd64 processor without the features that are most
// expensive to emulate: "fast" string instructions, which are emulated byte by
// byte and which kernel and libraries would use for every copy, and protections
// of the kernel against programs. This halves the time of a 64 KiB message.
const emulatedCPU = "max,-erms,-fsrm,-fsrs,-fzrm,-smap,-smep,-pku,-pcid,-la57"

// hotplugSlots is how many devices can be added to a running guest.
const hotplugSlots = 4

func hotplugBus(i int) string { return fmt.Sprintf("slot%d", i) }

// kernelArgs returns the kernel's command line: fast, quiet, and every bug is a
// panic.
func (c Config) kernelArgs() []string {
	tty := "ttyS0"
	if c.Arch == "arm64" {
		tty = "ttyAMA0"
	}
	args := []string{
		"console=" + tty, "quiet", "panic=-1", "oops=panic", "softlockup_panic=1", "watchdog_thresh=30",
		"mitigations=off", "rcupdate.rcu_expedited=1", "random.trust_cpu=on", "cryptomgr.notests=1", "rdinit=/init",
	}
	if c.Arch == "amd64" {
		args = append(append(args, c.tscArgs()...), "no_timer_check", "i8042.noaux=1", "i8042.nokbd=1")
	}
	if c.SharedMemory && c.Arch == "amd64" {
		// The firmware puts large BARs where the memory map of QEMU with an
		// emulated AMD CPU has no entry: a device that is added or rescanned
		// later would get no addresses there.
		args = append(args, "pci=no_e820")
	}
	args = append(args, c.KernelArgs...)
	if len(c.InitArgs) > 0 {
		args = append(append(args, "--"), c.InitArgs...)
	}
	return args
}

// tscArgs returns the arguments for the clock. An emulated guest's TSC is the
// host's. By default the kernel calibrates it against a timer, which it polls.
// On a busy host QEMU's thread may lose its CPU meanwhile. If that happens
// between the start of the timer and the first read of the TSC, the clock runs
// about ten times too fast permanently; if the timer wraps meanwhile, hundreds
// of times too slow. With ICount the TSC counts instructions, and with KVM the
// kernel has another clock.
func (c Config) tscArgs() []string {
	args := []string{"tsc=reliable"}
	if khz := tsc.KHz(); khz > 0 && !c.kvm && !c.ICount {
		args = append(args, "tsc_early_khz="+strconv.Itoa(khz))
	}
	return args
}

// agentPort adds the agent's port, and the directories that the agent mounts.
func (q *commandLine) agentPort(c Config, b *bed.Bed, files string) (*os.File, error) {
	port, err := q.chardev("agent")
	if err != nil {
		return nil, err
	}
	q.add("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name="+wire.PortName)
	q.share(wire.FilesTag, files, true)
	if c.Share != "" {
		q.share(wire.ShareTag, c.Share, false)
	}
	if c.Root {
		root, err := b.Tree(c.root())
		if err != nil {
			return nil, err
		}
		q.share(wire.RootTag, root, true)
	}
	if c.Preload {
		tree, err := b.Tree(bed.Preload)
		if err != nil {
			return nil, err
		}
		q.share(wire.PreloadTag, tree, true)
	}
	if c.Fabric {
		tree, err := b.Tree(bed.Fabric)
		if err != nil {
			return nil, err
		}
		q.share(wire.FabricTag, tree, true)
	}
	return port, nil
}
