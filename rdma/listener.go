package rdma

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A Listener accepts connections. Its methods may be called concurrently.
type Listener struct {
	cm      *cm.Listener
	open    chan struct{} // closed when cm is set: peers may be refused before
	options *ListenOptions
	budget  *budget
	served  served
	shares  *sharedSet // nil without ListenOptions.SharedReceives

	accepts, refuses atomic.Uint64

	mu      sync.Mutex
	pending map[*cm.Conn]*Conn // between Prepare and Accept
}

// Listen listens at host:port. An empty host stands for all addresses, and port 0 for one that the kernel
// chooses. The errors are those of [cm.Listen], and [uverbs.ErrInvalid] for ListenOptions out of range.
func Listen(addr string, o *ListenOptions) (*Listener, error) {
	full, err := o.complete()
	if err == nil {
		err = full.completeServerTLS()
	}
	if err != nil {
		return nil, &Error{Op: "listen at " + addr, Err: err}
	}
	b, err := newBudget(full)
	if err != nil {
		return nil, &Error{Op: "listen at " + addr, Err: err}
	}
	l := &Listener{open: make(chan struct{}), options: full, budget: b, pending: map[*cm.Conn]*Conn{}}
	if full.SharedReceives > 0 {
		l.shares = newSharedSet(full, b)
	}
	defer close(l.open)
	co := full.cm()
	co.Prepare = l.prepare
	co.Setup = func(m *cm.Conn) error { return l.find(m).setUp() }
	co.Established = func(ctx context.Context, m *cm.Conn) error {
		c := l.find(m)
		err := c.setTimer()
		if err == nil {
			err = c.authenticate(ctx, client)
		}
		if isRejection(err) || errors.Is(err, ErrForged) || errors.Is(err, context.DeadlineExceeded) {
			return l.refuse(m, err)
		}
		return err
	}
	co.Refused = func(peer netip.Addr, err error) { l.refused(netip.AddrPortFrom(peer, 0), err) }
	if l.cm, err = cm.Listen(addr, &co); err != nil {
		return nil, &Error{Op: "listen at " + addr, Err: err}
	}
	return l, nil
}

// errRefused matches a refusal.
var errRefused = errors.New("rdma: the peer was refused")

// refusal is the error of a peer that was refused, in Accept.
type refusal struct{ err error }

func (r *refusal) Error() string   { return r.err.Error() }
func (r *refusal) Unwrap() []error { return []error{errRefused, r.err} }

// prepare creates the Conn of a request.
func (l *Listener) prepare(m *cm.Conn, qp *uverbs.QPConfig) error {
	h, err := parseHello(m.PrivateData(), client)
	if err == nil {
		err = h.checkTLS(&l.options.Options, client)
	}
	if err != nil {
		return l.refuse(m, err)
	}
	c := newConn(m, &l.options.Options)
	c.remote, c.account.budget, c.account.peer = h, l.budget, m.RemoteAddr().Addr().Unmap().WithZone("")
	l.mu.Lock()
	l.pending[m] = c
	l.mu.Unlock()
	m.Own(closerFunc(func() error { l.remove(m); return nil }))
	c.sharing = l.shares
	c.agree()
	err = c.prepare(qp)
	if errors.Is(err, cm.ErrServerLimit) {
		err = l.refuse(m, err)
	}
	return err
}

func (l *Listener) find(m *cm.Conn) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending[m]
}

func (l *Listener) remove(m *cm.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, m)
}

// Accept waits for a connection. Handshakes run side by side from Listen on, up to ListenOptions.MaxHandshakes of them
// with the connections that wait for Accept, each for up to ListenOptions.HandshakeTimeout: a slow peer does not delay
// others, and a client may have sent messages before Accept is called. A peer that fails its handshake, does not use
// this package, or exceeds a limit of ListenOptions is refused, and ListenOptions.Refused and Options.Logger are
// notified. The error of a client that exceeds a limit matches [ErrServerLimit], and [ErrServerBusy] if there are too
// many handshakes.
//
// Accept returns context.Cause(ctx) if ctx ends first, and an error that matches net.ErrClosed if the
// listener was closed or its device removed. Any other error is of one connection that could not be set up:
// the errors of creating a QP and of registering memory. A loop that accepts may go on after it.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	for {
		m, err := l.cm.Accept(ctx)
		if errors.Is(err, errRefused) {
			continue
		}
		if err != nil {
			return nil, &Error{Op: "accept at", Local: l.Addr(), Err: err}
		}
		c := l.find(m)
		l.remove(m)
		c.start()
		l.accepts.Add(1)
		return c, nil
	}
}

// refuse reports that a peer is refused because of err, and returns the error of its handshake.
func (l *Listener) refuse(m *cm.Conn, err error) error {
	l.refused(m.RemoteAddr(), err)
	return &refusal{err}
}

func (l *Listener) refused(peer netip.AddrPort, err error) {
	l.refuses.Add(1)
	if log := l.options.Logger; log != nil {
		<-l.open
		log.Warn("rdma: refused", "local", l.Addr(), "peer", peer, "error", err)
	}
	if f := l.options.Refused; f != nil {
		f(peer, err)
	}
}

// Addr returns the address that the listener listens at.
func (l *Listener) Addr() netip.AddrPort { return l.cm.Addr() }

// Close closes the listener. Connections that Accept has returned stay open. It is idempotent. The errors are
// those of [cm.Listener.Close].
func (l *Listener) Close() error { return errors.Join(l.cm.Close(), l.shares.close()) }

// ListenerStats say what a listener has done since its begin, and what its connections use.
type ListenerStats struct {
	Accepted, Refused uint64 // clients
	Memory, MaxMemory int64  // registered bytes, as ListenOptions.MaxMemory counts them, and their limit; 0 without one
}

// Stats returns what the listener has done.
func (l *Listener) Stats() ListenerStats {
	s := ListenerStats{Accepted: l.accepts.Load(), Refused: l.refuses.Load()}
	if b := l.budget; b != nil && b.total > 0 {
		_, s.Memory = b.used.Used(netip.Addr{})
		s.MaxMemory = b.total
	}
	return s
}
