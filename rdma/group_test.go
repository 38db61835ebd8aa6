package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// join joins a group on a machine.
func join(t *testing.T, run func(f func()), o rdma.GroupOptions) (g *rdma.Group) {
	t.Helper()
	if onKernel {
		o.LocalAddr = netip.MustParseAddr(deviceIP)
	}
	run(func() { g = must(rdma.JoinGroup(limit(t), "239.1.2.3", &o))(t) })
	t.Cleanup(func() { check(t, g.Close()) })
	return g
}

// receive returns the next datagram, and where it comes from.
func receive(t *testing.T, g *rdma.Group) (string, rdma.Peer) {
	t.Helper()
	d := must(g.Recv(limit(t)))(t)
	defer d.Release()
	return string(d.Bytes()), d.From()
}

// receives checks the next datagram.
func receives(t *testing.T, g *rdma.Group, want string) rdma.Peer {
	t.Helper()
	text, from := receive(t, g)
	if text != want {
		t.Errorf("%q, want %q", text, want)
	}
	return from
}

// TestGroup checks that members find each other by the group and reply to each other.
func TestGroup(t *testing.T) { groupReplies(t, machines(t)) }

// TestGroupInfiniBand is TestGroup where datagrams to single members have no GRH.
func TestGroupInfiniBand(t *testing.T) {
	p := &pair{net: verbstest.NewNetwork(t, verbstest.InfiniBand())}
	p.here, p.there = p.net.Machine(), p.net.Machine()
	groupReplies(t, p)
}

func groupReplies(t *testing.T, p *pair) {
	ctx := limit(t)
	client, server := join(t, p.onClient, rdma.GroupOptions{}), join(t, p.onServer, rdma.GroupOptions{})
	served := make(chan error, 1)
	go func() {
		for {
			d, err := server.Recv(ctx)
			if err != nil {
				served <- err
				return
			}
			if err := server.SendTo(ctx, fmt.Appendf(nil, "re: %s", d.Bytes()), d.From()); err != nil {
				t.Error(err)
			}
			d.Release()
		}
	}()
	check(t, client.Send(ctx, []byte("who is there?")))
	d := must(client.Recv(ctx))(t)
	if string(d.Bytes()) != "re: who is there?" {
		t.Errorf("%q", d.Bytes())
	}
	peer := d.From()
	d.Release()
	for i := range 300 {
		check(t, client.SendTo(ctx, fmt.Appendf(nil, "ping %d", i), peer))
		d := must(client.Recv(ctx))(t)
		if want := fmt.Sprintf("re: ping %d", i); string(d.Bytes()) != want || d.From() != peer {
			t.Errorf("%q of %v, want %q of %v", d.Bytes(), d.From(), want, peer)
		}
		d.Release()
	}
	isError(t, client.Send(ctx, make([]byte, client.MaxDatagram()+1)), rdma.ErrTooLong)
	check(t, server.Close())
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestGroupMembers checks that a datagram reaches each other member once and not its sender, also on the same machine,
// and that members that leave or join again change nothing for the others.
func TestGroupMembers(t *testing.T) {
	p := machines(t)
	p.allow(verbstest.Destination)
	ctx := limit(t)
	a, b := join(t, p.onClient, rdma.GroupOptions{}), join(t, p.onServer, rdma.GroupOptions{})
	near := join(t, p.onClient, rdma.GroupOptions{})
	check(t, a.Send(ctx, []byte("from a")))
	receives(t, near, "from a")
	atA := receives(t, b, "from a")
	check(t, b.SendTo(ctx, []byte("to a"), atA))
	atB := receives(t, a, "to a") // and not "from a"
	check(t, near.Send(ctx, []byte("from near")))
	receives(t, a, "from near")
	receives(t, b, "from near")

	check(t, b.Close())
	check(t, a.SendTo(ctx, []byte("lost"), atB)) // as datagrams may be
	check(t, a.Send(ctx, []byte("without b")))
	receives(t, near, "without b")
	again := join(t, p.onServer, rdma.GroupOptions{})
	check(t, near.Send(ctx, []byte("with b")))
	if from := receives(t, again, "with b"); from == atA || from.String() == "" {
		t.Errorf("the sender is %v, as a was", from)
	}
	receives(t, a, "with b")
	check(t, again.SendTo(ctx, []byte("to a"), atA)) // the address is no member's
	receives(t, a, "to a")
}

// TestGroupLengths sends datagrams of all lengths, to the group and to a member.
func TestGroupLengths(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	a, b := join(t, p.onClient, rdma.GroupOptions{}), join(t, p.onServer, rdma.GroupOptions{})
	most := a.MaxDatagram()
	if most < 256 || most > 4096 || most != b.MaxDatagram() {
		t.Errorf("MaxDatagram is %d and %d", most, b.MaxDatagram())
	}
	check(t, b.Send(ctx, nil))
	at := receives(t, a, "")
	for _, n := range []int{0, 1, 63, 64, most - 1, most} {
		check(t, a.Send(ctx, pattern(n, n)))
		receives(t, b, string(pattern(n, n)))
		check(t, a.SendTo(ctx, pattern(n, n+1), at))
		receives(t, b, string(pattern(n, n+1)))
	}
	isError(t, a.Send(ctx, make([]byte, most+1)), rdma.ErrTooLong)
	isError(t, a.SendTo(ctx, make([]byte, most+1), at), rdma.ErrTooLong)
	check(t, a.Send(ctx, []byte("next")))
	receives(t, b, "next")
}

// TestGroupAddresses checks that the address of a member is resolved once, also if many goroutines send to it at the
// same time.
func TestGroupAddresses(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	a, b := join(t, p.onClient, rdma.GroupOptions{}), join(t, p.onServer, rdma.GroupOptions{})
	check(t, b.Send(ctx, nil))
	at := receives(t, a, "")
	const senders, each = 8, 15 // b has receives for all
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for range each {
				if err := a.SendTo(ctx, []byte("x"), at); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range senders * each {
		receives(t, b, "x")
	}
	all.Wait()
	check(t, a.SendTo(ctx, []byte("x"), at)) // after those that have waited for the address
	receives(t, b, "x")
	before := p.here.Commands()
	for range 10 {
		check(t, a.SendTo(ctx, []byte("y"), at))
	}
	if n := p.here.Commands() - before; n != 0 {
		t.Errorf("%d commands for a member whose address is known", n)
	}
}

// TestGroupFull checks that datagrams are lost while the program holds as many as GroupOptions.Depth says, and arrive
// again when it has released one.
func TestGroupFull(t *testing.T) {
	p := machines(t)
	p.allow(verbstest.ReceiveLate)
	ctx := limit(t)
	const depth = 4
	a, b := join(t, p.onClient, rdma.GroupOptions{}), join(t, p.onServer, rdma.GroupOptions{Depth: depth})
	witness := join(t, p.onServer, rdma.GroupOptions{})
	send := func(from, to int) {
		for i := from; i < to; i++ {
			check(t, a.Send(ctx, fmt.Append(nil, i)))
			receives(t, witness, fmt.Sprint(i))
		}
	}
	send(0, 2*depth)
	var held []rdma.Datagram
	for range depth {
		held = append(held, must(b.Recv(ctx))(t))
	}
	send(100, 103)
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	_, err := b.Recv(short)
	isError(t, err, os.ErrDeadlineExceeded)
	for i, d := range held {
		if want := fmt.Sprint(i); string(d.Bytes()) != want {
			t.Errorf("%q, want %s", d.Bytes(), want)
		}
	}
	held[2].Release()
	send(200, 201)
	receives(t, b, "200")
	for _, i := range []int{0, 1, 3} {
		held[i].Release()
	}
}

// TestGroupErrors checks the errors of bad options, of contexts that have ended, and after Close.
func TestGroupErrors(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	p.onClient(func() {
		for _, addr := range []string{"", "a name", "192.0.2.1", "239.1.2.3:7", "fe80::1"} {
			_, err := rdma.JoinGroup(ctx, addr, nil)
			isError(t, err, uverbs.ErrInvalid)
		}
		for _, depth := range []int{-1, 2049} {
			_, err := rdma.JoinGroup(ctx, "239.1.2.3", &rdma.GroupOptions{Depth: depth})
			isError(t, err, uverbs.ErrInvalid)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := rdma.JoinGroup(ended, "239.1.2.3", nil)
		isError(t, err, context.Canceled)
	})
	a, b := join(t, p.onClient, rdma.GroupOptions{}), join(t, p.onServer, rdma.GroupOptions{})
	check(t, b.Send(ctx, []byte("x")))
	at := receives(t, a, "x")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := a.Recv(ended)
	isError(t, err, context.Canceled)
	isError(t, a.Send(ended, nil), context.Canceled)
	isError(t, a.SendTo(ended, nil, at), context.Canceled)
	var e *rdma.Error
	if !errors.As(err, &e) || e.Local != a.LocalAddr() || !strings.Contains(e.Error(), "receive in the group at ") {
		t.Errorf("%v", err)
	}
	received := background(func() error { _, err := a.Recv(ctx); return err })
	check(t, a.Close())
	check(t, a.Close())
	isError(t, within(t, received, "Recv"), net.ErrClosed)
	_, err = a.Recv(ctx)
	isError(t, err, net.ErrClosed)
	isError(t, a.Send(ctx, nil), net.ErrClosed)
	isError(t, a.SendTo(ctx, nil, at), net.ErrClosed)
}

// TestGroupBesideClose closes a member while goroutines send, receive and release.
func TestGroupBesideClose(t *testing.T) {
	t.Parallel()
	for range 20 {
		p := machines(t)
		p.allow(verbstest.Destination, verbstest.ReceiveLate)
		ctx := limit(t)
		a, b := join(t, p.onClient, rdma.GroupOptions{}), join(t, p.onServer, rdma.GroupOptions{Depth: 8})
		check(t, b.Send(ctx, nil))
		at := receives(t, a, "")
		var users []<-chan error
		use := func(f func() error) {
			users = append(users, background(func() error {
				for {
					if err := f(); err != nil {
						return err
					}
				}
			}))
		}
		arrived := make(chan struct{}, 1)
		for range 2 {
			use(func() error { return a.Send(ctx, []byte("to all")) })
			use(func() error { return a.SendTo(ctx, []byte("to b"), at) })
		}
		echo := func(g *rdma.Group) func() error {
			return func() error {
				d, err := g.Recv(ctx)
				if err == nil {
					select {
					case arrived <- struct{}{}:
					default:
					}
					err = g.SendTo(ctx, d.Bytes(), d.From())
				}
				d.Release()
				return err
			}
		}
		use(echo(a))
		use(echo(b))
		<-arrived
		check(t, a.Close())
		check(t, b.Close())
		for _, u := range users {
			isError(t, within(t, u, "a call of a group"), net.ErrClosed)
		}
	}
}

// TestGroupLongDatagrams checks that a member receives datagrams that are longer than its active MTU: one whose
// receives had no room for them would fail.
func TestGroupLongDatagrams(t *testing.T) {
	t.Parallel()
	n := verbstest.NewNetwork(t)
	short, long := n.Machine(), n.Machine()
	short.SetMTU(uverbs.MTU1024)
	ctx := limit(t)
	a, b := join(t, short.Run, rdma.GroupOptions{Depth: 4}), join(t, long.Run, rdma.GroupOptions{})
	if a.MaxDatagram() != 1024 || b.MaxDatagram() != 4096 {
		t.Fatalf("MaxDatagram is %d and %d", a.MaxDatagram(), b.MaxDatagram())
	}
	for _, length := range []int{1024, 1025, 1400, 4096, 1} { // more of them than a has receives
		check(t, b.Send(ctx, pattern(length, 1)))
		at := receives(t, a, string(pattern(length, 1)))
		check(t, a.SendTo(ctx, []byte("reply"), at))
		receives(t, b, "reply")
	}
	isError(t, a.Send(ctx, make([]byte, 1025)), rdma.ErrTooLong)
}

// TestGroupFails checks that all calls of a group whose QP has failed return the cause, also those that wait without a
// receive that could be flushed, and that Close ends it as usual.
func TestGroupFails(t *testing.T) {
	t.Parallel()
	p := machines(t)
	p.allow(verbstest.ReceiveLate, verbstest.ReceiveLength)
	ctx := limit(t)
	a, b := join(t, p.onClient, rdma.GroupOptions{}), join(t, p.onServer, rdma.GroupOptions{Depth: 2})
	check(t, a.Send(ctx, []byte("x")))
	at := receives(t, b, "x")
	var waiting []<-chan error
	for range 4 {
		waiting = append(waiting, background(func() error { _, err := b.Recv(ctx); return err }))
	}
	p.there.FailCompletion(b.CM().QP(), uverbs.WCLocLenErr, 0)
	check(t, a.Send(ctx, []byte("y")))
	for _, w := range waiting {
		err := within(t, w, "Recv of a group that has failed")
		isError(t, err, rdma.ErrDisconnected)
	}
	_, err := b.Recv(ctx)
	isError(t, err, rdma.ErrDisconnected)
	isError(t, b.Send(ctx, nil), rdma.ErrDisconnected)
	isError(t, b.SendTo(ctx, nil, at), rdma.ErrDisconnected)
	check(t, b.Close())
	_, err = b.Recv(ctx)
	isError(t, err, net.ErrClosed)
	isError(t, b.Send(ctx, nil), net.ErrClosed)
}
