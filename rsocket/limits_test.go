package rsocket_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// limited starts an echo server on p.there with the limits of lc.
func (p *pair) limited(t *testing.T, lc rsocket.ListenConfig) *rsocket.Listener {
	var l *rsocket.Listener
	served := make(chan error, 1)
	p.onServer(func() {
		l = must(lc.Listen(t.Context(), "tcp", ":7471"))(t).(*rsocket.Listener)
		go func() {
			for {
				c, err := l.AcceptConn()
				if err != nil {
					served <- err
					return
				}
				go func() { _, _ = io.Copy(c, c); _ = c.Close() }() // the client closes it
			}
		}()
	})
	t.Cleanup(func() {
		check(t, l.Close())
		isError(t, within(t, served, "Accept"), net.ErrClosed) // clients beyond a limit cause no error
	})
	return l
}

// clientOn dials l from a machine. The connection is closed at the end of the test.
func (p *pair) clientOn(t *testing.T, m *verbstest.Machine, l *rsocket.Listener) (c *rsocket.Conn, err error) {
	m.Run(func() { c, err = rsocket.Dial("tcp", p.addr(l)) })
	if err == nil {
		t.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	}
	return c, err
}

// refused checks that a machine's client is refused, and that its error has the given parts.
func (p *pair) refused(t *testing.T, m *verbstest.Machine, l *rsocket.Listener, parts ...string) {
	t.Helper()
	_, err := p.clientOn(t, m, l)
	isError(t, err, cm.ErrServerLimit)
	isError(t, err, syscall.ECONNREFUSED)
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %v, without %q", err, part)
		}
	}
}

// TestMaxMemory checks the limits of one peer and of all, and that the errors of clients name them. A connection that
// is closed makes room.
func TestMaxMemory(t *testing.T) {
	need := must(rsocket.ConnMemory(rsocket.Config{}))(t)
	p := machines(t)
	other := p.net.Machine()
	all, each := 3*need+need/2, 2*need
	l := p.limited(t, rsocket.ListenConfig{MaxMemory: all, MaxMemoryPerPeer: each})
	perPeer := fmt.Sprintf("ListenConfig.MaxMemoryPerPeer: %d bytes wanted, %d of %d in use", need, each, each)
	total := fmt.Sprintf("ListenConfig.MaxMemory: %d bytes wanted, %d of %d in use", need, 3*need, all)
	first := must(p.clientOn(t, p.here, l))(t)
	must(p.clientOn(t, p.here, l))(t)
	p.refused(t, p.here, l, perPeer)
	must(p.clientOn(t, other, l))(t)
	p.refused(t, other, l, total)
	check(t, first.Close())
	until(t, "a place is free", func() bool { _, err := p.clientOn(t, other, l); return err == nil })
	p.refused(t, p.here, l, total)
	p.refused(t, other, l, perPeer)
}

// TestMaxMemory6 checks that the error of a client with an IPv6 address has the limit, too.
func TestMaxMemory6(t *testing.T) {
	need := must(rsocket.ConnMemory(rsocket.Config{}))(t)
	p := machines(t)
	p.limited(t, rsocket.ListenConfig{MaxMemoryPerPeer: need})
	addr := netip.AddrPortFrom(addr6(p.there), 7471).String()
	dial := func() (c *rsocket.Conn, err error) {
		p.onClient(func() { c, err = rsocket.Dial("tcp6", addr) })
		return c, err
	}
	c := must(dial())(t)
	_, err := dial()
	want := fmt.Sprintf("ListenConfig.MaxMemoryPerPeer: %d bytes wanted, %d of %d in use", need, need, need)
	if !errors.Is(err, cm.ErrServerLimit) || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, without %q", err, want)
	}
	check(t, c.Close())
}

// TestRefused checks that a listener reports clients that exceed a limit on memory or are not rsockets.
func TestRefused(t *testing.T) {
	need := must(rsocket.ConnMemory(rsocket.Config{}))(t)
	type refusal struct {
		peer netip.AddrPort
		err  error
	}
	refusals := make(chan refusal, 10)
	p := machines(t)
	l := p.limited(t, rsocket.ListenConfig{MaxMemory: need,
		Refused: func(peer netip.AddrPort, err error) { refusals <- refusal{peer, err} }})
	isRefused := func(want error) {
		t.Helper()
		r := <-refusals
		isError(t, r.err, want)
		if r.peer.Addr() != p.here.Addr() {
			t.Errorf("the peer is %v, want %v", r.peer, p.here.Addr())
		}
	}
	must(p.clientOn(t, p.here, l))(t)
	p.refused(t, p.here, l)
	isRefused(cm.ErrServerLimit)
	p.onClient(func() {
		if _, err := cm.Dial(t.Context(), p.addr(l), nil); !errors.Is(err, cm.ErrRejected) {
			t.Errorf("a client without a hello: %v", err)
		}
	})
	isRefused(rsocket.ErrProtocol)
}

// TestMaxConns checks the limits on connections.
func TestMaxConns(t *testing.T) {
	for _, lc := range []rsocket.ListenConfig{{MaxConns: 2, MaxConnsPerPeer: -1}, {MaxConnsPerPeer: 2}} {
		t.Run("", func(t *testing.T) {
			p := machines(t)
			refused := make(chan error, 1)
			lc.Refused = func(_ netip.AddrPort, err error) {
				select {
				case refused <- err:
				default: // later ones
				}
			}
			l := p.limited(t, lc)
			first := must(p.clientOn(t, p.here, l))(t)
			must(p.clientOn(t, p.here, l))(t)
			p.refused(t, p.here, l)
			isError(t, <-refused, cm.ErrServerLimit)
			check(t, first.Close())
			until(t, "a place is free", func() bool { _, err := p.clientOn(t, p.here, l); return err == nil })
		})
	}
}

// TestDefaultMemory checks that one host's idle connections do not lock out others where a process may lock no more
// than 8 MiB, the default of Linux, and that the kernel never refuses what the limits permit.
func TestDefaultMemory(t *testing.T) {
	p := machines(t)
	other := p.net.Machine()
	p.there.SetLimits(verbstest.Limits{Memlock: 8 << 20})
	l := p.limited(t, rsocket.ListenConfig{})
	count := func(m *verbstest.Machine) (n int) {
		for ; ; n++ {
			if _, err := p.clientOn(t, m, l); err != nil {
				isError(t, err, cm.ErrServerLimit)
				return n
			}
		}
	}
	if a, b := count(p.here), count(other); a < 4 || b < 4 {
		t.Errorf("%d connections from one host, then %d from another", a, b)
	}
}

// TestMemoryOptions checks limits that no connection fits in, and those that stand for none.
func TestMemoryOptions(t *testing.T) {
	need := must(rsocket.ConnMemory(rsocket.Config{}))(t)
	p := machines(t)
	p.onServer(func() {
		for _, lc := range []rsocket.ListenConfig{{MaxMemory: need - 1}, {MaxMemoryPerPeer: 1}} {
			_, err := lc.Listen(t.Context(), "tcp", ":7471")
			isError(t, err, uverbs.ErrInvalid)
		}
	})
	for _, lc := range []rsocket.ListenConfig{
		{MaxMemory: -1}, {MaxMemory: need}, {MaxMemory: -1, MaxMemoryPerPeer: need},
	} {
		t.Run("", func(t *testing.T) {
			p := machines(t)
			l := p.limited(t, lc)
			must(p.clientOn(t, p.here, l))(t)
			_, err := p.clientOn(t, p.here, l)
			if limited := errors.Is(err, cm.ErrServerLimit); limited != (lc.MaxMemory > 0 || lc.MaxMemoryPerPeer > 0) {
				t.Errorf("%+v: the second client's error is %v", lc, err)
			}
		})
	}
}
