package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve runs Serve on a machine until the test ends, and returns the address that it listens at for hellos.
func serve(t *testing.T, server *verbstest.Machine) (hello string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	server.Run(func() {
		r, err := rdma.Listen(":7473", ListenOptions())
		if err != nil {
			t.Fatal(errors.Join(err, l.Close()))
		}
		go func() { served <- Serve(ctx, l, r) }()
	})
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// probeNetwork runs Serve on one machine in memory and Probe on another. prepare may plant a fault before.
func probeNetwork(t *testing.T, prepare func(n *verbstest.Network, server, client *verbstest.Machine),
) (findings []check.Finding, figures *Figures) {
	n := verbstest.NewNetwork(t)
	server, client := n.Machine(), n.Machine()
	prepare(n, server, client)
	at := serve(t, server)
	client.Run(func() {
		findings, figures = Probe(t.Context(), server.AddrPort(7473).String(), at)
	})
	return findings, figures
}

// find returns the finding with an id and a severity, or nil.
func find(findings []check.Finding, id string, s check.Severity) *check.Finding {
	i := slices.IndexFunc(findings, func(f check.Finding) bool { return f.ID == id && f.Severity == s })
	if i < 0 {
		return nil
	}
	return &findings[i]
}

func TestProbe(t *testing.T) {
	findings, figures := probeNetwork(t, func(*verbstest.Network, *verbstest.Machine, *verbstest.Machine) {})
	for _, id := range []string{"peer", "ud", "send", "read", "write", "atomic"} {
		if find(findings, id, check.OK) == nil {
			t.Errorf("%s does not work: %+v", id, findings)
		}
	}
	for _, f := range findings {
		if !Finds(f.ID) {
			t.Errorf("Finds does not know %s", f.ID)
		}
	}
	if figures == nil || figures.Calls < 8 || figures.Typical <= 0 || figures.P99 < figures.Typical ||
		figures.MBPerSec <= 0 || !strings.Contains(figures.String(), "MB/s") {
		t.Errorf("figures %+v", figures)
	}
}

// TestOperationFails checks that an operation that fails is reported.
func TestOperationFails(t *testing.T) {
	findings, _ := probeNetwork(t, func(_ *verbstest.Network, _, client *verbstest.Machine) {
		client.FailCompletion(nil, uverbs.WCLocQPOpErr, 0)
	})
	if find(findings, "ud", check.Error) == nil {
		t.Errorf("the datagram that fails is not reported: %+v", findings)
	}
}

// TestManyPeers checks that one doctor serves 50 others at once: none ends before all have connected.
func TestManyPeers(t *testing.T) {
	n := verbstest.NewNetwork(t)
	n.Allow(verbstest.ReceiveLate) // a datagram is sent again until a reply arrives, so two may arrive at once
	server := n.Machine()
	at := serve(t, server)
	var connected, ended sync.WaitGroup
	for range 50 {
		client := n.Machine()
		connected.Add(1)
		ended.Go(func() {
			client.Run(func() {
				meet := sync.OnceFunc(func() {
					connected.Done()
					connected.Wait()
				})
				defer meet()
				if err := visit(t.Context(), server.AddrPort(7473).String(), at, meet); err != nil {
					t.Error(err)
				}
			})
		})
	}
	ended.Wait()
}

// visit exchanges settings, a datagram and an atomic with a doctor that listens, as Probe does, and calls meet before
// it ends.
func visit(ctx context.Context, addr, at string, meet func()) (err error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	e, err := openEnd(ipOf(c.LocalAddr()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	d, err := newDatagrams(e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	theirs, err := exchange(ctx, c, e.hello(d), true)
	if err != nil {
		return err
	}
	if err := d.ping(ctx, *theirs.Datagrams); err != nil {
		return err
	}
	r, err := rdma.Dial(ctx, addr, &rdma.Options{MaxMessage: MaxMessage})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	token, err := rdma.RecvToken(ctx, r)
	if err != nil {
		return err
	}
	meet()
	return (&client{Conn: r, token: token}).atomics(ctx)
}

// TestBusy checks that a peer beyond the limit is told so, and is served when others have ended.
func TestBusy(t *testing.T) {
	n := verbstest.NewNetwork(t)
	server, client := n.Machine(), n.Machine()
	at := serve(t, server)
	var others []net.Conn
	for range maxPeers {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, c)
	}
	probe := func() (findings []check.Finding) {
		client.Run(func() { findings, _ = Probe(t.Context(), server.AddrPort(7473).String(), at) })
		return findings
	}
	f := find(probe(), "peer-busy", check.Error)
	if f == nil || !strings.Contains(f.Seen, "it serves 64 others") {
		t.Errorf("%+v beside %d others", f, maxPeers)
	}
	for _, c := range others {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for {
		findings := probe()
		if find(findings, "peer-busy", check.Error) != nil {
			continue // the server has not seen yet that the others have ended
		}
		if check.Worst(findings) > check.OK {
			t.Errorf("%+v when the others have ended", findings)
		}
		return
	}
}

// TestNoDevice checks that a peer that cannot use its device says why.
func TestNoDevice(t *testing.T) {
	findings, _ := probeNetwork(t, func(_ *verbstest.Network, server, _ *verbstest.Machine) {
		server.Refuse("QP.CREATE", unix.ENOSPC)
	})
	f := find(findings, "peer", check.Error)
	if f == nil || !strings.Contains(f.Seen, "the peer cannot use its device: ") ||
		!strings.Contains(f.Seen, "ENOSPC") {
		t.Errorf("%+v, want the peer's error", findings)
	}
}

// TestNoRDMA checks the findings if TCP reaches the peer, which has soft-RoCE, and RDMA does not: because no program
// listens, or because packets are lost.
func TestNoRDMA(t *testing.T) {
	for _, c := range []struct {
		cut bool
		fix string
	}{{false, "doctor -listen"}, {true, "nft insert rule"}} {
		n := verbstest.NewNetwork(t)
		server, client := n.Machine(), n.Machine()
		if c.cut {
			n.SetTimeouts(verbstest.Timeouts{Reply: time.Millisecond, Repeats: 2})
			n.Partition(server, client)
		}
		l, done := acceptOne(t, func(c net.Conn) error {
			h := &hello{Version: version, Device: "rxe0", Port: 1, Driver: "rxe", MTU: 256}
			_, err := exchange(t.Context(), c, h, false)
			return err
		})
		client.Run(func() {
			findings, figures := Probe(t.Context(), server.AddrPort(7473).String(), l.Addr().String())
			if figures != nil || len(findings) != 3 || findings[1].ID != "mtu-mismatch" || findings[2].ID != "peer-rdma" ||
				!strings.HasPrefix(findings[2].Fix, c.fix) {
				t.Errorf("%+v, %v", findings, figures)
			}
		})
		if err := errors.Join(<-done, l.Close()); err != nil {
			t.Error(err)
		}
	}
}

// acceptOne listens, and calls f with the first connection, which it closes. Then done has the error.
func acceptOne(t *testing.T, f func(c net.Conn) error) (l net.Listener, done <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = errors.Join(f(c), c.Close())
		}
		ended <- err
	}()
	return l, ended
}

// TestHostileHello checks that a peer that sends something else is reported.
func TestHostileHello(t *testing.T) {
	for _, line := range []string{"", "GET / HTTP/1.1\r\n", "{}\n", "{\"Version\":1,\"Datagrams\":\"x\"}\n",
		strings.Repeat("x", 1<<16)} {
		l, done := acceptOne(t, func(c net.Conn) error {
			_, _ = io.WriteString(c, line) // the client may have closed its end
			return nil
		})
		client := verbstest.New(t)
		client.Run(func() {
			findings, _ := Probe(t.Context(), client.AddrPort(1).String(), l.Addr().String())
			if len(findings) != 1 || findings[0].ID != "peer" || findings[0].Severity != check.Error {
				t.Errorf("%.20q: %+v", line, findings)
			}
		})
		if err := errors.Join(<-done, l.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestTexts checks that findings say what is known, and name the peer and the size of packets.
func TestTexts(t *testing.T) {
	soft := path{true, "d0", netip.MustParseAddr("10.8.0.1"), 4096}
	adapter := path{false, "eth0", soft.peer, 1024}
	smallest := path{false, "", soft.peer, 256}
	lost := errors.New("no reply")
	for _, c := range []struct {
		f        check.Finding
		fix, not string
	}{
		{soft.connectFailed(cm.ErrTimeout), "nft insert rule", "add rule"},
		{adapter.connectFailed(cm.ErrTimeout), "doctor (on the peer", "nft"},
		{soft.connectFailed(fmt.Errorf("dial: %w", cm.ErrRejected)), "doctor -listen", "4791"},
		{soft.connectFailed(fmt.Errorf("dial: %w: %w", cm.ErrServerLimit, cm.ErrRejected)), "doctor (again", "-listen"},
		{soft.result("write", "a WRITE", lost),
			"ping -c 2 -W 1 -M do -s 4128 -I d0 10.8.0.1 || ip link set d0 mtu 1500 (", "PEER"},
		{adapter.result("write", "a WRITE", lost),
			"ping -c 2 -W 1 -M do -s 1056 -I eth0 10.8.0.1 || ip link set eth0 mtu 1088 (", "PEER"},
		{smallest.result("write", "a WRITE", lost), "ping -c 2 -W 1 -M do -s 288 -I INTERFACE 10.8.0.1 (", "ip link"},
		{soft.result("ud", "a datagram", lost), "nft insert rule", "ping"},
		{soft.result("read", "a READ", errDamaged), "ethtool -S d0", "ping"},
		{noTCP(&net.DNSError{Name: "nohost.example", IsNotFound: true}), "getent hosts nohost.example", "doctor -listen"},
		{noTCP(&net.DNSError{Name: "slow.example", IsTimeout: true}), "getent hosts slow.example", "doctor -listen"},
		{noTCP(unix.ECONNREFUSED), "doctor -listen", "getent"},
	} {
		if !Finds(c.f.ID) {
			t.Errorf("Finds does not know %s", c.f.ID)
		}
		if c.f.Seen == "" || c.f.Why == "" || !strings.HasPrefix(c.f.Fix, c.fix) || strings.Contains(c.f.Fix, c.not) {
			t.Errorf("%+v, want the fix %s", c.f, c.fix)
		}
	}
	if f := soft.result("ud", "a datagram", lost); strings.Contains(f.Why, "connected") {
		t.Errorf("%+v: the ends are not connected yet", f)
	}
}
