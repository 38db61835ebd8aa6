package rsocket_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// newMemoryRig returns a rig on machines in memory, also if the other tests run on a device.
func newMemoryRig(t testing.TB, options ...verbstest.Option) *packetRig {
	t.Helper()
	n := verbstest.NewNetwork(t, options...)
	return &packetRig{&pair{net: n, here: n.Machine(), there: n.Machine()},
		&udpNetwork{sockets: map[netip.AddrPort]*udpSocket{}}}
}

// stranger is an address that no socket has.
var stranger = netip.MustParseAddrPort("192.0.2.99:5")

// TestHostileContacts sends contacts that do not follow the protocol.
func TestHostileContacts(t *testing.T) {
	r := newMemoryRig(t)
	a := r.listenOn(t, r.here, rsocket.Config{}, r.host(r.here))
	for _, b := range badContacts() {
		r.udp.send(stranger, addrOf(a), b)
	}
	r.udp.send(stranger, addrOf(a), rsocket.Contact(true, 7, ip4, nil)) // a reply to nothing
	r.udp.send(stranger, addrOf(a), rsocket.Contact(false, 7, ip4, []byte("good")))
	buf := make([]byte, 4096)
	if n, from := must2(a.ReadFromUDPAddrPort(buf))(t); string(buf[:n]) != "good" || from != stranger {
		t.Errorf("%q from %v", buf[:n], from)
	}
	if known, _ := a.Peers(); known != 1 {
		t.Errorf("%d peers are known, want 1", known)
	}
}

// TestManyContacts sends contacts from more addresses than a PacketConn keeps. None of them may make it forget a peer
// that the program talks to, resolve a route or keep more datagrams than its limit.
func TestManyContacts(t *testing.T) {
	r := newMemoryRig(t)
	a, b := r.both(t, rsocket.Config{})
	acquaint(t, a, b)
	const contacts = 3 * rsocket.MaxPacketPeers
	for i := range contacts {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 7)
		r.udp.send(from, addrOf(a), rsocket.Contact(false, uint32(2+i), ip4, []byte("spam")))
		if i%500 == 499 {
			r.drain(t, a) // the socket keeps a thousand
		}
	}
	r.drain(t, a)
	if known, wanted := a.Peers(); known != rsocket.MaxPacketPeers || wanted != 0 {
		t.Errorf("%d peers are known, want %d; %d routes are wanted", known, rsocket.MaxPacketPeers, wanted)
	}
	if _, ok := a.Route(addrOf(b)); !ok {
		t.Error("the route to the peer is lost")
	}
	must(b.WriteTo([]byte("good"), a.LocalAddr()))(t)
	buf, kept, good := make([]byte, 16), 0, false
	for {
		n, from, err := a.ReadFromUDPAddrPort(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		check(t, err)
		if from == addrOf(b) && string(buf[:n]) == "good" {
			good = true
		} else if kept++; kept == rsocket.MaxEarly/2 && !good {
			t.Error("datagrams by UDP keep others from being read")
		}
		check(t, a.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	}
	// The last one may find that there is room again.
	if !good || kept < rsocket.MaxEarly || kept > rsocket.MaxEarly+1 {
		t.Errorf("%d datagrams were kept, want %d", kept, rsocket.MaxEarly)
	}
}

// drain waits until a has handled the contacts that were sent: one more gets a reply.
func (r *packetRig) drain(t testing.TB, a *rsocket.PacketConn) {
	t.Helper()
	s := must(r.udp.socket(netip.MustParseAddrPort("10.0.0.1:9")))(t)
	defer func() { check(t, s.Close()) }()
	must(s.WriteToUDPAddrPort(rsocket.Contact(false, 7, ip4, nil), addrOf(a)))(t)
	b := make([]byte, 64)
	n, _ := must2(s.ReadFromUDPAddrPort(b))(t)
	if reply, qpn, _, ok := rsocket.ParseContact(b[:n], true); !ok || !reply || qpn != a.QPN() {
		t.Fatalf("the reply is %x", b[:n])
	}
}

// TestManyReplies has the program reply to contacts from addresses that do not exist. The routes that are to be
// resolved are limited, and a peer that exists is reached.
func TestManyReplies(t *testing.T) {
	r := newMemoryRig(t)
	a, b := r.both(t, rsocket.Config{})
	buf := make([]byte, 16)
	most := 0
	for i := range 2 * rsocket.MaxWanted {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 7)
		r.udp.send(from, addrOf(a), rsocket.Contact(false, uint32(2+i), ip4, []byte("spam")))
		n, to := must2(a.ReadFromUDPAddrPort(buf))(t)
		must(a.WriteToUDPAddrPort(buf[:n], to))(t)
		must(a.WriteToUDPAddrPort(buf[:n], to))(t)
		_, wanted := a.Peers()
		most = max(most, wanted)
	}
	if most > rsocket.MaxWanted {
		t.Errorf("%d routes wait to be resolved, more than %d", most, rsocket.MaxWanted)
	}
	echo(t, b, a, data(100))
}

// TestHostileDatagrams sends datagrams that do not follow the protocol, more than there are receives.
func TestHostileDatagrams(t *testing.T) {
	r := newPacketRig(t)
	a, b := r.both(t, rsocket.Config{RecvQueue: 16, SendQueue: 16})
	acquaint(t, a, b)
	buf := make([]byte, 4096)
	for range 5 {
		for _, d := range badDatagrams() {
			check(t, a.PostTo(addrOf(b), d))
		}
		check(t, a.PostTo(addrOf(b), nil))
		must(a.WriteTo([]byte("good"), b.LocalAddr()))(t)
		if n, from := must2(b.ReadFromUDPAddrPort(buf))(t); string(buf[:n]) != "good" || from != addrOf(a) {
			t.Fatalf("%q from %v", buf[:n], from)
		}
	}
}

// TestLongDatagram sends a datagram as long as the MTU, which the protocol does not permit. The QP survives.
func TestLongDatagram(t *testing.T) {
	r := newMemoryRig(t)
	a, b := r.both(t, rsocket.Config{})
	acquaint(t, a, b)
	check(t, a.PostTo(addrOf(b), make([]byte, 4096)))
	echo(t, a, b, data(100))
}

// TestPacketPeerRestarts checks that a peer that has another QP is found.
func TestPacketPeerRestarts(t *testing.T) {
	r := newPacketRig(t)
	a, b := r.both(t, rsocket.Config{})
	acquaint(t, a, b)
	to, buf := addrOf(b), make([]byte, 16)
	check(t, b.Close())
	must(a.WriteToUDPAddrPort([]byte("lost"), to))(t)
	r.on(r.there, func() {
		b = must(rsocket.ListenPacket("udp", to.String()))(t)
	})
	defer func() { check(t, b.Close()) }()
	check(t, b.SetDeadline(time.Now().Add(time.Minute)))
	must(a.WriteToUDPAddrPort([]byte("lost"), to))(t)
	a.Renew(to)
	must(a.WriteToUDPAddrPort([]byte("found"), to))(t)
	if n, from := must2(b.ReadFromUDPAddrPort(buf))(t); string(buf[:n]) != "found" || from != addrOf(a) {
		t.Errorf("%q from %v", buf[:n], from)
	}
	// This goes by UDP too, after the reply with the QPN.
	must(b.WriteToUDPAddrPort([]byte("here"), addrOf(a)))(t)
	must(a.Read(buf))(t)
	acquaint(t, a, b)
	if qpn, _ := a.Route(to); qpn != b.QPN() {
		t.Errorf("the route leads to QP %#x, want %#x", qpn, b.QPN())
	}
	echo(t, a, b, data(100))
}

// TestForgedReply sends a reply with a wrong QPN in the name of a peer. The next contact corrects it.
func TestForgedReply(t *testing.T) {
	r := newMemoryRig(t)
	r.net.Allow(verbstest.Destination)
	a, b := r.both(t, rsocket.Config{})
	acquaint(t, a, b)
	r.udp.send(addrOf(b), addrOf(a), rsocket.Contact(true, 0xabcdef, ip4, nil))
	r.drain(t, a)
	if qpn, ok := a.Route(addrOf(b)); ok && qpn == b.QPN() {
		t.Error("the reply is ignored")
	}
	a.Renew(addrOf(b))
	must(a.WriteTo([]byte("by UDP"), b.LocalAddr()))(t)
	must(b.Read(make([]byte, 16)))(t)
	r.drain(t, a) // after the reply of b
	for range 2 {
		must(a.Read(make([]byte, 16)))(t) // those of drain
	}
	acquaint(t, a, b)
	if qpn, _ := a.Route(addrOf(b)); qpn != b.QPN() {
		t.Errorf("the route leads to QP %#x, want %#x", qpn, b.QPN())
	}
	echo(t, a, b, data(100))
}

// TestLostContacts loses the replies to contacts, and later the contacts. Datagrams arrive in both cases: by UDP, and
// from QP to QP.
func TestLostContacts(t *testing.T) {
	r := newMemoryRig(t)
	a, b := r.both(t, rsocket.Config{})
	r.udp.setLose(func(_, _ netip.AddrPort, p []byte) bool {
		reply, _, _, _ := rsocket.ParseContact(p, true)
		return reply
	})
	for range 20 {
		must(a.WriteTo([]byte("x"), b.LocalAddr()))(t)
		must(b.Read(make([]byte, 1)))(t)
	}
	if _, ok := a.Route(addrOf(b)); ok {
		t.Error("there is a route without a reply")
	}
	r.udp.setLose(nil)
	acquaint(t, a, b)
	r.udp.setLose(func(_, _ netip.AddrPort, _ []byte) bool { return true })
	for range 20 {
		echo(t, a, b, data(50))
	}
}

// TestLostDatagrams loses and repeats packets between QPs. That is no error: each datagram that is sent again and again
// arrives in the end.
func TestLostDatagrams(t *testing.T) {
	r := newMemoryRig(t)
	a, b := r.both(t, rsocket.Config{})
	acquaint(t, a, b)
	r.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.3})
	r.net.AddFault(verbstest.PacketFault{Action: verbstest.Duplicate, Probability: 0.3})
	served := make(chan error, 1)
	go func() {
		for buf := make([]byte, 200); ; {
			n, from, err := b.ReadFromUDPAddrPort(buf)
			if err == nil {
				_, err = b.WriteToUDPAddrPort(buf[:n], from)
			}
			if err != nil {
				served <- err
				return
			}
		}
	}()
	buf := make([]byte, 200)
	for i := range 100 {
		d := data(i)
		for got := []byte("none"); !bytes.Equal(got, d); {
			must(a.WriteTo(d, b.LocalAddr()))(t)
			check(t, a.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
			n, err := a.Read(buf)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			got = buf[:n]
		}
	}
	check(t, b.Close())
	isError(t, <-served, net.ErrClosed)
}

// TestPacketNetworks sends datagrams on InfiniBand, and with IPv6.
func TestPacketNetworks(t *testing.T) {
	for name, options := range map[string][]verbstest.Option{"Ethernet": nil, "InfiniBand": {verbstest.InfiniBand()}} {
		for family, hosts := range map[string][2]string{
			"IPv4": {"192.0.2.1", "192.0.2.2"}, "IPv6": {"2001:db8::1", "2001:db8::2"}} {
			t.Run(name+"/"+family, func(t *testing.T) {
				r := newMemoryRig(t, options...)
				a := r.listenOn(t, r.here, rsocket.Config{}, hosts[0])
				b := r.listenOn(t, r.there, rsocket.Config{}, hosts[1])
				for range 2 {
					echo(t, a, b, data(1000))
					acquaint(t, a, b)
				}
				r.udp.setLose(func(_, _ netip.AddrPort, _ []byte) bool { return true })
				echo(t, a, b, data(1000))
			})
		}
	}
}

// TestPacketsOfBothFamilies has a server without an address, whose clients have addresses of both families.
func TestPacketsOfBothFamilies(t *testing.T) {
	for _, polling := range []time.Duration{-1, 0} {
		r := newMemoryRig(t)
		server := r.listenOn(t, r.there, rsocket.Config{Polling: polling}, "")
		clients := []*rsocket.PacketConn{r.listenOn(t, r.here, rsocket.Config{}, r.host(r.here)),
			r.listenOn(t, r.here, rsocket.Config{}, addr6(r.here).String())}
		served := make(chan error, 1)
		go func() {
			for buf := make([]byte, 4096); ; {
				n, from, err := server.ReadFromUDPAddrPort(buf)
				if err == nil {
					_, err = server.WriteToUDPAddrPort(buf[:n], from)
				}
				if err != nil {
					served <- err
					return
				}
			}
		}()
		for i := range 300 {
			c := clients[i*7%11%2] // in turn, and several times
			to := netip.AddrPortFrom(r.there.Addr(), addrOf(server).Port())
			if addrOf(c).Addr().Is6() {
				to = netip.AddrPortFrom(addr6(r.there), to.Port())
			}
			d, buf := data(i), make([]byte, 4096)
			must(c.WriteToUDPAddrPort(d, to))(t)
			n, from := must2(c.ReadFromUDPAddrPort(buf))(t)
			if !bytes.Equal(buf[:n], d) || from != to {
				t.Fatalf("%d bytes from %v, want %d from %v", n, from, len(d), to)
			}
		}
		for _, c := range clients {
			check(t, c.SetReadDeadline(time.Now()))
			if known, _ := c.Peers(); known != 1 {
				t.Errorf("%d peers are known", known)
			}
		}
		if server.QPs() != 2 {
			t.Errorf("the server has %d QPs, want 2", server.QPs())
		}
		check(t, server.Close())
		isError(t, <-served, net.ErrClosed)
	}
}

// TestPacketPortInUse has an id of another program at a port that is free for UDP: another port is chosen.
func TestPacketPortInUse(t *testing.T) {
	r := newMemoryRig(t)
	r.on(r.here, func() {
		id := must(cm.NewID(cm.PSUDP))(t)
		t.Cleanup(func() { check(t, id.Close()) })
		check(t, id.Bind(r.here.AddrPort(40001)))
	})
	a := r.listenOn(t, r.here, rsocket.Config{}, r.host(r.here))
	if port := addrOf(a).Port(); port != 40002 {
		t.Errorf("the port is %d", port)
	}
	r.on(r.here, func() {
		_, err := rsocket.ListenPacket("udp", r.here.AddrPort(40001).String())
		isError(t, err, syscall.EADDRINUSE)
	})
}

// TestPacketDeviceRemoved checks the error of calls on a device that was removed.
func TestPacketDeviceRemoved(t *testing.T) {
	r := newMemoryRig(t)
	a, b := r.both(t, rsocket.Config{})
	acquaint(t, a, b)
	read := make(chan error, 1)
	go func() {
		_, err := a.Read(make([]byte, 1))
		read <- err
	}()
	r.here.RemoveDevice()
	isError(t, <-read, uverbs.ErrDeviceGone)
	_, err := a.WriteTo(nil, b.LocalAddr())
	isError(t, err, uverbs.ErrDeviceGone)
}

// TestPacketRace reads, writes and sets deadlines from many goroutines while both ends close.
func TestPacketRace(t *testing.T) {
	for range 5 {
		r := newMemoryRig(t, verbstest.Seed(0))
		r.net.Allow(verbstest.ReceiveLate) // datagrams that are lost
		a, b := r.both(t, rsocket.Config{RecvQueue: 16, SendQueue: 16})
		var wg sync.WaitGroup
		for _, ends := range [][2]*rsocket.PacketConn{{a, b}, {b, a}} {
			me, peer := ends[0], addrOf(ends[1])
			for range 2 {
				wg.Go(func() {
					for {
						if _, err := me.WriteToUDPAddrPort(data(100), peer); err != nil {
							return
						}
					}
				})
				wg.Go(func() {
					for buf := make([]byte, 200); ; {
						if _, _, err := me.ReadFromUDPAddrPort(buf); err != nil {
							return
						}
						if me.SetDeadline(time.Now().Add(time.Minute)) != nil {
							return
						}
					}
				})
			}
		}
		acquainted := make(chan struct{})
		go func() {
			defer close(acquainted)
			for ok := false; !ok; _, ok = a.Route(addrOf(b)) {
				a.Peers()
			}
		}()
		<-acquainted
		wg.Go(func() { check(t, a.Close()) })
		wg.Go(func() { check(t, b.Close()) })
		wg.Wait()
	}
}
