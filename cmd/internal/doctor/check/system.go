package check

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/uverbs"
)

// A System is what the checks examine: files, and the kernel's replies to system calls.
type System struct {
	Root   string // of /sys, /proc and /dev: "/" except in tests
	Kernel Kernel
}

// A Kernel makes the system calls.
type Kernel interface {
	// Devices returns the RDMA devices of this network namespace.
	Devices() ([]nldev.Device, error)
	// ConnectionManager returns the node of the connection manager. Like Devices, it makes the kernel load the module
	// of the node, as programs do.
	ConnectionManager() (nldev.CharDev, error)
	// SharedDevices reports whether network namespaces share the RDMA devices.
	SharedDevices() (bool, error)
	// FailedGSI returns the ports of a device whose QP for messages of the connection manager is in state ERR.
	FailedGSI(device string) (ports []uint32, err error)
	// FlowControl returns the priorities for which a network interface has priority flow control, one bit each.
	FlowControl(netdev string) (uint8, error)
	// OpenNode opens a file for reading and writing, and closes it.
	OpenNode(path string) error
	// Limit returns the soft limit of a resource, one of unix.RLIMIT_*.
	Limit(resource int) (uint64, error)
	// Addresses returns the addresses of the network interfaces by their names.
	Addresses() (map[string][]netip.Addr, error)
	// Source returns the local address that the routing table selects for a peer.
	Source(peer netip.Addr) (netip.Addr, error)
	// Bind returns the RDMA device that connections by a local address use: that to which the connection manager binds
	// the address.
	Bind(local netip.Addr) (device string, err error)
	// Try opens a device and creates an object of each kind that programs need.
	Try(device string) error
}

// Host returns the machine that the program runs on.
func Host() *System { return &System{Root: "/", Kernel: host{}} }

// path returns the name of a file below the root.
func (s *System) path(elem ...string) string {
	return filepath.Join(append([]string{s.Root}, elem...)...)
}

// read returns the contents of a file without surrounding white space, or "" if it cannot be read.
func (s *System) read(elem ...string) string {
	b, err := os.ReadFile(s.path(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// number returns the number in a file, or -1.
func (s *System) number(elem ...string) int {
	n, err := strconv.Atoi(s.read(elem...))
	if err != nil {
		return -1
	}
	return n
}

// exists reports whether a file exists.
func (s *System) exists(elem ...string) bool {
	_, err := os.Stat(s.path(elem...))
	return err == nil
}

// list returns the names in a directory.
func (s *System) list(elem ...string) []string {
	entries, err := os.ReadDir(s.path(elem...))
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// host is the kernel of the machine that the program runs on.
type host struct{}

func (host) Devices() ([]nldev.Device, error) { return nldev.Devices() }

func (host) ConnectionManager() (nldev.CharDev, error) { return nldev.ClientCharDev("rdma_cm") }

func (host) SharedDevices() (bool, error) { return nldev.NetnsMode() }

func (host) FailedGSI(device string) ([]uint32, error) { return nldev.FailedGSI(device) }

func (host) FlowControl(netdev string) (uint8, error) { return nldev.FlowControl(netdev) }

func (host) OpenNode(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return unix.Close(fd)
}

func (host) Limit(resource int) (uint64, error) {
	var r unix.Rlimit
	err := unix.Getrlimit(resource, &r)
	return r.Cur, err
}

func (host) Addresses() (map[string][]netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	all := make(map[string][]netip.Addr)
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		all[i.Name] = []netip.Addr{}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				all[i.Name] = append(all[i.Name], p.Addr())
			}
		}
	}
	return all, nil
}

// Source connects a UDP socket, which sends nothing.
func (host) Source(peer netip.Addr) (netip.Addr, error) {
	var d net.Dialer
	c, err := d.DialContext(context.Background(), "udp", netip.AddrPortFrom(peer, 4791).String())
	if err != nil {
		return netip.Addr{}, err
	}
	addr := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	return addr, c.Close()
}

func (host) Bind(local netip.Addr) (device string, err error) {
	id, err := cm.NewID(cm.PSTCP)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, id.Close()) }()
	if err := id.Bind(netip.AddrPortFrom(local, 0)); err != nil {
		return "", err
	}
	if c := id.Verbs(); c != nil {
		device = c.Name()
	}
	return device, nil
}

func (host) Try(device string) (err error) {
	c, err := uverbs.Open(device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return try(c)
}

// try creates objects. Closing the context closes those that remain.
func try(c *uverbs.Context) (err error) {
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	mr, err := pd.Alloc(tryBytes, uverbs.LocalWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mr.Close()) }()
	cq, err := c.CreateCQ(uverbs.CQConfig{Entries: 16})
	if err != nil {
		return err
	}
	_, err = pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 8, MaxRecvWR: 8})
	return err
}

// tryBytes is how much memory Try registers.
const tryBytes = 64 << 10
