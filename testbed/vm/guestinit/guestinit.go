// Package guestinit is what a Go program needs to be the first process of a
// guest: mounts, kernel modules, network devices, power-off. The test bed's
// agent is built on it, and so may be any static binary that is to be the only
// content of an initramfs.
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

	"golang.org/x/sys/unix"
)

// ModuleDir is where the initramfs holds kernel modules: NAME.ko files, and a
// file ModuleList with their names in the order in which they can be loaded.
const (
	ModuleDir  = "/modules"
	ModuleList = "load"
)

// Start makes a bare initramfs into a place where programs can run: it mounts
// the kernel's file systems, loads the modules that the initramfs holds, and
// brings the loopback device up.
func Start() error {
	if err := Mount(); err != nil {
		return err
	}
	if err := LoadModules(); err != nil {
		return err
	}
	return LinkUp("lo")
}

// A mount is one of the file systems that every guest has.
type mount struct {
	source, target, fstype, data string
	flags                        uintptr
	optional                     bool // some kernels are built without
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

// Mount mounts the kernel's own file systems and the temporary ones.
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
// caching the guest takes for granted that nobody else changes the directory;
// without, it asks the host each time.
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

// Bind makes the mounts of this root, each with those below it, visible at the
// same place under another root.
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
		return nil // everything is built in
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

// LoadModule loads one module from a file (.ko, or .ko.xz where the kernel can
// decompress it) with parameters as on modprobe's command line. A module that
// is loaded already is not an error.
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

// PowerOff ends the guest, when the console has shown what was written to it.
// It does not return.
func PowerOff() {
	unix.Sync()
	// Like tcdrain(3): the console's line is slow, and what it has not shown when
	// the power goes is lost. Where standard output is no terminal nothing waits.
	_ = unix.IoctlSetInt(unix.Stdout, unix.TCSBRK, 1)
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	panic(fmt.Sprintf("guestinit: power-off: %v", err)) // a panic of process 1 ends the guest, too
}

// Fatal reports an error on the console and ends the guest by a kernel panic,
// so that whoever waits for the guest sees that it failed.
func Fatal(err error) {
	fmt.Fprintf(os.Stderr, "guestinit: fatal: %v\n", err)
	os.Exit(1)
}
