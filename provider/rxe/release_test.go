package rxe

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// pretend sets the kernel's release until the test ends.
func pretend(t *testing.T, release string) {
	was := kernelRelease
	t.Cleanup(func() { kernelRelease = was })
	kernelRelease = func() (string, error) { return release, nil }
}

// TestOpenUnsafeKernel checks that Open refuses only the kernels whose driver can loop forever in a system call. A
// newer driver in an older kernel is recognised by its capabilities.
func TestOpenUnsafeKernel(t *testing.T) {
	for _, c := range []struct {
		release string
		caps    uint64
		safe    bool
	}{
		{"5.10.0-32-amd64", 0, false},
		{"5.15.0-91-generic", 0, false},
		{"5.19.17", uapi.IB_UVERBS_DEVICE_MEM_WINDOW, false},
		{"4.18.0-513.el8.x86_64", 0, false},
		{"5.14.0-427.el9.x86_64", uapi.IB_UVERBS_DEVICE_ATOMIC_WRITE, true},
		{"5.14.0-427.el9.x86_64", uapi.IB_UVERBS_DEVICE_FLUSH_GLOBAL, true},
		{"6.0.0", 0, true},
		{"6.1.0-50-amd64", 0, true},
		{"7.2.12+deb13-amd64", uapi.IB_UVERBS_DEVICE_ATOMIC_WRITE, true},
		{"10.0", 0, true},
		{"next", 0, true},
	} {
		pretend(t, c.release)
		err := openFake(t, c.caps, 0)
		if (err == nil) != c.safe || err != nil && !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("%s, capabilities %#x: %v", c.release, c.caps, err)
		}
		if err == nil {
			continue
		}
		for _, part := range []string{c.release, "cannot be killed", "use Linux 6.0 or newer"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: no %q in %v", c.release, part, err)
			}
		}
	}
	pretend(t, "5.10.0")
	if err := openFake(t, 0, unix.EIO); !errors.Is(err, unix.EIO) {
		t.Errorf("refused query: %v", err)
	}
}

// openFake opens a device with these capabilities. If errno is not 0, the query of
// the device fails with it.
func openFake(t *testing.T, caps uint64, errno unix.Errno) error {
	t.Helper()
	k := ioctltest.NewKernel(uapi.RDMA_DRIVER_RXE)
	k.Extended.DeviceCapFlagsEx = caps
	if errno != 0 {
		k.Refuse = map[string]unix.Errno{"QUERY_DEVICE_EX": errno}
	}
	dev := k.Open(t, "uverbs0")
	_, err := rxeProvider{}.Open(dev, func(_, _ []byte) (driver.Reply, error) {
		cmd := ioctl.Get()
		defer cmd.Put()
		cmd.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT)
		ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS)
		ioctl.OutOf[uint64](cmd, uapi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT)
		cmd.UHW(nil, 0)
		return driver.Reply{}, dev.Do(cmd)
	})
	return errors.Join(err, dev.Close())
}
