package uverbs

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// ends returns the two ends of a TCP connection on the loopback.
func ends(t *testing.T, address string) (a, b net.Conn) {
	t.Helper()
	l := good(net.Listen("tcp", net.JoinHostPort(address, "0")))(t)
	defer l.Close()
	accepted := make(chan net.Conn)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	a = good(net.Dial("tcp", l.Addr().String()))(t)
	b = <-accepted
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// raw returns an unconnected QP on a device with these GIDs.
func raw(t *testing.T, gids ...string) (*rig, *QP) {
	t.Helper()
	r := newRig(t)
	r.k.Set(func() {
		r.k.GIDs = nil
		for i, a := range gids {
			r.k.GIDs = append(r.k.GIDs, uapi.IbUverbsGidEntry{
				Gid: netip.MustParseAddr(a).As16(), GidIndex: uint32(i), GidType: 2, PortNum: 1})
		}
	})
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	return r, good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
}

// TestHandshakeGID checks that Handshake uses the best address for the peer's, whether or not Init
// was called first, and another one if the connection uses a network that the device is not part
// of.
func TestHandshakeGID(t *testing.T) {
	for _, tc := range []struct {
		name, network string
		gids          []string
		init          bool
		want          string
	}{
		{"source of the route", "127.0.0.1", []string{"10.1.1.1", "127.0.0.1"}, false, "127.0.0.1"},
		{"after Init", "127.0.0.1", []string{"10.1.1.1", "127.0.0.1"}, true, "127.0.0.1"},
		{"TCP over IPv6, RoCE over IPv4", "::1", []string{"fe80::1", "10.1.1.1"}, true, "10.1.1.1"},
		{"RoCE over IPv4 alone", "::1", []string{"10.1.1.1"}, true, "10.1.1.1"},
		{"TCP over IPv4, RoCE over IPv6", "127.0.0.1", []string{"fe80::1", "2001:db8::1"}, true, "2001:db8::1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ca, cb := ends(t, tc.network)
			_, a := raw(t, tc.gids...)
			_, b := raw(t, tc.gids...)
			if tc.init {
				check(t, a.Init())
			}
			peer := make(chan error)
			go func() { peer <- b.Handshake(context.Background(), cb) }()
			check(t, a.Handshake(context.Background(), ca))
			check(t, <-peer)
			if got := good(a.Endpoint())(t).GID.Addr(); got != netip.MustParseAddr(tc.want) {
				t.Errorf("the local address is %v, want %s", got, tc.want)
			}
			if a.State() != StateRTS || b.State() != StateRTS {
				t.Errorf("the QPs are in %v and %v", a.State(), b.State())
			}
		})
	}
}

// TestHandshakeFails checks Handshake with a peer that closes the connection, uses another
// protocol, or sends nothing.
func TestHandshakeFails(t *testing.T) {
	_, q := raw(t, "10.1.1.1")
	for name, peer := range map[string]func(net.Conn) error{
		"leaves":    func(c net.Conn) error { return c.Close() },
		"HTTP":      func(c net.Conn) error { return second(io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n")) },
		"endless":   func(c net.Conn) error { return second(c.Write(make([]byte, 2*maxLine))) },
		"bad words": func(c net.Conn) error { return second(io.WriteString(c, helloWord+" 0000:what\n")) },
	} {
		a, b := ends(t, "127.0.0.1")
		check(t, peer(b))
		if err := q.Handshake(context.Background(), a); err == nil || q.State() != StateReset {
			t.Errorf("%s: %v, the QP is in %v", name, err, q.State())
		}
	}
	a, _ := ends(t, "127.0.0.1")
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	done := make(chan error)
	go func() { done <- q.Handshake(ctx, a) }()
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestHandshakeFailsLate checks that the QP ends in RESET if the peer fails after this end has
// connected.
func TestHandshakeFailsLate(t *testing.T) {
	hello := helloWord + " " + Endpoint{QPN: 17, MTU: MTU1024, GID: gid("10.1.1.2")}.String() + "\n"
	for name, peer := range map[string]func(c net.Conn, q *QP, stop func()) error{
		"leaves":          func(c net.Conn, _ *QP, _ func()) error { return c.Close() },
		"says other":      func(c net.Conn, _ *QP, _ func()) error { return second(io.WriteString(c, "what?\n")) },
		"silent, stopped": func(_ net.Conn, _ *QP, stop func()) error { stop(); return nil },
	} {
		for _, init := range []bool{false, true} {
			_, q := raw(t, "10.1.1.1")
			if init {
				check(t, q.Init())
			}
			ctx, stop := context.WithCancel(t.Context())
			a, b := ends(t, "127.0.0.1")
			check(t, second(io.WriteString(b, hello)))
			done := make(chan error)
			go func() { done <- q.Handshake(ctx, a) }()
			readLines(t, b, 2) // the second line means that this end has connected
			if q.State() != StateRTS {
				t.Fatalf("%s: the QP is in %v when it says that it is ready", name, q.State())
			}
			check(t, peer(b, q, stop))
			if err := <-done; err == nil || q.State() != StateReset {
				t.Errorf("%s, after Init %v: %v, the QP is in %v", name, init, err, q.State())
			}
			stop()
		}
	}
}

// readLines reads n lines of a handshake.
func readLines(t *testing.T, c net.Conn, n int) {
	t.Helper()
	for range n {
		good(readLine(c))(t)
	}
}

// A silentConn accepts writes. Reads block until its deadline.
type silentConn struct {
	net.Conn
	over chan struct{}
}

func (c *silentConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(10, 1, 1, 2), Port: 7471}
}
func (c *silentConn) Write(b []byte) (int, error) { return len(b), nil }

func (c *silentConn) SetDeadline(time.Time) error {
	close(c.over)
	return nil
}

func (c *silentConn) Read([]byte) (int, error) {
	<-c.over
	return 0, os.ErrDeadlineExceeded
}

// TestHandshakeTimeout checks that Handshake has a timeout if its ctx has none, and that a deadline
// of ctx has precedence.
func TestHandshakeTimeout(t *testing.T) {
	_, q := raw(t, "10.1.1.1")
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		err := q.Handshake(context.Background(), &silentConn{over: make(chan struct{})})
		if !errors.Is(err, unix.ETIMEDOUT) || !strings.Contains(err.Error(), "30s") || time.Since(begin) != handshakeTimeout {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		begin = time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = q.Handshake(ctx, &silentConn{over: make(chan struct{})})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, unix.ETIMEDOUT) || time.Since(begin) != time.Minute {
			t.Errorf("with a deadline, after %v: %v", time.Since(begin), err)
		}
	})
	if q.State() != StateReset {
		t.Errorf("the QP is in %v", q.State())
	}
}

func FuzzHello(f *testing.F) {
	e := Endpoint{QPN: 17, PSN: 1, MTU: MTU1024, RdAtomic: 1}
	f.Add(helloWord + " " + e.String() + "\n")
	f.Add("goverbs1 \n")
	f.Fuzz(func(t *testing.T, line string) {
		var got, again Endpoint
		if parseHello(line, &got) != nil {
			return
		}
		if err := parseHello(helloWord+" "+got.String()+"\n", &again); err != nil || again != got {
			t.Errorf("%q: %v, %v then %v", line, err, got, again)
		}
	})
}

// TestConnectRefused checks that a GID index that does not fit an address vector is refused at
// once, and an Endpoint without an MTU before the kernel sees it.
func TestConnectRefused(t *testing.T) {
	r, q := raw(t, "10.1.1.1")
	pd, cq := good(r.c.AllocPD())(t), good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	for _, g := range []GIDEntry{{Port: 1, Index: 256}, {Port: 1, Index: -1}, {Port: 0, Index: 1}} {
		if _, err := pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, GID: &g}); !errors.Is(err, ErrInvalid) {
			t.Errorf("CreateQP with GID %+v: %v", g, err)
		}
	}
	if err := q.Connect(Endpoint{QPN: 1}); !errors.Is(err, ErrInvalid) || q.State() != StateReset {
		t.Errorf("Connect without an MTU: %v", err)
	}
}
