package devicetest

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/usertest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// asUser runs the test on the device in a process without root's rights: see usertest.Run.
func asUser(t *testing.T) bool {
	t.Helper()
	deviceName(t)
	return usertest.Run(t)
}

func second[T any](_ T, err error) error { return err }

// mustBeDevice fails the test if it runs in memory, where a name of a network interface can only
// belong to one of the host.
func mustBeDevice(t *testing.T) {
	t.Helper()
	if inMemory() {
		t.Fatal("the test changes a network interface: list it in notInMemory")
	}
}

// setLink sets a network interface up or down.
func setLink(t *testing.T, name string, up bool) {
	t.Helper()
	mustBeDevice(t)
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

// setMTU changes the MTU of a network interface and returns the previous one.
func setMTU(t *testing.T, name string, mtu int) (was int) {
	t.Helper()
	mustBeDevice(t)
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	ifr := must(unix.NewIfreq(name))(t)
	check(t, unix.IoctlIfreq(fd, unix.SIOCGIFMTU, ifr))
	was = int(ifr.Uint32())
	ifr.SetUint32(uint32(mtu))
	check(t, unix.IoctlIfreq(fd, unix.SIOCSIFMTU, ifr))
	return was
}
