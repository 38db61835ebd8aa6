package rdma_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// TestGroup checks that members find each other by the group and reply to each other.
func TestGroup(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	var o rdma.GroupOptions
	if onKernel {
		o.LocalAddr = netip.MustParseAddr(deviceIP)
	}
	join := func(run func(f func())) (g *rdma.Group) {
		run(func() { g = must(rdma.JoinGroup(ctx, "239.1.2.3", &o))(t) })
		t.Cleanup(func() { check(t, g.Close()) })
		return g
	}
	client, server := join(p.onClient), join(p.onServer)
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
