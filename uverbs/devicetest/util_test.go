package devicetest

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
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

// asUser runs the test in a process without root's rights. It returns true in that process. In
// the parent it returns false after that process has ended.
func asUser(t *testing.T) bool {
	t.Helper()
	deviceName(t)
	const mark = "GOVERBS_TEST_AS_USER"
	if os.Getenv(mark) == "1" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.SysProcAttr = ordinaryUser()
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil && strings.Contains(string(out), "--- SKIP"): // the child has checked that the skip is expected
		t.Skipf("as an ordinary user:\n%s", out)
	case err != nil || !strings.Contains(string(out), "--- PASS"):
		t.Fatalf("as an ordinary user: %v\n%s", err, out)
	}
	return false
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
