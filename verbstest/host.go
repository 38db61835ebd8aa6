package verbstest

import (
	"math/bits"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
	"github.com/goverbs/goverbs/internal/uapi"
)

const (
	deviceName = "mlx5_0"
	nodeName   = "uverbs0"
	// The network interface exists in the GID table only. No interface of a real machine has its
	// name or index, so that a program that changes the interface of its device cannot change one.
	netdev   = "verbstest0"
	netIndex = 1<<31 - 1
)

// host implements rdmacm.Machine: it is the machine as the library sees it.
type host struct{ m *Machine }

func (h *host) Devices() ([]nldev.Device, error) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if h.m.removed {
		return nil, nil
	}
	return []nldev.Device{{
		Index:     h.m.device,
		Name:      deviceName,
		NodeGUID:  bits.ReverseBytes64(h.m.guid()),
		NodeType:  1,
		Ports:     1,
		FWVersion: "22.43.2026",
		Char:      &nldev.CharDev{Name: nodeName, ABI: 1, Major: 231, Minor: h.m.device, DriverID: uapi.RDMA_DRIVER_MLX5},
	}}, nil
}

// registerPages is the size of the file whose pages are the device's registers, in pages.
const registerPages = ioctltest.FirstUAR + ioctltest.UARPages

func (h *host) OpenDevice(name string) (*ioctl.Device, error) {
	if name != deviceName {
		return nil, unix.ENOENT
	}
	fd, err := unix.MemfdCreate(nodeName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
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
	f, err := h.m.open()
	if err == nil {
		err = f.mapDeviceMemory(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return ioctl.NewFake(fd, nodeName, uapi.RDMA_DRIVER_MLX5, f), nil
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
	if device != deviceName || port != 1 {
		return nil, unix.ENOENT
	}
	return []uint16{0xffff}, nil
}

func (h *host) InterfaceNames(indexes []int) (map[int]string, error) {
	names := map[int]string{}
	for _, i := range indexes {
		if i == netIndex {
			names[i] = netdev
		}
	}
	return names, nil
}

func (h *host) InterfaceIndex(name string) (int, error) {
	if name != netdev {
		return 0, unix.ENODEV
	}
	return netIndex, nil
}

func (h *host) InterfaceAddrs() ([]net.Addr, error) {
	loopback := &net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(8, 32)}
	loopback6 := &net.IPNet{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)}
	return append([]net.Addr{loopback, loopback6}, h.m.interfaceAddrs()...), nil
}
