package rsocket

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A ListenConfig has options for listening. [Listen] uses the zero value.
type ListenConfig struct {
	Config
	// Backlog is how many requests may wait for a handshake: see [cm.Options].
	Backlog int
	// MaxHandshakes is how many connections may be between request and Accept: 256 by default. Others wait.
	MaxHandshakes int
	// HandshakeTimeout limits how long a peer may take for its handshake: ten seconds by default.
	HandshakeTimeout time.Duration
	// MaxConns is how many connections may exist, from request to Close: 16384 by default, negative for no limit.
	// Clients beyond it are rejected, and their error matches [ErrServerLimit].
	MaxConns int
	// MaxConnsPerPeer is MaxConns for one IP address: half of MaxConns by default, negative for no limit.
	MaxConnsPerPeer int
	// MaxMemory is how much memory the connections may register for their buffers and queues, in bytes, from request
	// to Close, with the same error. By default, it is three quarters of RLIMIT_MEMLOCK if the process has that limit,
	// and otherwise half of the machine's memory or of GOMEMLIMIT. Negative stands for no limit. Memory of
	// [Conn.MapMemory] does not count.
	MaxMemory int64
	// MaxMemoryPerPeer is MaxMemory for the connections from one IP address: half of MaxMemory by default, so that no
	// single address can lock out others, negative for no limit.
	MaxMemoryPerPeer int64
	// Refused, if not nil, is called when the listener rejects a peer that is not an rsocket or exceeds a limit, by
	// several goroutines at the same time. It must not block. The port is 0 if the listener has no room for a further
	// connection or handshake. The address of a peer on InfiniBand without IP is not valid.
	Refused func(peer netip.AddrPort, err error)
}

// A Listener accepts connections. It implements [net.Listener], and its methods may be called concurrently.
type Listener struct {
	cm      *cm.Listener
	config  *Config
	memory  *budget
	refused func(netip.AddrPort, error) // may be nil
	addr    net.Addr

	mu       sync.Mutex
	closed   bool                  // Close was called
	pending  map[*cm.Conn]*pending // between Prepare and Accept
	deadline time.Time
	ctx      context.Context // of the calls of Accept, ends at the deadline
	cancel   context.CancelFunc
}

// A pending connection has not been accepted by the program.
type pending struct {
	conn *Conn
	peer hello
}

// Listen listens at addr, host:port: see [ListenConfig.Listen].
func Listen(network, addr string) (*Listener, error) {
	return new(ListenConfig).listen(context.Background(), network, addr)
}

// Listen listens at addr, host:port. An empty host stands for all addresses, and port 0 for one that the kernel
// chooses. Network is "tcp", "tcp4" or "tcp6". The port does not collide with one of TCP, except on iWARP.
// The [net.Listener] is a [*Listener].
//
// The error is a [*net.OpError]. It matches [ErrNoRDMA] if the address belongs to no RDMA device, and otherwise the
// errors of [cm.Listen].
func (lc *ListenConfig) Listen(ctx context.Context, network, addr string) (net.Listener, error) {
	l, err := lc.listen(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (lc *ListenConfig) listen(ctx context.Context, network, addr string) (*Listener, error) {
	l, err := lc.open(func(o *cm.ListenOptions) (*cm.Listener, error) {
		resolved, err := resolve(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		o.V6Only = network == "tcp6"
		return cm.Listen(resolved, o)
	})
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: textAddr(addr), Err: dialError(err)}
	}
	l.addr = net.TCPAddrFromAddrPort(l.cm.Addr())
	return l, nil
}

// ListenIB is [ListenConfig.Listen] at an address of the InfiniBand family. Its ServiceID stands for a port: see
// [ServiceID]. The errors are those of Listen and [cm.ListenIB].
func (lc *ListenConfig) ListenIB(at cm.IBAddr) (*Listener, error) {
	addr := IBAddr{at.GID, uint16(at.ServiceID)}
	l, err := lc.open(func(o *cm.ListenOptions) (*cm.Listener, error) { return cm.ListenIB(at, o) })
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: addr.Network(), Addr: addr, Err: dialError(err)}
	}
	l.addr = addr
	return l, nil
}

// open returns a listener for what listen listens at.
func (lc *ListenConfig) open(listen func(*cm.ListenOptions) (*cm.Listener, error)) (*Listener, error) {
	config, err := lc.Config.complete()
	if err != nil {
		return nil, err
	}
	memory, err := lc.budget(config)
	if err != nil {
		return nil, err
	}
	l := &Listener{config: config, memory: memory, refused: lc.Refused, pending: map[*cm.Conn]*pending{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	o := cm.ListenOptions{Options: config.cm(), Backlog: lc.Backlog, MaxHandshakes: lc.MaxHandshakes,
		HandshakeTimeout: lc.HandshakeTimeout, MaxConns: lc.MaxConns, MaxConnsPerPeer: lc.MaxConnsPerPeer}
	o.Prepare = l.prepare
	o.Setup = func(m *cm.Conn) error { return l.find(m).conn.setUp() }
	if lc.Refused != nil {
		o.Refused = func(peer netip.Addr, err error) { lc.Refused(netip.AddrPortFrom(peer, 0), err) }
	}
	l.cm, err = listen(&o)
	return l, err
}

// prepare creates the Conn of a request. If the peer is not an rsocket or exceeds a limit, the request is rejected.
func (l *Listener) prepare(m *cm.Conn, qp *uverbs.QPConfig) error {
	h, err := l.admit(m)
	if err != nil {
		if l.refused != nil {
			l.refused(m.RemoteAddr(), err)
		}
		return err
	}
	c := newConn(m, l.config)
	l.mu.Lock()
	l.pending[m] = &pending{c, h}
	l.mu.Unlock()
	m.Own(closerFunc(func() error { l.take(m); return nil }))
	return c.prepare(qp)
}

// admit returns the hello of a request, and counts its memory.
func (l *Listener) admit(m *cm.Conn) (hello, error) {
	data := m.PrivateData()
	if isIB(m) {
		data = data[min(len(data), ibHeaderLen):]
	}
	h, err := parseHello(data)
	if err != nil {
		return h, err
	}
	return h, l.memory.admit(m)
}

func (l *Listener) find(m *cm.Conn) *pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending[m]
}

// take returns the connection of m, and forgets it.
func (l *Listener) take(m *cm.Conn) *pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pending[m]
	delete(l.pending, m)
	return p
}

// Accept waits for a connection, a [*Conn]: see [Listener.AcceptConn].
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptConn waits for a connection. Handshakes run side by side, up to ListenConfig.MaxHandshakes of them, each for up
// to ListenConfig.HandshakeTimeout: a slow peer does not delay others. A peer that is not an rsocket, or exceeds a
// limit, is rejected, and AcceptConn goes on.
//
// The error is a [*net.OpError]. It matches [net.ErrClosed] if the listener was closed or its device removed, and
// [os.ErrDeadlineExceeded] after the deadline. Any other error is of one connection that could not be set up, for lack
// of memory for example. Its method Temporary returns true, so that servers go on after it.
func (l *Listener) AcceptConn() (*Conn, error) {
	for {
		l.mu.Lock()
		ctx := l.ctx
		l.mu.Unlock()
		m, err := l.cm.Accept(ctx)
		switch {
		case err == nil:
			p := l.take(m)
			p.conn.start(p.peer)
			return p.conn, nil
		case errors.Is(err, uverbs.ErrClosed) && errors.Is(err, cm.ErrListenerClosed):
			return nil, l.opError(net.ErrClosed)
		case errors.Is(err, cm.ErrListenerClosed):
			return nil, l.opError(err)
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			if err := l.ended(); err != nil {
				return nil, l.opError(err)
			}
		case !errors.Is(err, ErrProtocol) && !errors.Is(err, cm.ErrServerLimit): // the peer gets the reason
			return nil, l.opError(temporary{err})
		}
	}
}

func (l *Listener) opError(err error) error {
	return &net.OpError{Op: "accept", Net: network, Addr: l.addr, Err: err}
}

// ended returns why Accept returns no more connections, or nil if only the deadline has changed.
func (l *Listener) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return net.ErrClosed
	case !l.deadline.IsZero() && time.Until(l.deadline) <= 0:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// SetDeadline sets the deadline of Accept, also of calls that wait. The zero time stands for none.
func (l *Listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel() // calls that wait look at the new deadline
	l.deadline = t
	if t.IsZero() {
		l.ctx, l.cancel = context.WithCancel(context.Background())
	} else {
		l.ctx, l.cancel = context.WithDeadline(context.Background(), t)
	}
	return nil
}

// Addr returns the address that the listener listens at, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return l.addr }

// CM returns the listener of package cm, for queries of its id.
func (l *Listener) CM() *cm.Listener { return l.cm }

// Close closes the listener. Connections that Accept has returned stay open. It is idempotent. The errors are those of
// [cm.Listener.Close].
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.cancel()
	l.mu.Unlock()
	return l.cm.Close()
}
