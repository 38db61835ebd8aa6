package rdma_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestEndBesideEverything ends a connection in all ways while goroutines on both sides use all methods. All calls
// return, and nothing is left, which package verbstest checks.
func TestEndBesideEverything(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *pair){
		"peer without power": func(p *pair) { p.there.Kill() },
		"device removed":     func(p *pair) { p.here.RemoveDevice() },
		"peer's device":      func(p *pair) { p.there.RemoveDevice() },
		"partition":          func(p *pair) { p.net.Partition(p.here, p.there) },
		"port down":          func(p *pair) { p.here.SetPort(false) },
		"completion":         func(p *pair) { p.here.FailCompletion(nil, uverbs.WCRemOpErr, 0) },
		"peer's completion":  func(p *pair) { p.there.FailCompletion(nil, uverbs.WCLocLenErr, 3) },
		"disconnect":         func(p *pair) { _ = p.client.CM().ID().ID.Disconnect() },
		"disconnect of peer": func(p *pair) { _ = p.server.CM().ID().ID.Disconnect() },
		"key that is not one": func(p *pair) {
			_ = p.client.Read(context.Background(), make([]byte, 8), rdma.Token{Len: 8, Rights: 7}, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range 5 {
				endBesideEverything(t, end, uint64(i*40))
			}
		})
	}
}

func endBesideEverything(t *testing.T, end func(p *pair), operations uint64) {
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 10})
	p.allow(verbstest.RemoteAccess, verbstest.Destination)
	o := &rdma.Options{Linger: 50 * time.Millisecond, KeepAlive: 5 * time.Millisecond}
	p.dial(t, o, o)
	ctx := limit(t)
	region, s := p.share(t, 4096, allRights)
	var users sync.WaitGroup
	for _, c := range []*rdma.Conn{p.client, p.server} {
		for range 2 {
			users.Go(func() { receiveUntilClosed(ctx, t, c) })
			users.Go(func() { shareUntilClosed(ctx, t, c, region) })
		}
	}
	for k := range 4 {
		users.Go(func() { useUntilClosed(ctx, t, p.client, s.Token(), k) })
	}
	until(t, "operations are done", func() bool { return p.client.Stats().Operations >= operations })
	end(p)
	done := make(chan error, 1)
	go func() { users.Wait(); done <- nil }()
	check(t, within(t, done, "a call"))
	isError(t, p.client.Err(), rdma.ErrDisconnected)
	isError(t, p.server.Err(), rdma.ErrDisconnected)
}
