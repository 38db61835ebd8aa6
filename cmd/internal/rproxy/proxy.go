package rproxy

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/quota"
	"github.com/goverbs/goverbs/rsocket"
)

// A proxy forwards connections.
type proxy struct {
	*options
	log   *log.Logger
	limit *quota.Limit // of connections, if the clients use TCP; rsockets are rejected before they are established
	open  sync.WaitGroup
	cut   atomic.Int64 // connections that were reset because the program ends
}

// A conn is an rsocket or a TCP connection.
type conn interface {
	net.Conn
	CloseWrite() error
	SetLinger(sec int) error
}

// listen returns a listener at a.
func (p *proxy) listen(ctx context.Context, a address) (net.Listener, error) {
	if a.rdma {
		lc := &rsocket.ListenConfig{Config: p.config, MaxConns: p.most, MaxConnsPerPeer: -1, MaxMemoryPerPeer: -1,
			Refused: func(peer netip.AddrPort, err error) { p.log.Printf("%v: refused: %v", peer, err) }}
		if p.mostPerPeer > 0 {
			lc.MaxConnsPerPeer = p.mostPerPeer
		}
		return lc.Listen(ctx, a.network, a.addr)
	}
	p.limit = quota.New(int64(p.most), int64(p.mostPerPeer))
	return new(net.ListenConfig).Listen(ctx, a.network, a.addr)
}

// dial connects to a.
func (p *proxy) dial(ctx context.Context, a address) (conn, error) {
	timeout := time.Duration(p.timeout) * time.Second
	if a.rdma {
		c, err := (&rsocket.Dialer{Config: p.config, Timeout: timeout}).DialContext(ctx, a.network, a.addr)
		if err != nil {
			return nil, err
		}
		return c.(conn), nil
	}
	c, err := (&net.Dialer{Timeout: timeout, ControlContext: resetUnlessReturned}).DialContext(ctx, a.network, a.addr)
	if err != nil {
		return nil, err
	}
	to := c.(conn)
	if err := to.SetLinger(-1); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, nil
}

// resetUnlessReturned sets SO_LINGER, so that closing the socket resets the connection. It may be established when the
// context of a dial ends, and the server must not take that for the end of a client that has sent nothing.
func resetUnlessReturned(_ context.Context, _, _ string, c syscall.RawConn) (err error) {
	controlErr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	return errors.Join(controlErr, err)
}

// say prints a message if the option --verbose is set.
func (p *proxy) say(format string, args ...any) {
	if p.verbose {
		p.log.Printf(format, args...)
	}
}

// serve forwards connections until ctx ends, or the listener fails.
func (p *proxy) serve(ctx context.Context) error {
	l, err := p.listen(ctx, p.from)
	if err != nil {
		return err
	}
	return p.serveAt(ctx, l)
}

// serveAt is serve for a listener, which it closes.
func (p *proxy) serveAt(ctx context.Context, l net.Listener) error {
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { closed <- l.Close() })
	p.say("listening on %v", l.Addr())
	all, end := context.WithCancelCause(context.WithoutCancel(ctx))
	err := p.acceptAll(ctx, all, l)
	if stop() {
		closed <- l.Close()
	}
	err = errors.Join(err, <-closed)
	if !p.ended(time.Duration(p.grace) * time.Second) {
		end(errEnding)
	}
	p.open.Wait()
	end(nil)
	switch n := p.cut.Load(); n {
	case 0:
		return err
	case 1:
		return errors.Join(err, context.Cause(ctx), errors.New("1 connection was reset"))
	default:
		return errors.Join(err, context.Cause(ctx), fmt.Errorf("%d connections were reset", n))
	}
}

// errEnding is why connections are reset when the program ends.
var errEnding = errors.New("the proxy ends")

// ended waits until all connections have ended. It returns false after d.
func (p *proxy) ended(d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		p.open.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// acceptPause is how long a listener of TCP rests when the system has no resources for a connection that waits, since
// Accept would return at once. Requests to rsockets are rejected then.
const acceptPause = 100 * time.Millisecond

// acceptAll accepts connections until ctx ends, and forwards each until all ends. It resets one that it accepts later.
func (p *proxy) acceptAll(ctx, all context.Context, l net.Listener) error {
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			if err != nil {
				return nil // of a listener that was closed
			}
			p.cut.Add(1)
			return reset(c.(conn))
		}
		if err != nil {
			var temporary interface{ Temporary() bool }
			if !errors.As(err, &temporary) || !temporary.Temporary() {
				return err
			}
			p.log.Print(err)
			if !p.from.rdma {
				pause(ctx, acceptPause)
			}
			continue
		}
		p.open.Add(1)
		go func() {
			defer p.open.Done()
			p.handle(all, c.(conn))
		}()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// handle forwards a connection, within the limits.
func (p *proxy) handle(ctx context.Context, c conn) {
	from := c.RemoteAddr()
	peer := from.(*net.TCPAddr).AddrPort().Addr()
	sent, received, err := p.admit(ctx, c, peer)
	switch {
	case err == errEnding:
		p.cut.Add(1)
	case errors.Is(err, errEnding): // a reset has failed
		p.cut.Add(1)
		p.log.Printf("%v: %v", from, err)
	case err != nil:
		p.log.Printf("%v: %v", from, err)
	default:
		p.say("%v: closed after %d bytes from the client, %d to it", from, sent, received)
	}
}

// admit forwards a connection if the limits permit it, or else resets it.
func (p *proxy) admit(ctx context.Context, c conn, peer netip.Addr) (sent, received int64, err error) {
	if err := p.limit.Acquire(peer, 1); err != nil {
		return 0, 0, abort(fmt.Errorf("too many connections: %w", err), c)
	}
	defer p.limit.Release(peer, 1)
	to, err := p.dial(ctx, p.to)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return 0, 0, abort(err, c)
	}
	p.say("%v: connected to %v", c.RemoteAddr(), to.RemoteAddr())
	return forward(ctx, c, to)
}
