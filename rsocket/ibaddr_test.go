package rsocket_test

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// gid returns the GID of the device of the machine that runs it.
func gid(t *testing.T) uverbs.GID {
	t.Helper()
	dev := must(uverbs.Open(must(uverbs.Devices())(t)[0].Name))(t)
	defer dev.Close()
	return must(dev.GIDs(1))(t)[0].GID
}

// TestInfiniBandAddresses connects by GID.
func TestInfiniBandAddresses(t *testing.T) {
	if onKernel {
		t.Skip("kernels have no subnet manager in the guests: verbstest has")
	}
	p := &pair{net: verbstest.NewNetwork(t, verbstest.InfiniBand())}
	p.here, p.there = p.net.Machine(), p.net.Machine()
	at := cm.IBAddr{PKey: 0xffff, ServiceID: rsocket.ServiceID(7471)}
	var l *rsocket.Listener
	p.onServer(func() {
		at.GID = gid(t)
		l = must(new(rsocket.ListenConfig).ListenIB(at))(t)
	})
	check(t, l.SetDeadline(time.Now().Add(time.Minute)))
	accepted := make(chan error, 1)
	p.onServer(func() {
		go func() {
			var err error
			p.server, err = l.AcceptConn()
			accepted <- err
		}()
	})
	p.onClient(func() {
		p.client = must((&rsocket.Dialer{Timeout: time.Minute}).DialIB(t.Context(), at))(t)
		if local := p.client.LocalAddr().(rsocket.IBAddr); local.GID != gid(t) {
			t.Errorf("the local address is %v", local)
		}
	})
	check(t, <-accepted)
	if a := p.client.RemoteAddr().String(); a != "["+at.GID.String()+"]:7471" || a != l.Addr().String() {
		t.Errorf("the address of the peer is %v, that of the listener %v", a, l.Addr())
	}
	p.exchange(t, data(100000))
	check(t, p.client.Close())
	check(t, p.server.Close())
	check(t, l.Close())
}
