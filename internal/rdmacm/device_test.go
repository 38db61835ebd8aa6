//go:build device

package rdmacm_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// The scenarios also pass on a real kernel. The test bed gives the network device of
// rxe0 this address.
func TestDeviceKernel(t *testing.T) {
	for name, test := range onEveryKernel {
		t.Run(name, func(t *testing.T) { test(machine{t, rdmacm.Open, "10.9.0.1", true}) })
	}
}

// The kernel compares the credentials of the calling thread with those of the opener by
// identity. Even new ones with the same rights differ.
func TestDeviceCredentials(t *testing.T) {
	m := machine{t, rdmacm.Open, "10.9.0.1", true}
	f := m.file()
	id := m.id(f, 1, uapi.RDMA_PS_TCP)
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 0, 0, 0, 0); err != nil {
			errs <- err
			return
		}
		errs <- f.Listen(id, 0)
	}()
	if err := <-errs; !errors.Is(err, rdmacm.ErrCredentials) || !errors.Is(err, unix.EACCES) {
		t.Errorf("with other credentials: %v", err)
	}
	must(t, f.Listen(id, 0))
}
