//go:build device

package uverbs_test

import (
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

// ordinaryUser makes a child process run without root's rights.
func ordinaryUser() *syscall.SysProcAttr {
	const nobody = 65534
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// setLink sets a network interface up or down.
func setLink(t *testing.T, name string, up bool) {
	t.Helper()
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	ifr := must(unix.NewIfreq(name))(t)
	check(t, unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr))
	flags := ifr.Uint16() &^ unix.IFF_UP
	if up {
		flags |= unix.IFF_UP
	}
	ifr.SetUint16(flags)
	check(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
}

// setMTU changes the MTU of a network interface and returns what it was.
func setMTU(t *testing.T, name string, mtu int) (was int) {
	t.Helper()
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	ifr := must(unix.NewIfreq(name))(t)
	check(t, unix.IoctlIfreq(fd, unix.SIOCGIFMTU, ifr))
	was = int(ifr.Uint32())
	ifr.SetUint32(uint32(mtu))
	check(t, unix.IoctlIfreq(fd, unix.SIOCSIFMTU, ifr))
	return was
}
