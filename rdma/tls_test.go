package rdma_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/certtest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// configs returns configurations of TLS for a server and a client that trust each other.
func configs(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	server, client, err := must(certtest.New())(t).Configs(net.ParseIP(deviceIP))
	check(t, err)
	return server, client
}

// TestTLS checks that the sides of a connection know each other, and that it works as others do.
func TestTLS(t *testing.T) {
	server, client := configs(t)
	for _, eager := range []int{256, 4096} {
		p := connect(t, &rdma.Options{TLS: client, EagerSize: eager}, &rdma.Options{TLS: server, EagerSize: eager, Depth: 1})
		for c, want := range map[*rdma.Conn]string{p.client: "server", p.server: "client"} {
			if s := c.TLS(); s == nil || s.Version != tls.VersionTLS13 || s.PeerCertificates[0].Subject.CommonName != want {
				t.Errorf("the state of TLS is %+v: want TLS 1.3 and the certificate of %q", s, want)
			}
			if s := c.Stats(); s.Sent+s.SentBytes+s.Received+s.ReceivedBytes+s.Stalls > 0 || s.StallTime > 0 {
				t.Errorf("the handshake counts in %+v", s)
			}
		}
		served := background(func() error {
			return p.server.ServeCalls(limit(t), func(b []byte) []byte { return b })
		})
		for _, n := range []int{0, 64, 5000, 1 << 20} {
			b := make([]byte, n)
			m := must(p.client.Call(limit(t), b))(t)
			if m.Len() != n {
				t.Errorf("a reply of %d bytes to %d", m.Len(), n)
			}
			m.Release()
		}
		check(t, p.client.Close())
		check(t, within(t, served, "the server"))
	}
}

// TestTLSOff checks that the state is nil without Options.TLS.
func TestTLSOff(t *testing.T) {
	if p := connect(t, nil, nil); p.client.TLS() != nil || p.server.TLS() != nil {
		t.Error("there is a state of TLS")
	}
}

// TestTLSRefused checks that both sides learn why they do not trust each other, and that no program gets a connection.
func TestTLSRefused(t *testing.T) {
	server, client := configs(t)
	_, stranger := configs(t)
	change := func(c *tls.Config, f func(*tls.Config)) *tls.Config {
		c = c.Clone()
		f(c)
		return c
	}
	for _, c := range []struct {
		name            string
		server, client  *tls.Config
		atClient, there string
	}{
		{"no certificate", server, change(client, func(c *tls.Config) { c.Certificates = nil }),
			"certificate required", "client didn't provide a certificate"},
		{"unknown client", server, change(client, func(c *tls.Config) { c.Certificates = stranger.Certificates }),
			"unknown certificate authority", "certificate signed by unknown authority"},
		{"unknown server", server, stranger, "certificate signed by unknown authority", "bad certificate"},
		{"another server", server, change(client, func(c *tls.Config) { c.ServerName = "other" }),
			"certificate is valid for server, not other", "bad certificate"},
		{"client without TLS", server, nil, "the server uses Options.TLS and the client does not",
			"the server uses Options.TLS and the client does not"},
		{"server without TLS", nil, client, "the client uses Options.TLS and the server does not",
			"the client uses Options.TLS and the server does not"},
		{"another version", change(server, func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
				return change(server, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), nil
			}
		}), client, "protocol version", "unsupported versions"},
	} {
		t.Run(c.name, func(t *testing.T) { testTLSRefused(t, c.server, c.client, c.atClient, c.there) })
	}
}

func testTLSRefused(t *testing.T, server, client *tls.Config, atClient, atServer string) {
	p := machines(t)
	refused := make(chan error, 1)
	unknown := &rdma.Trace{ // to the programs
		Connected: func(*rdma.Conn) { t.Error("connected") },
		Ended:     func(_ *rdma.Conn, err error) { t.Errorf("ended: %v", err) },
	}
	var l *rdma.Listener
	p.onServer(func() {
		l = must(rdma.Listen(p.listenAddr(), &rdma.ListenOptions{Options: rdma.Options{TLS: server, Trace: unknown},
			Refused: func(_ netip.AddrPort, err error) { refused <- err }}))(t)
	})
	ctx, cancel := context.WithCancel(limit(t))
	accepted := background(func() error {
		_, err := l.Accept(ctx)
		return err
	})
	p.onClient(func() {
		c, err := rdma.Dial(ctx, p.addr(l), &rdma.Options{TLS: client, Trace: unknown})
		if c != nil {
			check(t, c.Close())
		}
		if !errors.Is(err, rdma.ErrUnauthenticated) || !strings.Contains(err.Error(), atClient) {
			t.Errorf("Dial returns %v: want %q", err, atClient)
		}
	})
	if err := within(t, refused, "Refused"); !errors.Is(err, rdma.ErrUnauthenticated) ||
		!strings.Contains(err.Error(), atServer) {
		t.Errorf("refused because of %v: want %q", err, atServer)
	}
	cancel()
	isError(t, within(t, accepted, "Accept"), context.Canceled)
	check(t, l.Close())
}

// TestTLSTimeout checks that a client whose server is too slow, or ends, may try again.
func TestTLSTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{200 * time.Millisecond, time.Hour} {
		p := machines(t)
		server, client := configs(t)
		begun := make(chan bool, 1)
		server.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			begun <- true
			<-h.Context().Done()
			return nil, context.Cause(h.Context())
		}
		var l *rdma.Listener
		p.onServer(func() {
			l = must(rdma.Listen(p.listenAddr(), &rdma.ListenOptions{Options: rdma.Options{TLS: server},
				HandshakeTimeout: timeout}))(t)
		})
		var dialed <-chan error
		p.onClient(func() {
			dialed = background(func() error {
				_, err := rdma.Dial(limit(t), p.addr(l), &rdma.Options{TLS: client})
				return err
			})
		})
		if timeout == time.Hour {
			<-begun
			check(t, l.Close())
		}
		err := within(t, dialed, "Dial") // ErrRejected if the time has passed before the handshake of TLS
		if !errors.Is(err, rdma.ErrDisconnected) && !errors.Is(err, cm.ErrRejected) ||
			errors.Is(err, rdma.ErrUnauthenticated) {
			t.Errorf("within %v: %v", timeout, err)
		}
		check(t, l.Close())
	}
}

// TestTLSOptions checks the errors of options of TLS.
func TestTLSOptions(t *testing.T) {
	server, client := configs(t)
	_, err := rdma.Dial(limit(t), "192.0.2.1:7471", &rdma.Options{TLS: &tls.Config{MaxVersion: tls.VersionTLS12}})
	isError(t, err, uverbs.ErrInvalid)
	client.ServerName = ""
	_, err = rdma.Dial(limit(t), ":7471", &rdma.Options{TLS: client})
	isError(t, err, uverbs.ErrInvalid)
	server.Certificates = nil
	_, err = rdma.Listen(":0", &rdma.ListenOptions{Options: rdma.Options{TLS: server}})
	isError(t, err, uverbs.ErrInvalid)
}

// TestTLSName checks that a client compares the certificate with the host that it dials.
func TestTLSName(t *testing.T) {
	p := machines(t)
	host := netip.MustParseAddr(deviceIP)
	if p.there != nil {
		host = p.there.AddrPort(1).Addr()
	}
	server, client, err := must(certtest.New())(t).Configs(host.AsSlice())
	check(t, err)
	client.ServerName = ""
	p.dial(t, &rdma.Options{TLS: client}, &rdma.Options{TLS: server})
	if s := p.client.TLS(); s == nil || s.ServerName != "" && s.ServerName != host.String() {
		t.Errorf("the state of TLS is %+v", s)
	}
	if client.ServerName != "" || client.MinVersion != 0 {
		t.Error("Dial has changed the configuration of the program")
	}
}
