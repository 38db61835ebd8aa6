package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A Conn is a connection. Its methods may be called concurrently.
type Conn struct {
	cm      *cm.Conn
	qp      *uverbs.QP
	cq      *uverbs.CQ
	pool    *pool
	options *Options
	remote  hello // what the peer has said
	local   netip.AddrPort
	peer    netip.AddrPort
	inline  int // SENDs up to this length need no memory

	mu       sync.Mutex
	err      error                   // why the connection has ended, or nil
	eof      bool                    // the peer has sent everything
	closing  bool                    // Close was called
	endFlush context.CancelCauseFunc // ends the wait of Close
	done     chan struct{}           // closed when Close has ended
	stats    Stats

	leading     bool // a caller polls without c.mu
	leaderDone  sync.Cond
	woken       int // callers that were woken and have not got c.mu yet
	idleWaiters []*waiter
	turns       uint64 // number of the last
	lists
	wcs [32]uverbs.WC // of the leader

	sendQueue
	receiveQueue
	messages flow
	replies  flow
	control  control
	calls    calls
	windows  []window // for offers
	shares   map[*Share]struct{}
	idleOps  *op

	keepAlive *time.Timer
	busy      bool // something was sent to the peer since the timer last ran

	watcher watcher // of a test, or nil
	closed  func()  // ends the watch of the connection; nil if watcher is
}

// Dial connects to a listener of this package at addr, host:port. If ctx has no deadline and
// Options.Timeout is 0, it gives up after 30 seconds.
//
// Dial returns [ErrProtocol] if the peer does not use this package. Otherwise the errors are those of
// [cm.Dial], with [uverbs.ErrInvalid] for Options out of range.
func Dial(ctx context.Context, addr string, o *Options) (*Conn, error) {
	full, err := o.complete(maxDialData)
	if err != nil {
		return nil, &Error{Op: "dial", Err: err}
	}
	var c *Conn
	co := full.cm()
	co.Prepare = func(m *cm.Conn, qp *uverbs.QPConfig) error {
		c = newConn(m, full)
		return c.prepare(qp)
	}
	co.Setup = func(*cm.Conn) error { return c.setUp() }
	m, err := cm.Dial(ctx, addr, &co)
	if err != nil {
		return nil, &Error{Op: "dial", Err: err}
	}
	if c.remote, err = parseHello(m.PrivateData()); err != nil {
		return nil, &Error{Op: "dial", Peer: m.PeerAddr(), Err: errors.Join(err, m.Close())}
	}
	if err := c.start(); err != nil {
		return nil, &Error{Op: "dial", Peer: m.PeerAddr(), Err: errors.Join(err, m.Close())}
	}
	return c, nil
}

func newConn(m *cm.Conn, o *Options) *Conn {
	c := &Conn{cm: m, options: o, done: make(chan struct{}), shares: map[*Share]struct{}{}}
	c.leaderDone.L = &c.mu
	return c
}

// Each queue has some requests more than messages: READs and other requests of this side, and what the
// protocol sends beside messages.
const (
	extraSends = 16
	maxSends   = 256 // requests in the send queue
	inlineSize = 128
)

// extraReceives returns how many receives are for SENDs without a credit: one for each offer that the peer has read, up
// to two for credits of each flow, and one for the end.
func (c *Conn) extraReceives() int { return 2*c.options.Offers + 8 }

// sendDepth returns the length of the send queue.
func (c *Conn) sendDepth() int {
	return min(2*c.options.Depth, maxSends) + c.reservedSends()
}

// prepare creates what the QP needs.
func (c *Conn) prepare(qp *uverbs.QPConfig) error {
	c.cm.Own(closerFunc(c.closeResources))
	c.pool = openPool(c.cm.PD())
	qp.MaxSendWR = c.sendDepth()
	receives := c.options.Depth + c.extraReceives()
	qp.MaxRecvWR = receives + replyDepth(c.options.Depth)
	qp.MaxInline = inlineSize
	cq, err := c.cm.Verbs().CreateCQ(uverbs.CQConfig{Entries: qp.MaxSendWR + qp.MaxRecvWR})
	if err != nil {
		return err
	}
	c.cq = cq
	qp.SendCQ, qp.RecvCQ = cq, cq
	c.initReceives(qp.MaxRecvWR)
	return c.allocReceives(receives)
}

// setUp posts the receives.
func (c *Conn) setUp() error {
	c.qp = c.cm.QP()
	c.inline = c.qp.Cap().MaxInline
	c.initSends(c.sendDepth()) // the device may have room for more, but the completion queue has not
	return c.postReceives(c.slots[:c.filled])
}

// start begins the exchange of messages. c.remote is set.
func (c *Conn) start() error {
	c.local, c.peer = c.cm.LocalAddr(), c.cm.PeerAddr()
	c.messages.credits, c.messages.most = c.remote.depth, c.remote.depth
	c.replies.most = replyDepth(c.remote.depth)
	c.initWindows(min(c.options.Offers, c.remote.offers))
	c.startKeepAlive()
	c.watch()
	if l := c.options.Logger; l != nil {
		l.Debug("rdma: connected", "local", c.local, "peer", c.peer)
	}
	if t := c.options.Trace; t != nil && t.Connected != nil {
		t.Connected(c)
	}
	return nil
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// closeResources closes what prepare, start and calls have created, when the QP no longer exists.
func (c *Conn) closeResources() error {
	errs := []error{c.closeWindows()}
	if c.cq != nil {
		errs = append(errs, c.cq.Close())
	}
	c.dropRequests()
	errs = append(errs, c.freeReceives())
	if c.pool != nil {
		errs = append(errs, c.pool.close())
	}
	return errors.Join(errs...)
}

// fail ends the connection because of err. The caller holds c.mu.
func (c *Conn) fail(err error) {
	if c.err != nil {
		return
	}
	if c.eof {
		c.end(errPeerClosed)
	} else {
		c.end(c.cause(err))
	}
	if errors.Is(err, ErrProtocol) {
		if l := c.options.Logger; l != nil {
			l.Warn("rdma: the peer breaks the protocol", "local", c.local, "peer", c.peer, "error", err)
		}
	}
	// The peer is to know. The kernel does not wait for its reply, and an error means that the
	// connection has ended already.
	_ = c.cm.ID().ID.Disconnect()
}

// cause returns the cause of the end for an error of a completion or of a call.
func (c *Conn) cause(err error) error {
	end := c.cm.Err()
	switch {
	case errors.Is(err, net.ErrClosed) || errors.Is(err, ErrDisconnected):
		return err
	case end != nil && (errors.Is(err, uverbs.WCWRFlushErr) || errors.Is(err, uverbs.ErrState)):
		err = end
	}
	if errors.Is(err, ErrDisconnected) {
		return err
	}
	return &lost{err}
}

// end sets why the connection has ended, and wakes the callers. The caller holds c.mu.
func (c *Conn) end(err error) {
	c.err = err
	if c.keepAlive != nil {
		c.keepAlive.Stop()
	}
	c.endCalls()
	c.wakeAll()
	if l := c.options.Logger; l != nil {
		l.Debug("rdma: connection ended", "local", c.local, "peer", c.peer, "error", err)
	}
	if t := c.options.Trace; t != nil && t.Ended != nil {
		t.Ended(c, err)
	}
}

// Close ends the connection and releases its resources. Before, it waits until the peer has received
// what was sent, for up to Options.Linger. Other calls return net.ErrClosed at once. Messages that have
// not been received are lost. Close is idempotent.
func (c *Conn) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.options.Linger)
	defer cancel()
	_, err := c.shutdown(ctx)
	return err
}

// Shutdown is Close, but waits until ctx ends instead of for Options.Linger. It returns
// context.Cause(ctx) if ctx ends before the peer has received everything, and why the connection has ended
// if it ended before. The connection is closed in any case. If several calls of Shutdown and Close wait, the first
// whose time is over ends the wait of all.
func (c *Conn) Shutdown(ctx context.Context) error {
	lost, err := c.shutdown(ctx)
	if lost != nil {
		lost = c.opError("close", lost)
	}
	return errors.Join(lost, err)
}

// shutdown closes the connection. lost is why the peer may not have received everything, and err has the errors of
// releasing resources.
func (c *Conn) shutdown(ctx context.Context) (lost, err error) {
	c.mu.Lock()
	if c.closing {
		endFlush := c.endFlush
		c.unlock()
		select {
		case <-c.done:
			return nil, nil
		case <-ctx.Done():
			endFlush(context.Cause(ctx))
			<-c.done
			return context.Cause(ctx), nil
		}
	}
	c.closing = true
	defer close(c.done)
	ctx, c.endFlush = context.WithCancelCause(ctx)
	defer c.endFlush(nil)
	c.wakeAll()
	c.dismiss(errLeave)
	c.cq.EndWaits(nil)
	lost = c.flush(ctx)
	if c.err == nil {
		c.end(fmt.Errorf("%w by this side", net.ErrClosed))
	} else {
		c.wakeAll()
	}
	c.dismiss(net.ErrClosed)
	c.unlock()
	// The QP stops first: to the peer, a window that is closed while the QP works is an access that was not permitted.
	// An error means that the connection has ended already.
	_ = c.cm.ID().ID.Disconnect()
	err = c.cm.Close()
	if c.closed != nil {
		c.closed()
	}
	return lost, err
}

// Err returns nil while the connection can be used, and why it has ended afterwards: an error that matches
// [ErrDisconnected], and io.EOF too if the peer has closed it, or net.ErrClosed after Close. A
// connection on which no call waits does not notice its end.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.eof:
		return errPeerClosed
	}
	if end := c.cm.Err(); end != nil {
		return c.cause(end)
	}
	return nil
}

// LocalAddr returns the local address.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// PeerAddr returns the address of the peer.
func (c *Conn) PeerAddr() netip.AddrPort { return c.peer }

// PrivateData returns what the peer has set in its Options.PrivateData.
func (c *Conn) PrivateData() []byte { return c.remote.data }

// CM returns the connection of package cm, for queries of its id, its QP and its device. Posting requests,
// polling and closing it break the Conn.
func (c *Conn) CM() *cm.Conn { return c.cm }

// get returns memory of at least n bytes, which has no owner yet.
func (c *Conn) get(n int) (*memory, error) {
	m, err := c.pool.get(n)
	if err != nil {
		return nil, c.orEnd(err)
	}
	return m, nil
}

// orEnd returns why the connection has ended, or err if it has not.
func (c *Conn) orEnd(err error) error {
	c.mu.Lock()
	defer c.unlock()
	return c.orEndLocked(err)
}

// orEndLocked is orEnd for a caller that holds c.mu.
func (c *Conn) orEndLocked(err error) error {
	if end := c.usable(); end != nil {
		return end
	}
	if errors.Is(err, uverbs.ErrDeviceGone) {
		return c.refused(err)
	}
	return err
}

// Alloc returns a buffer of n bytes with undefined contents. It may be sent on any connection through the
// same device. It returns [ErrTooLong] for more than 1 GiB, net.ErrClosed after Close of all of them, and the
// errors of [uverbs.PD.RegMR].
func (c *Conn) Alloc(n int) (Buffer, error) {
	if n < 0 {
		return Buffer{}, c.opError("allocate for", fmt.Errorf("%w: a buffer of %d bytes", ErrBounds, n))
	}
	m, err := c.get(n)
	if err != nil {
		return Buffer{}, c.opError("allocate for", err)
	}
	return c.takeBuffer(m, n), nil
}
