package devicetest

import (
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceMigrate checks that Migrate "migrates a communication identifier to the specified event channel and moves
// any pending events" (rdma_migrate_id(3)).
func TestDeviceMigrate(t *testing.T) {
	begin(t)
	a, b := newTalk(t), newTalk(t)
	_, to := a.listen(t, cm.PSTCP, at(deviceIP, 0))
	client := a.id(t, cm.PSTCP)
	check(t, client.ResolveAddr(netip.AddrPort{}, to, 0)) // its event is pending in a, or will be
	check(t, client.Migrate(b.EventChannel))
	b.good(t, cm.EventAddrResolved, client)
	check(t, client.ResolveRoute(0))
	b.good(t, cm.EventRouteResolved, client)
	check(t, client.Migrate(b.EventChannel)) // the same channel
	check(t, client.CreateQP(nil, small()))
	check(t, client.Connect(nil))
	child := a.good(t, cm.EventConnectRequest, nil).ID
	closing(t, child)
	// The id of a request moves to another channel.
	c := newTalk(t)
	check(t, child.Migrate(c.EventChannel))
	check(t, child.CreateQP(nil, small()))
	check(t, child.Accept(nil))
	b.good(t, cm.EventEstablished, client)
	c.good(t, cm.EventEstablished, child)
	carries(t, client, child, "across channels")
	check(t, client.Disconnect())
	c.disconnected(t, child)
	check(t, child.Migrate(a.EventChannel))
	check(t, child.Disconnect())
	b.disconnected(t, client)
	if !rnic() {
		a.good(t, cm.EventTimewaitExit, child)
	}
}

// TestDeviceMigrateSync makes an id synchronous and then moves it back: "If the channel
// parameter is NULL, the specified rdma_cm_id will be placed into synchronous operation
// mode" (rdma_migrate_id(3)).
func TestDeviceMigrateSync(t *testing.T) {
	begin(t)
	k := newTalk(t)
	l := must(cm.NewID(cm.PSTCP))(t)
	closing(t, l)
	check(t, l.Bind(at(deviceIP, 0)))
	check(t, l.Listen(0))
	client := k.id(t, cm.PSTCP)
	check(t, client.ResolveAddr(netip.AddrPort{}, l.LocalAddr(), 0))
	k.good(t, cm.EventAddrResolved, client)

	s := must(client.Sync())(t)
	_, err := s.Sync()
	isError(t, err, []error{uverbs.ErrInvalid}, "synchronous already")
	check(t, s.ResolveRoute(k.ctx, 0))
	check(t, client.CreateQP(nil, small()))
	check(t, k.EventChannel.Close()) // no id uses it

	k = newTalk(t)
	check(t, s.Migrate(k.EventChannel))
	select {
	case <-s.Disconnected():
	case <-k.ctx.Done():
		t.Error("who waits for the synchronous id waits for ever")
	}
	check(t, client.Connect(nil))
	child := must(l.GetRequest(k.ctx))(t)
	closing(t, child)
	check(t, child.CreateQP(nil, small()))
	accepted := async(func() (int, error) { return 0, child.Accept(k.ctx, nil) })
	k.good(t, cm.EventEstablished, client)
	accepted(t)
	carries(t, client, child.ID, "and back")
	check(t, child.ID.Disconnect())
	k.disconnected(t, client)
	check(t, client.Disconnect())
	if !rnic() {
		k.good(t, cm.EventTimewaitExit, client)
	}
	check(t, client.Close())
}

// TestDeviceMigrateWaiting migrates a SyncID while one of its calls waits, and with an
// event that no call has waited for.
func TestDeviceMigrateWaiting(t *testing.T) {
	begin(t)
	k := newTalk(t)
	s := must(cm.NewID(cm.PSTCP))(t)
	closing(t, s)
	check(t, s.ID.ResolveAddr(netip.AddrPort{}, at(deviceIP, 4000), 0))
	eventually(t, "the resolution", func() bool { return s.ID.ResolveRoute(0) == nil })
	check(t, s.Migrate(k.EventChannel))
	k.good(t, cm.EventAddrResolved, s.ID)
	k.good(t, cm.EventRouteResolved, s.ID)

	l := must(cm.NewID(cm.PSTCP))(t)
	closing(t, l)
	check(t, l.Bind(at(deviceIP, 0)))
	waited := make(chan error)
	go func() {
		_, err := l.GetRequest(k.ctx)
		waited <- err
	}()
	check(t, l.Migrate(k.EventChannel))
	isError(t, <-waited, []error{uverbs.ErrClosed})
	check(t, l.ID.Listen(0))
	check(t, s.ID.Close())
	client, _ := k.connect(t, l.LocalAddr())
	check(t, client.Close())
}

// TestDeviceMigrateListener checks that an id that listens, and its requests, cannot be moved.
func TestDeviceMigrateListener(t *testing.T) {
	begin(t)
	a, b := newTalk(t), newTalk(t)
	listener, to := a.listen(t, cm.PSTCP, at(deviceIP, 0))
	isError(t, listener.Migrate(b.EventChannel), []error{uverbs.ErrInvalid}, "before Listen")
	_, err := listener.Sync()
	isError(t, err, []error{uverbs.ErrInvalid}, "before Listen")
	a.connect(t, to)
}

// TestDeviceMigrateUnderEvents moves an id back and forth while its connection ends, and checks that the event arrives
// once.
func TestDeviceMigrateUnderEvents(t *testing.T) {
	begin(t)
	for round := range 20 {
		server, a, b := newTalk(t), newTalk(t), newTalk(t)
		_, to := server.listen(t, cm.PSTCP, at(deviceIP, 0))
		client := a.id(t, cm.PSTCP)
		a.resolve(t, client, to)
		check(t, client.CreateQP(nil, small()))
		check(t, client.Connect(nil))
		child := server.good(t, cm.EventConnectRequest, nil).ID
		closing(t, child)
		check(t, child.CreateQP(nil, small()))
		check(t, child.Accept(nil))
		a.good(t, cm.EventEstablished, client)
		server.good(t, cm.EventEstablished, child)

		got := make(chan *cm.Event, 2)
		for _, k := range []talk{a, b} {
			go func() {
				if e, err := k.Next(k.ctx); err == nil {
					got <- e
				}
			}()
		}
		check(t, child.Disconnect())
		channels := []*cm.EventChannel{a.EventChannel, b.EventChannel}
		for n := range round {
			check(t, client.Migrate(channels[n%2]))
		}
		select {
		case e := <-got:
			if e.Type != cm.EventDisconnected || e.ID != client {
				t.Errorf("%v of %p", e.Type, e.ID)
			}
		case <-server.ctx.Done():
			t.Fatalf("after %d migrations the event is lost", round)
		}
		check(t, client.Close())
		check(t, child.Close())
		check(t, a.EventChannel.Close())
		check(t, b.EventChannel.Close())
	}
}
