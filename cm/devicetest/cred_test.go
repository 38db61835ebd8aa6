//go:build device

package devicetest

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"golang.org/x/sys/unix"
)

// TestDeviceOtherCredentials is run by TestDeviceCredentials as a child. It leaves no
// objects.
func TestDeviceOtherCredentials(t *testing.T) {
	if os.Getenv(envStep) == "" {
		return
	}
	ctx := limit(t)
	l := must(cm.Listen(deviceIP+":0", nil))(t)
	waited := make(chan error)
	go func() {
		_, err := l.Accept(ctx)
		waited <- err
	}()
	k := must(cm.NewEventChannel())(t)
	i := must(k.CreateID(cm.PSTCP))(t)
	events := make(chan error)
	go func() {
		_, err := k.Next(ctx)
		events <- err
	}()
	check(t, syscall.Setgroups([]int{1}))
	refused := func(err error) {
		t.Helper()
		isError(t, err, []error{cm.ErrCredentials, unix.EACCES}, "changed its user")
	}
	refused(i.Bind(at(deviceIP, 0)))
	refused(i.ResolveAddr(netip.AddrPort{}, l.Addr(), 0))
	refused(second(k.CreateID(cm.PSTCP)))
	refused(l.ID().Listen(0))
	allowed := func(err error) {
		t.Helper()
		if err != nil && !errors.Is(err, cm.ErrCredentials) {
			t.Error(err)
		}
	}
	allowed(i.Close())
	allowed(k.Close())
	allowed(l.Close())
	if err := <-waited; err == nil {
		t.Error("Accept goes on")
	}
	if err := <-events; err == nil {
		t.Error("Next goes on")
	}
}
