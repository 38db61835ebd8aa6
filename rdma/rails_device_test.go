//go:build device

package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/rtnetlink"
	"github.com/goverbs/goverbs/rdma"
)

// secondRail creates a second device, rxe1 on d1, and returns its address. It is removed when the test ends.
func secondRail(t *testing.T) netip.Addr {
	t.Helper()
	ip := netip.MustParseAddr("10.9.1.1")
	if err := rtnetlink.AddDummy("d1"); err != nil && !errors.Is(err, unix.EEXIST) {
		t.Fatal(err)
	}
	if err := rtnetlink.AddAddress("d1", netip.PrefixFrom(ip, 24)); err != nil && !errors.Is(err, unix.EEXIST) {
		t.Fatal(err)
	}
	check(t, nldev.AddLink("rxe1", "rxe", "d1"))
	t.Cleanup(func() {
		if _, err := nldev.Resources("rxe1"); err == nil { // unless the test has removed it
			check(t, nldev.DeleteLink("rxe1"))
		}
	})
	return ip
}

// TestDeviceRails has a client over the device of the tests and a second one, which under load goes down, is removed
// and comes back. It does not come back after it was down only: rxe's QP 1 fails with the first packet that has no
// route, and then establishes no connection any more.
func TestDeviceRails(t *testing.T) {
	second := secondRail(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	region := rdma.NewRegion(spreadLen)
	serving, stop := context.WithCancel(ctx)
	l := must(rdma.Listen(":0", listening(&rdma.Options{Linger: -1, Logger: silent.Logger})))(t)
	served := background(func() error {
		return l.Serve(serving, func(ctx context.Context, c *rdma.Conn) error {
			if _, err := c.SendToken(ctx, region, rdma.CanRead|rdma.CanWrite); err != nil {
				return err
			}
			return c.ServeCalls(ctx, func(b []byte) []byte { return b })
		})
	})
	addr := func(ip string) string { return netip.AddrPortFrom(netip.MustParseAddr(ip), l.Addr().Port()).String() }
	cl := rdma.NewClient(addr(deviceIP), &rdma.ClientOptions[rdma.Token]{Setup: rdma.RecvToken,
		Rails: []rdma.Rail{{Addr: addr(second.String())}}, Options: rdma.Options{Linger: -1}})
	call := func(ctx context.Context, c *rdma.Conn, _ rdma.Token) error { return echoed(ctx, c, "x") }
	isUp := func(i int, up bool) {
		t.Helper()
		until(t, fmt.Sprintf("rail %d is up: %t", i, up), func() bool {
			check(t, cl.Retry(ctx, call))
			return cl.Rails()[i].Up == up
		})
	}
	isUp(0, true)
	isUp(1, true)
	spread(t, ctx, cl, region)
	calls, stopLoad := deviceLoad(ctx, t, cl, call)

	check(t, rtnetlink.LinkDown("d1"))
	isUp(1, false)
	calls(100)
	check(t, rtnetlink.LinkUp("d1"))
	removed := background(func() error { return nldev.DeleteLink("rxe1") })
	check(t, within(t, removed, "the removal of rxe1"))
	isUp(1, false)
	calls(100)
	before := cl.Rails()[1].Calls
	check(t, nldev.AddLink("rxe1", "rxe", "d1"))
	until(t, "rail 1 is used again", func() bool { return cl.Rails()[1].Calls > before+100 })

	removed = background(func() error { return nldev.DeleteLink("rxe1") })
	check(t, within(t, removed, "the removal of rxe1 in use"))
	isUp(1, false)
	calls(100)
	stopLoad()
	spread(t, ctx, cl, region)
	for i, s := range cl.Rails() {
		t.Logf("%+v", s)
		if s.Calls == 0 || s.SentBytes == 0 || s.Up != (i == 0) || (s.Err == nil) != (i == 0) {
			t.Errorf("rail %d: %+v", i, s)
		}
	}
	check(t, cl.Close())
	stop()
	check(t, within(t, served, "Serve"))
	check(t, region.Close())
}

// deviceLoad makes calls in several goroutines until stop is called. All of them succeed. calls waits for n more.
func deviceLoad(ctx context.Context, t *testing.T, cl *rdma.Client[rdma.Token],
	call func(context.Context, *rdma.Conn, rdma.Token) error) (calls func(n int64), stop func()) {
	var made atomic.Int64
	var ending atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !ending.Load() {
				if err := cl.Retry(ctx, call); err != nil {
					t.Error(err)
					return
				}
				made.Add(1)
			}
		})
	}
	calls = func(n int64) {
		t.Helper()
		n += made.Load()
		until(t, "calls go on", func() bool { return made.Load() >= n })
	}
	return calls, func() { ending.Store(true); all.Wait() }
}

// spread writes and reads a region of the server.
func spread(t *testing.T, ctx context.Context, cl *rdma.Client[rdma.Token], region *rdma.Region) {
	t.Helper()
	data, got := pattern(spreadLen, 1), make([]byte, spreadLen)
	check(t, cl.Spread(ctx, spreadLen, func(ctx context.Context, c *rdma.Conn, to rdma.Token, off, n int) error {
		return c.Write(ctx, data[off:off+n], to, off)
	}))
	check(t, cl.Spread(ctx, spreadLen, func(ctx context.Context, c *rdma.Conn, from rdma.Token, off, n int) error {
		return c.Read(ctx, got[off:off+n], from, off)
	}))
	if !bytes.Equal(got, data) || !bytes.Equal(region.Bytes(), data) {
		t.Error("other data")
	}
	clear(region.Bytes())
}
