package valkeyrdma

import (
	"context"
	"net"
	"sync"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A ListenConfig has options for listening. [Listen] uses the zero value.
type ListenConfig struct {
	Config
	// MaxConns is how many connections may exist, from request to Close: 256 by default, as each registers RecvBuffer and
	// 288 KiB. Half of them may be of one IP address. Clients beyond that receive [cm.ErrServerLimit].
	MaxConns int
}

// A Listener accepts connections of Valkey's clients. It implements [net.Listener], and its methods may be called
// concurrently.
type Listener struct {
	cm     *cm.Listener
	config *Config
	addr   net.Addr
	ctx    context.Context // of Accept, ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex
	pending map[*cm.Conn]*Conn // between Prepare and Accept
}

// Listen listens at addr, host:port: see [ListenConfig.Listen].
func Listen(addr string) (*Listener, error) { return new(ListenConfig).Listen(addr) }

// Listen listens at addr, host:port. An empty host stands for all addresses, and port 0 for one that the kernel
// chooses. The error is a [*net.OpError] with the errors of [cm.Listen].
func (lc *ListenConfig) Listen(addr string) (*Listener, error) {
	l, err := lc.listen(addr)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: textAddr(addr), Err: err}
	}
	return l, nil
}

func (lc *ListenConfig) listen(addr string) (*Listener, error) {
	config, err := lc.complete()
	if err != nil {
		return nil, err
	}
	l := &Listener{config: config, pending: map[*cm.Conn]*Conn{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	o := cm.ListenOptions{Options: config.options(), MaxConns: lc.MaxConns}
	if o.MaxConns == 0 {
		o.MaxConns = 256
	}
	o.Prepare = l.prepare
	o.Setup = func(m *cm.Conn) error { return l.find(m).setUp() }
	o.Established = func(_ context.Context, m *cm.Conn) error { return l.find(m).announce() }
	if l.cm, err = cm.Listen(addr, &o); err != nil {
		l.cancel()
		return nil, err
	}
	l.addr = net.TCPAddrFromAddrPort(l.cm.Addr())
	return l, nil
}

// prepare creates the Conn of a request.
func (l *Listener) prepare(m *cm.Conn, qp *uverbs.QPConfig) error {
	c := newConn(m, l.config, true)
	l.mu.Lock()
	l.pending[m] = c
	l.mu.Unlock()
	m.Own(closerFunc(func() error { l.take(m); return nil }))
	return c.prepare(qp)
}

func (l *Listener) find(m *cm.Conn) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending[m]
}

// take returns the connection of m, and forgets it.
func (l *Listener) take(m *cm.Conn) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.pending[m]
	delete(l.pending, m)
	return c
}

// announce tells the client where the buffer is.
func (c *Conn) announce() error {
	c.mu.Lock()
	defer c.unlock()
	c.owedBuffer = true
	c.sendOwed()
	return c.err
}

// Accept waits for a connection, a [*Conn]. The client may not have sent anything yet.
//
// The error is a [*net.OpError]. It matches [net.ErrClosed] if the listener was closed. Any other error is of one
// connection that could not be set up, or says that the device was removed: see [cm.Listener.Accept].
func (l *Listener) Accept() (net.Conn, error) {
	m, err := l.cm.Accept(l.ctx)
	if err != nil {
		if l.ctx.Err() != nil {
			err = net.ErrClosed
		}
		return nil, &net.OpError{Op: "accept", Net: network, Addr: l.addr, Err: err}
	}
	c := l.take(m)
	c.start()
	return c, nil
}

// Addr returns the address that the listener listens at, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return l.addr }

// Close closes the listener. Connections that Accept has returned stay open. It is idempotent. The errors are those of
// [cm.Listener.Close].
func (l *Listener) Close() error {
	l.cancel()
	return l.cm.Close()
}
