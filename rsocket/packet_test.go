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

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
)

var (
	_ net.PacketConn = (*rsocket.PacketConn)(nil)
	_ net.Conn       = (*rsocket.PacketConn)(nil)
)

// TestPackets sends datagrams of many lengths in both directions, first by UDP, then from QP to QP.
func TestPackets(t *testing.T) {
	for name, config := range map[string]rsocket.Config{
		"defaults": {},
		"small":    {RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16, SendQueue: 16, Inline: -1, Polling: -1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPacketRig(t)
			a, b := r.both(t, config)
			for range 2 {
				for _, n := range []int{0, 1, 56, 57, 64, 1000, longest} {
					echo(t, a, b, data(n))
				}
				acquaint(t, a, b)
			}
			before := r.udp.count()
			for range 500 {
				echo(t, a, b, data(100))
			}
			if n := r.udp.count() - before; n > 100 {
				t.Errorf("%d of 1000 datagrams went by UDP", n)
			}
		})
	}
}

// echo sends a datagram from a to b, which sends it back.
func echo(t testing.TB, a, b *rsocket.PacketConn, d []byte) {
	t.Helper()
	buf := make([]byte, 4096)
	must(a.WriteTo(d, b.LocalAddr()))(t)
	n, from, err := b.ReadFrom(buf)
	check(t, err)
	if !bytes.Equal(buf[:n], d) || from.String() != a.LocalAddr().String() {
		t.Fatalf("%d bytes from %v, want %d from %v", n, from, len(d), a.LocalAddr())
	}
	must(b.WriteTo(d, from))(t)
	n, from, err = a.ReadFrom(buf)
	check(t, err)
	if !bytes.Equal(buf[:n], d) || from.String() != b.LocalAddr().String() {
		t.Fatalf("%d bytes from %v, want %d from %v", n, from, len(d), b.LocalAddr())
	}
}

// TestPacketsWithItself sends datagrams from a PacketConn to its own address.
func TestPacketsWithItself(t *testing.T) {
	r := newPacketRig(t)
	a := r.listenOn(t, r.here, rsocket.Config{}, r.host(r.here))
	for routed := false; !routed; _, routed = a.Route(addrOf(a)) {
		must(a.WriteTo([]byte("me"), a.LocalAddr()))(t)
		buf := make([]byte, 4)
		if n, from := must2(a.ReadFrom(buf))(t); n != 2 || from.String() != a.LocalAddr().String() {
			t.Fatalf("%d bytes from %v", n, from)
		}
	}
}

func must2[T, U any](v T, u U, err error) func(testing.TB) (T, U) {
	return func(t testing.TB) (T, U) {
		t.Helper()
		check(t, err)
		return v, u
	}
}

// TestPacketsOnAllAddresses has a server without an address and clients that dial it.
func TestPacketsOnAllAddresses(t *testing.T) {
	r := newPacketRig(t)
	server := r.listenOn(t, r.there, rsocket.Config{}, "")
	to := netip.MustParseAddrPort(net.JoinHostPort(r.host(r.there), "1"))
	to = netip.AddrPortFrom(to.Addr(), addrOf(server).Port())
	served := make(chan error, 1)
	go func() { // it waits before there is a QP
		buf := make([]byte, 4096)
		for {
			n, from, err := server.ReadFrom(buf)
			if err == nil {
				_, err = server.WriteTo(buf[:n], from)
			}
			if err != nil {
				served <- err
				return
			}
		}
	}()
	var wg sync.WaitGroup
	for i := range 8 {
		client := r.dialFrom(t, r.here, rsocket.Config{}, to)
		wg.Go(func() {
			buf := make([]byte, 4096)
			for k := range 100 {
				d := data(10*i + k)
				if _, err := client.Write(d); err != nil {
					t.Error(err)
					return
				}
				n, err := client.Read(buf)
				if err != nil || !bytes.Equal(buf[:n], d) {
					t.Errorf("client %d, datagram %d: %d bytes, %v", i, k, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	check(t, server.Close())
	isError(t, <-served, net.ErrClosed)
}

// TestDialedPackets checks that a PacketConn with a remote address receives from there only.
func TestDialedPackets(t *testing.T) {
	r := newPacketRig(t)
	a, b := r.both(t, rsocket.Config{})
	c := r.dialFrom(t, r.here, rsocket.Config{}, addrOf(b))
	if got := c.RemoteAddr().String(); got != b.LocalAddr().String() {
		t.Errorf("RemoteAddr %s", got)
	}
	_, err := c.WriteTo([]byte("x"), a.LocalAddr())
	isError(t, err, net.ErrWriteToConnected)
	buf := make([]byte, 16)
	must(c.Write([]byte("hello")))(t)
	_, from := must2(b.ReadFrom(buf))(t)
	// By UDP and, once it knows the QP, by RDMA.
	for range 3 {
		must(a.WriteTo([]byte("intruder"), from))(t)
	}
	must(b.WriteTo([]byte("friend"), from))(t)
	if n, from := must2(c.ReadFrom(buf))(t); string(buf[:n]) != "friend" || from.String() != b.LocalAddr().String() {
		t.Errorf("%q from %v", buf[:n], from)
	}
	_, err = b.Write([]byte("x"))
	isError(t, err, syscall.EDESTADDRREQ)
	if b.RemoteAddr() != nil {
		t.Errorf("RemoteAddr is %v without one", b.RemoteAddr())
	}
}

// TestTooLongPackets checks the error of datagrams that are too long, by UDP and by RDMA.
func TestTooLongPackets(t *testing.T) {
	r := newPacketRig(t)
	a, b := r.both(t, rsocket.Config{})
	for range 2 {
		_, err := a.WriteTo(make([]byte, a.MaxDatagram()+1), b.LocalAddr())
		isError(t, err, syscall.EMSGSIZE)
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "write" || op.Net != "rsocket" {
			t.Errorf("the error is %#v", err)
		}
		echo(t, a, b, data(longest))
		acquaint(t, a, b)
	}
	must(a.WriteTo([]byte("12345678"), b.LocalAddr()))(t)
	if n := must(b.Read(make([]byte, 3)))(t); n != 3 {
		t.Errorf("Read returns %d for a buffer of 3 bytes", n)
	}
}

// TestPacketDeadlines checks deadlines in the past, in the future and during a call.
func TestPacketDeadlines(t *testing.T) {
	r := newPacketRig(t)
	for name, host := range map[string]string{"bound": r.host(r.here), "all addresses": ""} {
		t.Run(name, func(t *testing.T) {
			a := r.listenOn(t, r.here, rsocket.Config{}, host)
			buf := make([]byte, 16)
			check(t, a.SetReadDeadline(time.Now().Add(-time.Second)))
			_, err := a.Read(buf)
			isTimeout(t, err)
			check(t, a.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
			_, err = a.Read(buf)
			isTimeout(t, err)
			check(t, a.SetReadDeadline(time.Time{}))
			read := make(chan error, 1)
			go func() {
				_, err := a.Read(buf)
				read <- err
			}()
			check(t, a.SetReadDeadline(time.Now()))
			isTimeout(t, <-read)
			check(t, a.SetWriteDeadline(time.Now()))
			_, err = a.WriteTo(buf, &net.UDPAddr{IP: net.ParseIP(r.host(r.there)), Port: 9})
			isTimeout(t, err)
		})
	}
}

func isTimeout(t *testing.T, err error) {
	t.Helper()
	isError(t, err, os.ErrDeadlineExceeded)
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("%v is not a timeout", err)
	}
}

// TestPacketClose checks that Close wakes calls that wait, and what follows it.
func TestPacketClose(t *testing.T) {
	r := newPacketRig(t)
	for name, host := range map[string]string{"bound": r.host(r.here), "all addresses": ""} {
		t.Run(name, func(t *testing.T) {
			a := r.listenOn(t, r.here, rsocket.Config{}, host)
			read := make(chan error, 4)
			for range cap(read) {
				go func() {
					_, _, err := a.ReadFrom(make([]byte, 1))
					read <- err
				}()
			}
			check(t, a.Close())
			for range cap(read) {
				isError(t, <-read, net.ErrClosed)
			}
			check(t, a.Close())
			_, err := a.WriteTo(nil, &net.UDPAddr{IP: net.ParseIP(r.host(r.there)), Port: 9})
			isError(t, err, net.ErrClosed)
			isError(t, a.SetDeadline(time.Now()), net.ErrClosed)
		})
	}
}

// TestPacketMistakes checks the errors of what a program may do wrong.
func TestPacketMistakes(t *testing.T) {
	r := newPacketRig(t)
	a := r.listenOn(t, r.here, rsocket.Config{}, r.host(r.here))
	_, err := a.WriteTo(nil, &net.TCPAddr{})
	isError(t, err, uverbs.ErrInvalid)
	_, err = a.WriteToUDPAddrPort(nil, netip.MustParseAddrPort("[2001:db8::1]:1"))
	var ae *net.AddrError
	if !errors.As(err, &ae) {
		t.Errorf("an IPv6 address: %v", err)
	}
	r.on(r.here, func() {
		_, err := rsocket.ListenPacket("udp", a.LocalAddr().String())
		isError(t, err, syscall.EADDRINUSE)
		_, err = rsocket.ListenPacket("tcp", ":0")
		var unknown net.UnknownNetworkError
		if !errors.As(err, &unknown) {
			t.Errorf("network tcp: %v", err)
		}
		_, err = rsocket.ListenPacket("udp", "127.0.0.1:0")
		isError(t, err, rsocket.ErrNoRDMA)
		for _, addr := range [][2]string{{"udp", ":1"}, {"udp", "192.0.2.7:0"}, {"udp4", "[2001:db8::1]:1"},
			{"udp6", "192.0.2.7:1"}, {"udp", "192.0.2.7"}} {
			if _, err := rsocket.DialPacket(addr[0], addr[1]); !errors.As(err, &ae) {
				t.Errorf("DialPacket(%q): %v", addr, err)
			}
		}
		_, err = (&rsocket.Dialer{LocalAddr: &net.TCPAddr{}}).DialPacket(t.Context(), "udp", "192.0.2.7:1")
		isError(t, err, uverbs.ErrInvalid)
		_, err = (&rsocket.Dialer{Config: rsocket.Config{SendQueue: 1}}).DialPacket(t.Context(), "udp", "192.0.2.7:1")
		isError(t, err, uverbs.ErrInvalid)
	})
}
