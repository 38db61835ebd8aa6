package devicetest

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// linkLocal returns the link-local address of the device, with its zone.
func linkLocal(t *testing.T) netip.Addr {
	t.Helper()
	addrs := must(machine.InterfaceAddrs())(t)
	if !inMemory {
		addrs = must(must(net.InterfaceByName(netdev))(t).Addrs())(t)
	}
	for _, a := range addrs {
		ip := netip.MustParsePrefix(a.String()).Addr()
		if ip.Is6() && ip.IsLinkLocalUnicast() {
			return ip.WithZone(netdev)
		}
	}
	t.Fatalf("%s has no link-local address", netdev)
	return netip.Addr{}
}

// TestDeviceZone connects over link-local addresses, which need a zone.
func TestDeviceZone(t *testing.T) {
	begin(t)
	ip := linkLocal(t)
	waitGID(t, ip.WithZone(""))
	l := listenAt(t, netip.AddrPortFrom(ip, 0).String(), nil)
	if l.Addr().Addr() != ip {
		t.Errorf("listening at %v, want %v", l.Addr(), ip)
	}
	client, server := connect(t, l, nil)
	// On the accepting side the kernel reports no zone.
	for _, a := range []netip.AddrPort{client.LocalAddr(), client.RemoteAddr(), server.LocalAddr(), server.RemoteAddr()} {
		if a.Addr() != ip && (a.Addr().Zone() != "" || a.Addr() != ip.WithZone("")) {
			t.Errorf("an address is %v, want %v", a, ip)
		}
	}
	carries(t, client.ID().ID, server.ID().ID, "over a link")

	index := must(machine.InterfaceIndex(netdev))(t)
	numbered := listenAt(t, netip.AddrPortFrom(ip.WithZone(itoa(index)), 0).String(), nil)
	if numbered.Addr().Addr() != ip {
		t.Errorf("listening at %v, want %v", numbered.Addr(), ip)
	}
	_, err := cm.Listen(netip.AddrPortFrom(ip.WithZone("nosuch"), 0).String(), nil)
	isError(t, err, []error{uverbs.ErrInvalid}, "no network interface nosuch")
	_, err = cm.Listen(netip.AddrPortFrom(ip.WithZone(""), 0).String(), nil)
	isError(t, err, []error{uverbs.ErrInvalid}, "zone")
}

// TestDeviceAnyAddress listens on all addresses, of both families or of one.
func TestDeviceAnyAddress(t *testing.T) {
	begin(t)
	needV6(t)
	for _, test := range []struct {
		host   string
		v6Only bool
		reach  map[string]bool
	}{
		{"", false, map[string]bool{deviceIP: true, deviceV6: true}},
		{"[::]", false, map[string]bool{deviceIP: true, deviceV6: true}},
		{"", true, map[string]bool{deviceIP: false, deviceV6: true}},
		{"0.0.0.0", false, map[string]bool{deviceIP: true, deviceV6: false}},
	} {
		l := listenAt(t, test.host+":0", &cm.ListenOptions{V6Only: test.v6Only})
		if l.ID().Verbs() != nil || !l.Addr().Addr().IsUnspecified() || l.Addr().Port() == 0 {
			t.Errorf("%q: listening at %v of %v", test.host, l.Addr(), l.ID().Verbs())
		}
		for ip, reached := range test.reach {
			if rnic() && ip == deviceIP && test.host != "0.0.0.0" { // also with C
				reached = false
			}
			ctx := limit(t)
			to := at(ip, l.Addr().Port()).String()
			if !reached {
				_, err := cm.Dial(ctx, to, nil)
				isError(t, err, []error{cm.ErrRejected}, to)
				continue
			}
			accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
			c := must(cm.Dial(ctx, to, nil))(t)
			s := accepted(t)
			if s.LocalAddr() != at(ip, l.Addr().Port()) {
				t.Errorf("%q: the connection's address is %v, want %v", test.host, s.LocalAddr(), to)
			}
			check(t, c.Close())
			check(t, s.Close())
		}
	}
}

// TestDeviceNoSuchAddress uses addresses that do not belong to the machine or do not
// lead to an RDMA device.
func TestDeviceNoSuchAddress(t *testing.T) {
	begin(t)
	ctx := limit(t)
	_, err := cm.Listen("10.9.0.77:0", nil)
	isError(t, err, []error{uverbs.ErrNoDevice, unix.EADDRNOTAVAIL}, "bind 10.9.0.77:0", "rdma link")
	_, err = cm.Dial(ctx, "127.0.0.1:4000", nil)
	isError(t, err, []error{uverbs.ErrNoDevice}, "127.0.0.1:4000", "rdma link")
	_, err = cm.Dial(ctx, deviceIP+":4000", &cm.Options{LocalAddr: at("10.9.0.77", 0)})
	isError(t, err, []error{uverbs.ErrNoDevice, unix.EADDRNOTAVAIL}, "10.9.0.77")
	_, err = cm.Dial(ctx, deviceIP+":4000", &cm.Options{LocalAddr: at("127.0.0.1", 0)})
	if rnic() { // TCP connects from there
		isError(t, err, []error{cm.ErrRejected})
	} else {
		isError(t, err, []error{uverbs.ErrNoDevice, unix.ENODEV}, "rdma link")
	}
	_, err = cm.Dial(ctx, "10.8.0.1:4000", nil)
	isError(t, err, []error{cm.ErrUnreachable, unix.ENETUNREACH}, "10.8.0.1:4000", "no route")
}

// TestDeviceSilentNeighbour resolves an address that does not reply. The resolution
// ends after its timeout, or with the context.
func TestDeviceSilentNeighbour(t *testing.T) {
	begin(t)
	d := newDevice(t, 1)
	ctx := limit(t)
	to := at(d.ip.String(), 4000)
	silent := netip.AddrPortFrom(to.Addr().Next().Next(), to.Port())
	i := must(cm.NewID(cm.PSTCP))(t)
	closing(t, i)
	start := time.Now()
	err := i.ResolveAddr(ctx, netip.AddrPort{}, silent, 100*time.Millisecond)
	isError(t, err, []error{cm.ErrTimeout, unix.ETIMEDOUT}, silent.String(), "neighbor")
	if e, ok := err.(interface{ Timeout() bool }); !ok || !e.Timeout() {
		t.Errorf("%T is no timeout", err)
	}
	t.Logf("resolving took %v", time.Since(start))
	// The id remains usable.
	check(t, i.ResolveAddr(ctx, netip.AddrPort{}, to, 0))

	cut, cancel := withTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = cm.Dial(cut, silent.String(), &cm.Options{ResolveTimeout: time.Minute})
	isError(t, err, []error{errCut})
}

// TestDeviceSilentPeer dials an address in the device's network that no machine has. The context ends Dial. On iWARP,
// where the kernel connects by TCP during the command, Close ends Connect, too.
func TestDeviceSilentPeer(t *testing.T) {
	begin(t)
	now := leavesNothing(t)
	silent := at(netip.MustParseAddr(deviceIP).Next().Next().String(), 4000)
	cut, cancel := withTimeout(limit(t), 300*time.Millisecond)
	defer cancel()
	_, err := cm.Dial(cut, silent.String(), &cm.Options{ResolveTimeout: time.Minute})
	isError(t, err, []error{errCut})
	if rnic() {
		i := must(cm.NewID(cm.PSTCP))(t)
		check(t, i.ResolveAddr(limit(t), netip.AddrPort{}, silent, 0))
		check(t, i.ResolveRoute(limit(t), 0))
		check(t, i.CreateQP(nil, small()))
		ctx := limit(t)
		result := make(chan error, 1)
		go func() { result <- i.Connect(ctx, nil) }()
		eventually(t, "the request", func() bool { return asks(t) })
		check(t, i.Close())
		isError(t, <-result, []error{uverbs.ErrClosed})
	}
	now()
}

// asks reports whether the kernel waits for a peer that it asked for a TCP connection: whether a socket is in SYN_SENT.
func asks(t *testing.T) bool {
	t.Helper()
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/net/tcp"))(t))) {
		if f := strings.Fields(line); f[3] == "02" {
			return true
		}
	}
	return false
}

// TestDeviceNobodyListens dials a port that no program listens on.
func TestDeviceNobodyListens(t *testing.T) {
	begin(t)
	_, err := cm.Dial(limit(t), deviceIP+":4000", nil)
	isError(t, err, []error{cm.ErrRejected, unix.ECONNREFUSED}, deviceIP+":4000", "no program listens")
	rejected(t, err, cm.RejectInvalidServiceID, "")
}
