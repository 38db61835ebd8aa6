//go:build device

package limits

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/rtnetlink"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceRemoval removes a device in use. `rdma link del` blocks until the last user
// has closed it, because rxe cannot be removed while in use.
func TestDeviceRemoval(t *testing.T) {
	const name, netdev = "rxe9", "d9"
	check(t, rtnetlink.AddDummy(netdev))
	check(t, rtnetlink.AddAddress(netdev, netip.MustParsePrefix("10.99.0.1/24")))
	check(t, nldev.AddLink(name, "rxe", netdev))
	dev := must(uverbs.Open(name))(t)
	pd := must(dev.AllocPD())(t)
	a, b := newEnd(t, pd, 64), newEnd(t, pd, 64)
	ea, eb := must(a.qp.Endpoint())(t), must(b.qp.Endpoint())(t)
	connect(t, a.qp, eb, 6, 7)
	connect(t, b.qp, ea, 6, 7)

	deleted := make(chan error, 1)
	go func() { deleted <- nldev.DeleteLink(name) }()
	ctx := limited(t)
	for slices.ContainsFunc(must(uverbs.Devices())(t), func(d uverbs.Device) bool { return d.Name == name }) {
		check(t, ctx.Err())
	}
	// It is not listed any more and cannot be opened.
	if c, err := uverbs.Open(name); !errors.Is(err, uverbs.ErrNoDevice) {
		t.Errorf("Open while it is being removed: %v, %v", c, err)
	}
	select {
	case err := <-deleted:
		t.Fatalf("the device was removed while in use: %v", err)
	default:
	}
	waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if e, err := dev.NextEvent(waiting); err == nil {
		t.Logf("event: %v", e.Type)
	} else if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("NextEvent while it is being removed: %v", err)
	}
	check(t, dev.Close())
	select {
	case err := <-deleted:
		check(t, err)
	case <-ctx.Done():
		t.Fatal("the removal does not finish after Close")
	}
	if out, err := exec.Command("ip", "link", "del", netdev).CombinedOutput(); err != nil {
		t.Errorf("ip: %v: %s", err, out)
	}
}
