package rsocket_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// TestDialErrors dials peers that are no rsocket, or not there. The error says why, and what to do.
func TestDialErrors(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(t *testing.T, p *pair) // of the machines
		addr    string                      // "" for that of the server
		want    error
		says    []string
	}{
		"no listener": {
			want: syscall.ECONNREFUSED,
			says: []string{"no program listens on that port"},
		},
		"listener closed": {
			prepare: func(t *testing.T, p *pair) { check(t, p.listen(t, rsocket.Config{}).Close()) },
			want:    syscall.ECONNREFUSED,
			says:    []string{"no program listens on that port"},
		},
		"no device here": {
			prepare: func(t *testing.T, p *pair) { p.here.RemoveDevice() },
			want:    rsocket.ErrNoRDMA,
			says:    []string{"not reachable by RDMA", "use package net for TCP"},
		},
		"no device there": {
			prepare: func(t *testing.T, p *pair) { p.there.RemoveDevice() },
			want:    rsocket.ErrNoRDMA,
			says:    []string{"the peer did not reply", "check that it is up", "use package net for TCP"},
		},
		"loopback": {
			addr: "127.0.0.1:7471",
			want: rsocket.ErrNoRDMA,
			says: []string{"use package net for TCP"},
		},
		"a program on package cm": {
			prepare: listenCM,
			want:    rsocket.ErrProtocol,
			says:    []string{"the peer does not follow the protocol", "not that of an rsocket", "check the port"},
		},
		"a program on package rdma": {
			prepare: listenRDMA,
			want:    syscall.ECONNREFUSED,
			says:    []string{"rejected"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := machines(t)
			p.net.SetTimeouts(verbstest.Timeouts{Reply: 5 * time.Millisecond, Repeats: 2})
			if test.prepare != nil {
				test.prepare(t, p)
			}
			addr := test.addr
			if addr == "" {
				addr = p.there.AddrPort(7471).String()
			}
			var err error
			p.onClient(func() { _, err = rsocket.Dial("tcp", addr) })
			isError(t, err, test.want)
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "dial" || op.Addr.String() != addr {
				t.Errorf("the error is %#v", err)
			}
			for _, text := range test.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error %q does not say %q", err, text)
				}
			}
		})
	}
}

// listenCM accepts connections as a program that uses the verbs.
func listenCM(t *testing.T, p *pair) {
	var l *cm.Listener
	p.onServer(func() {
		l = must(cm.Listen(":7471", nil))(t)
		go func() {
			for {
				c, err := l.Accept(context.Background())
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					err = c.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
		}()
	})
	t.Cleanup(func() { check(t, l.Close()) })
}

// listenRDMA accepts connections of package rdma.
func listenRDMA(t *testing.T, p *pair) {
	var l *rdma.Listener
	p.onServer(func() {
		l = must(rdma.Listen(":7471", nil))(t)
		go func() {
			for {
				c, err := l.Accept(context.Background())
				if err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Logf("the listener: %v", err)
						continue
					}
					return
				}
				t.Error("package rdma accepts an rsocket")
				check(t, c.Close())
			}
		}()
	})
	t.Cleanup(func() { check(t, l.Close()) })
}

// TestOthersDial has programs on packages cm and rdma that dial an rsocket. The listener rejects them, and goes on.
func TestOthersDial(t *testing.T) {
	p := machines(t)
	l := p.listen(t, rsocket.Config{})
	accepted := make(chan error, 1)
	p.onServer(func() {
		go func() {
			c, err := l.AcceptConn()
			if err == nil {
				err = c.Close()
			}
			accepted <- err
		}()
	})
	p.onClient(func() {
		_, err := cm.Dial(limit(t), p.addr(l), nil)
		isError(t, err, syscall.ECONNREFUSED)
		_, err = rdma.Dial(limit(t), p.addr(l), nil)
		isError(t, err, syscall.ECONNREFUSED)
		c := must(rsocket.Dial("tcp", p.addr(l)))(t)
		check(t, c.Close())
	})
	check(t, <-accepted)
	check(t, l.Close())
}

// TestListenErrors listens where that is not possible.
func TestListenErrors(t *testing.T) {
	p := machines(t)
	l := p.listen(t, rsocket.Config{})
	defer func() { check(t, l.Close()) }()
	for _, test := range []struct {
		network, addr string
		want          error
		says          string
	}{
		{"tcp", "127.0.0.1:7472", rsocket.ErrNoRDMA, "use package net for TCP"},
		{"tcp", p.there.AddrPort(7471).String(), nil, "another id has that port"},
		{"tcp", "no port", nil, "port"},
		{"unix", ":7472", nil, "unknown network unix"},
	} {
		p.onServer(func() {
			_, err := rsocket.Listen(test.network, test.addr)
			if test.want != nil {
				isError(t, err, test.want)
			}
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s %s: the error %v does not say %q", test.network, test.addr, err, test.says)
			}
		})
	}
}
