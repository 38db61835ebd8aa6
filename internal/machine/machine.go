// Package machine is the machine that the library runs on: its RDMA devices, its nodes and its network
// interfaces. This is the real machine, unless package verbstest has put machines in memory in its
// place.
package machine

import (
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/nldev"
)

// A Machine replaces the real machine. Its methods return the errors of the functions of this
// package with the same name.
type Machine interface {
	Devices() ([]nldev.Device, error)
	// OpenDevice opens the node of a device. It returns an errno as open(2) does.
	OpenDevice(name string) (*ioctl.Device, error)
	PKeys(device string, port uint32) ([]uint16, error)
	InterfaceNames(indexes []int) (map[int]string, error)
	InterfaceIndex(name string) (int, error)
	InterfaceAddrs() ([]net.Addr, error)
}

var current atomic.Pointer[func() Machine]

// Replace installs a function that returns the machine of the calling goroutine, or nil for the
// real machine. Replace(nil) removes it.
func Replace(f func() Machine) {
	if f == nil {
		current.Store(nil)
		return
	}
	current.Store(&f)
}

// Current returns the machine in memory that the calling goroutine runs on, or nil.
func Current() Machine {
	if f := current.Load(); f != nil {
		return (*f)()
	}
	return nil
}

// Devices returns the RDMA devices of the machine: see [nldev.Devices].
func Devices() ([]nldev.Device, error) {
	if m := Current(); m != nil {
		return m.Devices()
	}
	return nldev.Devices()
}

// PKeys returns the P_Key table of a port of a device of m, or of the real machine if m is nil: see
// [nldev.PKeys].
func PKeys(m Machine, device string, port uint32) ([]uint16, error) {
	if m != nil {
		return m.PKeys(device, port)
	}
	return nldev.PKeys(device, port)
}

// NUMANode returns the NUMA node of a device of the current machine, or -1: see [nldev.NUMANode].
func NUMANode(device string) int {
	switch m := Current().(type) {
	case nil:
		return nldev.NUMANode(device)
	case interface{ NUMANode(device string) int }:
		return m.NUMANode(device)
	}
	return -1
}

// InterfaceNames returns the names of network interfaces of m, or of the real machine if m is nil, by
// index: see [nldev.NetdevNames].
func InterfaceNames(m Machine, indexes []int) (map[int]string, error) {
	if m != nil {
		return m.InterfaceNames(indexes)
	}
	return nldev.NetdevNames(indexes)
}

// InterfaceIndex returns the index of a network interface: see [net.InterfaceByName].
func InterfaceIndex(name string) (int, error) {
	if m := Current(); m != nil {
		return m.InterfaceIndex(name)
	}
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return 0, err
	}
	return ifi.Index, nil
}

// InterfaceName returns the name of a network interface: see [net.InterfaceByIndex].
func InterfaceName(index int) (string, error) {
	if m := Current(); m != nil {
		names, err := m.InterfaceNames([]int{index})
		if err == nil && names[index] == "" {
			err = unix.ENODEV
		}
		return names[index], err
	}
	ifi, err := net.InterfaceByIndex(index)
	if err != nil {
		return "", err
	}
	return ifi.Name, nil
}

// InterfaceAddrs returns the addresses of the network interfaces: see [net.InterfaceAddrs].
func InterfaceAddrs() ([]net.Addr, error) {
	if m := Current(); m != nil {
		return m.InterfaceAddrs()
	}
	return net.InterfaceAddrs()
}
