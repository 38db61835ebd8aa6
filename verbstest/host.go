package verbstest

import (
	"math/bits"
	"net"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
	"github.com/goverbs/goverbs/internal/uapi"
)

const (
	// The network interfaces exist in the GID tables only. No interface of a real machine has their
	// names or indices, so that a program that changes the interface of its device cannot change one.
	netdev    = "verbstest" // with the number of the device
	lastIndex = 1<<31 - 1   // of the first device; the next one has one less
)

func (m *Machine) netIndex() uint32 { return uint32(lastIndex - m.index) }
func (m *Machine) netdev() string   { return netdev + strconv.Itoa(m.index) }
func (m *Machine) node() string     { return "uverbs" + strconv.Itoa(m.index) }

// host implements rdmacm.Machine: it is the machine as the library sees it.
type host struct{ m *Machine }

func (h *host) Devices() (devices []nldev.Device, err error) {
	for _, m := range h.m.all() {
		m.mu.Lock()
		if !m.removed {
			devices = append(devices, nldev.Device{
				Index:     m.device,
				Name:      m.Device(),
				NodeGUID:  bits.ReverseBytes64(m.guid()),
				NodeType:  1,
				Ports:     1,
				FWVersion: "22.43.2026",
				Char:      &nldev.CharDev{Name: m.node(), ABI: 1, Major: 231, Minor: m.device, DriverID: uapi.RDMA_DRIVER_MLX5},
			})
		}
		m.mu.Unlock()
	}
	return devices, nil
}

// NUMANode implements what package machine looks for: the NUMA node of a device, or -1.
func (h *host) NUMANode(device string) int {
	m := h.named(device)
	if m == nil {
		return -1
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.numa
}

// named returns the device with a name, or nil.
func (h *host) named(device string) *Machine {
	for _, m := range h.m.all() {
		if m.Device() == device {
			return m
		}
	}
	return nil
}

// registerPages is the size of the file whose pages are the device's registers, in pages.
const registerPages = ioctltest.FirstUAR + ioctltest.UARPages

func (h *host) OpenDevice(name string) (*ioctl.Device, error) {
	m := h.named(name)
	if m == nil {
		return nil, unix.ENOENT
	}
	fd, err := unix.MemfdCreate(m.node(), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	clock := (uapi.MLX5_IB_MMAP_CLOCK_INFO<<8 + 1) * unix.Getpagesize()
	end := int(deviceMemoryStart()) + deviceMemory
	if err := unix.Ftruncate(fd, int64(max(registerPages*unix.Getpagesize(), clock, end))); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	// A program in another process may have the descriptor, but cannot make the file shorter.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	f, err := m.open()
	if err == nil {
		err = f.mapDeviceMemory(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return ioctl.NewFake(fd, m.node(), uapi.RDMA_DRIVER_MLX5, f), nil
}

// open returns the kernel's part of a new file. It fails if the device has been removed.
func (m *Machine) open() (*file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removed {
		return nil, unix.ENXIO
	}
	core := ioctltest.NewKernel(uapi.RDMA_DRIVER_MLX5)
	core.GIDs = slices.Clone(m.gids)
	core.UARBase = uint32(len(m.files)) * registerPages
	d := &core.Device
	d.NodeGuid, d.SysImageGuid = m.guid(), m.guid()
	d.MaxAh = deviceObjects
	d.MaxQpWr, d.MaxSrqWr, d.MaxCqe, d.MaxSge, d.MaxSrqSge = 1<<15, 1<<15-1, 1<<22-1, 30, 31
	d.MaxMcastGrp, d.MaxMcastQpAttach, d.MaxTotalMcastQpAttach = 1<<10, 1<<8, 1<<18
	d.VendorId, d.VendorPartId = 0x15b3, 4125
	m.describePort(core)
	setState(core, !m.portDown)
	core.Fail = m.fail
	core.Name, core.Caller = "verbstest: "+m.name+": ", caller
	f := &file{m.adapter.NewKernel(core), m, core}
	f.describe()
	f.setNumbers(m.limits)
	m.files = append(m.files, f)
	return f, nil
}

func (h *host) OpenCM() (*rdmacm.File, error) { return h.m.net.cm.Open() }

// OpenForeignCM opens the connection manager for a program in another process.
func (h *host) OpenForeignCM() (*rdmacmtest.Foreign, error) { return h.m.net.cm.OpenForeign() }

func (h *host) PKeys(device string, port uint32) ([]uint16, error) {
	if h.named(device) == nil || port != 1 {
		return nil, unix.ENOENT
	}
	return []uint16{0xffff}, nil
}

func (h *host) InterfaceNames(indexes []int) (map[int]string, error) {
	names := map[int]string{}
	for _, m := range h.m.all() {
		if i := int(m.netIndex()); slices.Contains(indexes, i) {
			names[i] = m.netdev()
		}
	}
	return names, nil
}

func (h *host) InterfaceIndex(name string) (int, error) {
	for _, m := range h.m.all() {
		if m.netdev() == name {
			return int(m.netIndex()), nil
		}
	}
	return 0, unix.ENODEV
}

func (h *host) InterfaceAddrs() ([]net.Addr, error) {
	loopback := &net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(8, 32)}
	loopback6 := &net.IPNet{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)}
	addrs := []net.Addr{loopback, loopback6}
	for _, m := range h.m.all() {
		addrs = append(addrs, m.interfaceAddrs()...)
	}
	return addrs, nil
}
