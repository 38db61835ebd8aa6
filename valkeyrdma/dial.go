package valkeyrdma

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A Dialer has options for connecting. [DialContext] uses the zero value. Its methods may be called concurrently.
type Dialer struct{ Config }

// DialContext connects to the server at addr, host:port: see [Dialer.DialContext].
func DialContext(ctx context.Context, addr string) (net.Conn, error) {
	return new(Dialer).DialContext(ctx, addr)
}

// DialContext connects to the server at addr, host:port, and exchanges features and buffers with it. The deadline of
// ctx limits that, or 30 seconds if it has none. The [net.Conn] is a [*Conn].
//
// The error is a [*net.OpError]. It matches [syscall.ECONNREFUSED] if no program listens, [ErrProtocol] if the program
// that listens is not Valkey, and otherwise the errors of [cm.Dial].
func (d *Dialer) DialContext(ctx context.Context, addr string) (net.Conn, error) {
	c, err := d.dial(ctx, addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: textAddr(addr), Err: err}
	}
	return c, nil
}

// DialCtxFn is for ClientOption.DialCtxFn of github.com/valkey-io/valkey-go: it is [DialContext] within the timeout of
// the client's dialer. As Valkey has no TLS over RDMA, it refuses a configuration of it with [uverbs.ErrNotSupported].
func DialCtxFn(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: textAddr(addr), Err: errTLS}
	}
	if d != nil && d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	return DialContext(ctx, addr)
}

func (d *Dialer) dial(ctx context.Context, addr string) (*Conn, error) {
	config, err := d.complete()
	if err != nil {
		return nil, err
	}
	var c *Conn
	o := config.options()
	o.Prepare = func(m *cm.Conn, qp *uverbs.QPConfig) error {
		c = newConn(m, config, false)
		return c.prepare(qp)
	}
	o.Setup = func(*cm.Conn) error { return c.setUp() }
	o.Established = func(ctx context.Context, _ *cm.Conn) error { return c.greet(ctx) }
	if _, err := cm.Dial(ctx, addr, &o); err != nil {
		return nil, err
	}
	c.start()
	return c, nil
}

// greet exchanges features and buffers with the server.
func (c *Conn) greet(ctx context.Context) error {
	c.mu.Lock()
	defer c.unlock()
	c.asked = true
	c.sendCommand(command{op: opGetFeature}, false)
	if err := c.wait(ctx, &c.ender, needBuffer, 0); err != nil {
		return err
	}
	if c.err != nil {
		return c.err
	}
	c.sendCommand(command{op: opSetFeature}, false) // none: there are none yet
	c.owedBuffer = true
	c.sendOwed()
	return c.err
}

// start makes a connection usable.
func (c *Conn) start() {
	c.local, c.remote = net.TCPAddrFromAddrPort(c.cm.LocalAddr()), net.TCPAddrFromAddrPort(c.cm.RemoteAddr())
	c.mu.Lock()
	defer c.unlock()
	c.startKeepAlive()
}

// A textAddr is an address as the program has written it.
type textAddr string

func (textAddr) Network() string  { return network }
func (a textAddr) String() string { return string(a) }
