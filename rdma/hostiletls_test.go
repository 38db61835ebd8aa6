package rdma

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/certtest"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// tlsHello is the hello of a peer that sets Options.TLS.
func tlsHello() []byte {
	h := honestHello()
	h.features |= featureTLS
	return h.bytes()
}

// tlsConfigs returns configurations of a server and a client that trust each other.
func tlsConfigs(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	a, err := certtest.New()
	server, client, e := good(t, a, err).Configs()
	good(t, server, e)
	return server, client
}

// A guarded is a listener with Options.TLS, whose clients without a certificate get nothing.
type guarded struct {
	l       *Listener
	addr    string
	refused chan error
}

// guard returns a listener on a machine that accepts connections until the test ends. Those that it accepts are closed.
func guard(t *testing.T, m *verbstest.Machine, config *tls.Config, timeout time.Duration) *guarded {
	t.Helper()
	g := &guarded{refused: make(chan error, 1)}
	m.Run(func() {
		var err error
		g.l, err = Listen(":0", &ListenOptions{Options: Options{TLS: config}, HandshakeTimeout: timeout,
			Refused: func(_ netip.AddrPort, err error) { g.refused <- err }})
		good(t, g.l, err)
		g.addr = m.AddrPort(g.l.Addr().Port()).String()
		served := make(chan error, 1)
		go func() {
			served <- g.l.Serve(t.Context(), func(ctx context.Context, c *Conn) error {
				return c.ServeCalls(ctx, func(b []byte) []byte { return b })
			})
		}()
		t.Cleanup(func() {
			if err := errors.Join(g.l.Close(), <-served); err != nil {
				t.Error(err)
			}
		})
	})
	return g
}

// dial returns a hostile client of a guarded listener.
func (g *guarded) dial(t *testing.T, m *verbstest.Machine) *hostile {
	t.Helper()
	h := &hostile{t: t, ctx: bounded(t)}
	m.Run(func() {
		c, err := cm.Dial(h.ctx, g.addr, h.options(tlsHello()))
		h.conn = good(t, c, err)
	})
	t.Cleanup(h.close)
	return h
}

func hostileNetwork(t *testing.T) *verbstest.Network {
	n := verbstest.NewNetwork(t)
	n.Allow(verbstest.RemoteAccess, verbstest.ReceiveLate, verbstest.ReceiveLength, verbstest.BadRequest,
		verbstest.CQCapacity, verbstest.Unsignaled)
	return n
}

// TestTLSStall checks that a client which connects and proves nothing is refused in time, and delays nobody.
func TestTLSStall(t *testing.T) {
	n := hostileNetwork(t)
	here, there := n.Machine(), n.Machine()
	server, client := tlsConfigs(t)
	g := guard(t, there, server, 300*time.Millisecond)
	g.dial(t, here)
	here.Run(func() {
		c, err := Dial(bounded(t), g.addr, &Options{TLS: client})
		good(t, c, err)
		m, err := c.Call(bounded(t), []byte("hello"))
		good(t, m, err).Release()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := <-g.refused; !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "in time") {
		t.Errorf("refused because of %v", err)
	}
}

// TestTLSHostile checks that a client which sends anything before its proof is refused, and told why.
func TestTLSHostile(t *testing.T) {
	server, _ := tlsConfigs(t)
	for name, c := range map[string]struct {
		send func(h *hostile) bool
		want error
	}{
		"call":    {func(h *hostile) bool { return h.send(kindCall, 0, 1, []byte("call")) }, ErrProtocol},
		"offer":   {func(h *hostile) bool { return h.offer(offer{kind: kindMessage, length: 1 << 20}, 0) }, ErrProtocol},
		"garbage": {func(h *hostile) bool { return h.send(kindMessage, 0, 0, make([]byte, 4096)) }, ErrUnauthenticated},
		"empty": {func(h *hostile) bool {
			return h.send(kindMessage, 0, 0, nil) && h.send(kindMessage, 0, 0, []byte("GET / HTTP/1.1\r\n"))
		}, ErrUnauthenticated},
		"reply":   {func(h *hostile) bool { return h.send(kindReply, 0, 0, nil) }, ErrProtocol},
		"trailer": {func(h *hostile) bool { return h.send(kindReplyTrailer, 0, 0, trailed("yes")) }, ErrProtocol},
		"write":   {func(h *hostile) bool { return h.post(uverbs.OpWriteImm, 7, nil) }, ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			n := hostileNetwork(t)
			here, there := n.Machine(), n.Machine()
			g := guard(t, there, server, 0)
			h := g.dial(t, here)
			c.send(h)
			if err := <-g.refused; !errors.Is(err, c.want) {
				t.Errorf("refused because of %v: want %v", err, c.want)
			}
		})
	}
}

// TestTLSReason checks what a client that is rejected gets.
func TestTLSReason(t *testing.T) {
	n := hostileNetwork(t)
	here, there := n.Machine(), n.Machine()
	server, _ := tlsConfigs(t)
	g := guard(t, there, server, 0)
	h := g.dial(t, here)
	h.send(kindMessage, 0, 0, []byte("GET / HTTP/1.1\r\n"))
	<-g.refused
	for {
		k, _, body := h.recv()
		if k != kindEnd {
			continue // an alert of TLS
		}
		f, err := parseFarewell(body, defaultDepth)
		if err != nil || f.reason == nil || f.reason.Code != CodeUnauthenticated ||
			!strings.Contains(f.reason.Text, "does not look like a TLS handshake") {
			t.Errorf("the end is %+v, %v", f.reason, err)
		}
		return
	}
}

// relay passes SENDs on until a connection ends.
func (h *hostile) relay(to *hostile) {
	for {
		wc, err := h.conn.RecvComp(h.ctx)
		if err != nil || wc.Err() != nil {
			break
		}
		slot := h.mr.SGE(int(wc.WRID)*4096, 4096)
		body := h.mr.Bytes()[wc.WRID*4096:][:wc.ByteLen]
		if !to.post(uverbs.OpSendImm, wc.Imm, body) || h.conn.PostRecv(wc.WRID, slot) != nil {
			break
		}
	}
	// The other side is to notice, too. An error means that its connection has ended.
	_ = to.conn.ID().ID.Disconnect()
}

// TestTLSRelay checks that a machine between client and server that passes on their messages does not become the peer
// of either.
func TestTLSRelay(t *testing.T) {
	n := hostileNetwork(t)
	here, middle, there := n.Machine(), n.Machine(), n.Machine()
	server, client := tlsConfigs(t)
	g := guard(t, there, server, 0)
	toServer, toClient := g.dial(t, middle), &hostile{t: t, ctx: bounded(t)}
	var l *cm.Listener
	var relays sync.WaitGroup
	middle.Run(func() {
		var err error
		l, err = cm.Listen(":0", &cm.ListenOptions{Options: *toClient.options(tlsHello())})
		good(t, l, err)
		relays.Go(func() {
			if c, err := l.Accept(toClient.ctx); err != nil {
				t.Error(err)
				return
			} else {
				toClient.conn = c
			}
			relays.Go(func() { toClient.relay(toServer) })
			toServer.relay(toClient)
		})
	})
	here.Run(func() {
		c, err := Dial(bounded(t), middle.AddrPort(l.Addr().Port()).String(), &Options{TLS: client})
		if c != nil {
			t.Error("the client is connected", c.Close())
		}
		if !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), "of another connection") {
			t.Errorf("Dial returns %v", err)
		}
	})
	if err := <-g.refused; !errors.Is(err, ErrUnauthenticated) || !errors.Is(err, errPassedOn) {
		t.Errorf("refused because of %v", err)
	}
	relays.Wait()
	toClient.close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
