// Package agent implements the first process of a guest: it sets up the guest,
// and then runs commands for the host.
package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/rtnetlink"
	"github.com/goverbs/goverbs/testbed/vm/guestinit"
	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// Main runs the agent. It returns only to power off the guest.
func Main() {
	if len(os.Args) > 1 && os.Args[0] == helperName {
		guestinit.Fatal(helper(os.Args[1]))
	}
	if len(os.Args) == 2 && os.Args[1] == "dmesg" && os.Getpid() != 1 {
		if err := dmesg(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest-agent: must be started by a guest's kernel")
		os.Exit(2)
	}
	if err := run(); err != nil {
		guestinit.Fatal(err)
	}
	guestinit.PowerOff()
}

// run sets up the guest and serves the host until it powers off the guest.
func run() error {
	config, err := readConfig()
	if err != nil {
		return err
	}
	if err := setUp(config); err != nil {
		return err
	}
	port, err := openPort(wire.PortName, 20*time.Second)
	if err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	s := newServer(port, config, guestinit.NewReaper())
	hello := wire.HelloReport{Version: wire.Version, Release: unix.ByteSliceToString(name.Release[:]),
		Uptime: time.Duration(now.Nano())}
	if err := s.send(wire.Hello, 0, hello); err != nil {
		return err
	}
	return s.serve(port)
}

func readConfig() (wire.GuestConfig, error) {
	var c wire.GuestConfig
	text, err := os.ReadFile(wire.ConfigFile)
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(text, &c)
}

// setUp mounts file systems, loads the modules and creates the devices.
func setUp(c wire.GuestConfig) error {
	if err := guestinit.Start(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("guest")); err != nil {
		return err
	}
	if err := guestinit.Mount9P(wire.FilesTag, wire.FilesDir, true, true); err != nil {
		return err
	}
	shown := []string{"/proc", "/sys", "/dev", "/run", "/tmp", wire.FilesDir}
	if c.Share {
		if err := guestinit.Mount9P(wire.ShareTag, wire.ShareDir, false, false); err != nil {
			return err
		}
		shown = append(shown, wire.ShareDir)
	}
	if c.Preload { // before /run is bound
		if err := guestinit.Mount9P(wire.PreloadTag, wire.PreloadDir, true, true); err != nil {
			return err
		}
	}
	if c.Fabric {
		if err := guestinit.Mount9P(wire.FabricTag, wire.FabricDir, true, true); err != nil {
			return err
		}
	}
	if c.Root {
		if err := guestinit.Mount9P(wire.RootTag, wire.RootDir, true, true); err != nil {
			return err
		}
		if err := guestinit.Bind(wire.RootDir, shown...); err != nil {
			return err
		}
	}
	link, kind := wire.DefaultRXE, "rxe"
	switch {
	case c.SIW:
		link, kind = wire.DefaultSIW, "siw"
	case !c.RXE:
		return nil
	}
	if err := rtnetlink.AddDummy(wire.DummyDev); err != nil {
		return err
	}
	if err := rtnetlink.AddAddress(wire.DummyDev, netip.MustParsePrefix(wire.DummyAddr)); err != nil {
		return err
	}
	return nldev.AddLink(link, kind, wire.DummyDev)
}

// openPort opens the virtio-serial port with a name. The driver detects its
// ports, and the host's connection, some time after it was loaded.
func openPort(name string, patience time.Duration) (*os.File, error) {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		dev, err := findPort(name)
		if err != nil {
			return nil, err
		}
		if dev != "" {
			return connectedPort(dev, deadline)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil, fmt.Errorf("no virtio-serial port %q appeared within %v: is virtio_console loaded?", name, patience)
}

func findPort(name string) (string, error) {
	files, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		got, err := os.ReadFile(f)
		if err == nil && string(bytes.TrimSpace(got)) == name {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(f))), nil
		}
	}
	return "", nil
}

// connectedPort opens a port when the host has connected. Before that, a read
// would return EOF.
func connectedPort(dev string, deadline time.Time) (*os.File, error) {
	fd, err := unix.Open(dev, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dev, err)
	}
	for time.Now().Before(deadline) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if _, err := unix.Poll(poll, 0); err != nil && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, unix.Close(fd))
		}
		if poll[0].Revents&unix.POLLHUP == 0 {
			return os.NewFile(uintptr(fd), dev), nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("%s: the host is not connected", dev), unix.Close(fd))
}

// lookPath finds a program as execvp does, below a root.
func lookPath(root, name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // ForkExec reports the error
	}
	path := wire.DefaultPath
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	for dir := range strings.SplitSeq(path, ":") {
		file := filepath.Join(dir, name)
		// Do not follow links: an absolute link means a path below root.
		if info, err := os.Lstat(filepath.Join(root, file)); err == nil && !info.IsDir() {
			return file, nil
		}
	}
	return "", &os.PathError{Op: "exec", Path: name, Err: syscall.ENOENT}
}

// eof reports whether the error of a read means that all writers have closed.
// For a terminal it is EIO, for a file closed meanwhile ErrClosed.
func eof(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.EIO) || errors.Is(err, os.ErrClosed)
}
