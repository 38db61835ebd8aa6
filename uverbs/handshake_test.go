package uverbs

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/internal/uapi"
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

// raw is an unconnected QP on a table of GIDs.
func raw(t *testing.T, gids ...string) (*rig, *QP) {
	t.Helper()
	r := newRig(t)
	r.k.Set(func() {
		r.k.GIDs = nil
		for i, a := range gids {
			r.k.GIDs = append(r.k.GIDs, uapi.IbUverbsGidEntry{Gid: netip.MustParseAddr(a).As16(), GidIndex: uint32(i), GidType: 2, PortNum: 1})
		}
	})
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	return r, good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
}

// Handshake takes the address that suits the peer's, whether or not Init came
// first, and another one where the connection runs in a foreign network.
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

// A peer that leaves, says something else, or says nothing.
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

// A GID that an address vector has no room for is refused at once, and an
// endpoint without an MTU before the kernel sees it.
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
