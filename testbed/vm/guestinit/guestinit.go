// Package guestinit has the functions that the first process of a guest needs:
// mounts, kernel modules, power-off. The test bed's agent uses
// it, and so can any static binary that is the only content of an initramfs.
//
// A minimal first process:
//
//	func main() {
//		if os.Getpid() == 1 {
//			if err := guestinit.Start(); err != nil {
//				guestinit.Fatal(err)
//			}
//			defer guestinit.PowerOff()
//		}
//		...
//	}
package guestinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/internal/sim/rtnetlink"
	"golang.org/x/sys/unix"
)

// ModuleDir is the directory of kernel modules in the initramfs: NAME.ko files,
// and a file ModuleList with their names in loading order.
const (
	ModuleDir  = "/modules"
	ModuleList = "load"
)

// Start prepares a bare initramfs for programs: it mounts the kernel's file
// systems, loads the modules of the initramfs, and brings the loopback device
// up.
func Start() error {
	if err := Mount(); err != nil {
		return err
	}
	if err := LoadModules(); err != nil {
		return err
	}
	return rtnetlink.LinkUp("lo")
}

// A mount is a file system of every guest.
type mount struct {
	source, target, fstype, data string
	flags                        uintptr
	optional                     bool // not in all kernels
}

var mounts = []mount{
	{source: "proc", target: "/proc", fstype: "proc"},
	{source: "sysfs", target: "/sys", fstype: "sysfs"},
	{source: "devtmpfs", target: "/dev", fstype: "devtmpfs", data: "mode=0755"},
	{source: "devpts", target: "/dev/pts", fstype: "devpts", data: "mode=0620,ptmxmode=0666,gid=5"},
	{source: "tmpfs", target: "/dev/shm", fstype: "tmpfs", data: "mode=1777"},
	{source: "tmpfs", target: "/run", fstype: "tmpfs", data: "mode=0755"},
	{source: "tmpfs", target: "/tmp", fstype: "tmpfs", data: "mode=1777"},
	{source: "debugfs", target: "/sys/kernel/debug", fstype: "debugfs", optional: true},
	{source: "tracefs", target: "/sys/kernel/tracing", fstype: "tracefs", optional: true},
	{source: "cgroup2", target: "/sys/fs/cgroup", fstype: "cgroup2", optional: true},
}

// Mount mounts the kernel's file systems and the temporary ones.
func Mount() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil && !m.optional {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
		err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data)
		if m.optional && (errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("mounting %s (%s): %w", m.target, m.fstype, err)
		}
	}
	return nil
}

// Mount9P mounts a directory that the host shares under a tag. With loose
// caching the guest assumes that only it changes the directory; without, it
// asks the host each time.
func Mount9P(tag, target string, readOnly, loose bool) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	data := "trans=virtio,version=9p2000.L,msize=524288,access=any"
	if loose {
		data += ",cache=loose"
	}
	var flags uintptr
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount(tag, target, "9p", flags, data); err != nil {
		return fmt.Errorf("mounting the host's directory %q on %s: %w", tag, target, err)
	}
	return nil
}

// Bind bind-mounts directories of this root, recursively, at the same paths
// under another root.
func Bind(root string, targets ...string) error {
	for _, t := range targets {
		if err := unix.Mount(t, filepath.Join(root, t), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("binding %s under %s: %w", t, root, err)
		}
	}
	return nil
}

// LoadModules loads the modules of the initramfs.
func LoadModules() error {
	list, err := os.ReadFile(filepath.Join(ModuleDir, ModuleList))
	if errors.Is(err, os.ErrNotExist) {
		return nil // all modules are built in
	}
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(list)) {
		if err := LoadModule(filepath.Join(ModuleDir, name+".ko"), ""); err != nil {
			return err
		}
	}
	return nil
}

// LoadModule loads a module from a file (.ko, or .ko.xz if the kernel can
// decompress it) with parameters as on modprobe's command line. It returns nil
// if the module is already loaded.
func LoadModule(path, params string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("loading a kernel module: %w", err)
	}
	defer f.Close()
	flags := 0
	if strings.HasSuffix(path, ".xz") {
		flags = unix.MODULE_INIT_COMPRESSED_FILE
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var loadErr error
	if err := raw.Control(func(fd uintptr) { loadErr = unix.FinitModule(int(fd), params, flags) }); err != nil {
		return err
	}
	if loadErr != nil && !errors.Is(loadErr, unix.EEXIST) {
		return fmt.Errorf("loading kernel module %s: %w", filepath.Base(path), loadErr)
	}
	return nil
}

// PowerOff powers the guest off, after the console has been written. It does
// not return.
func PowerOff() {
	unix.Sync()
	// Like tcdrain(3): the serial console is slow, and output that was not
	// written at power-off is lost. If standard output is not a terminal this
	// does nothing.
	_ = unix.IoctlSetInt(unix.Stdout, unix.TCSBRK, 1)
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	panic(fmt.Sprintf("guestinit: power-off: %v", err)) // a panic of process 1 also ends the guest
}

// Fatal prints an error on the console and ends the guest by a kernel panic, so
// that Guest.Wait returns an error.
func Fatal(err error) {
	fmt.Fprintf(os.Stderr, "guestinit: fatal: %v\n", err)
	os.Exit(1)
}
