package nldev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// NetdevNames returns the names of network interfaces by index. An index that does not exist in
// this network namespace is not in the result.
//
// It uses SIOCGIFNAME, which needs no netlink and works on a socket of any family. If it cannot
// open a socket, it reads /sys/class/net.
func NetdevNames(indexes []int) (map[int]string, error) {
	names, err := namesByIoctl(indexes)
	if err == nil {
		return names, nil
	}
	names, sysErr := kernel.sys.NetdevNames(indexes)
	if sysErr != nil {
		return nil, errors.Join(err, sysErr)
	}
	return names, nil
}

// families are the socket families to try for SIOCGIFNAME. A sandbox may forbid some.
var families = []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}

func namesByIoctl(indexes []int) (map[int]string, error) {
	fd, err := anySocket()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	names := make(map[int]string, len(indexes))
	for _, index := range indexes {
		req, err := unix.NewIfreq("")
		if err != nil {
			return nil, err
		}
		req.SetUint32(uint32(index))
		switch err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, req); {
		case err == nil:
			names[index] = req.Name()
		case !errors.Is(err, unix.ENODEV):
			return nil, os.NewSyscallError("ioctl SIOCGIFNAME", err)
		}
	}
	return names, nil
}

func anySocket() (fd int, err error) {
	for _, family := range families {
		if fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
			return fd, nil
		}
	}
	return -1, os.NewSyscallError("socket", err)
}

// NetdevNames is the function NetdevNames for this root.
func (s Sysfs) NetdevNames(indexes []int) (map[int]string, error) {
	list, err := os.ReadDir(s.path("class", "net"))
	if err != nil {
		return nil, err
	}
	names := make(map[int]string, len(indexes))
	for _, e := range list {
		text, err := s.read("class", "net", e.Name(), "ifindex")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue // removed since, or bonding_masters, which is a file
		}
		if err != nil {
			return nil, err
		}
		index, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("sysfs: ifindex of %s: %w", e.Name(), err)
		}
		if slices.Contains(indexes, index) {
			names[index] = e.Name()
		}
	}
	return names, nil
}
