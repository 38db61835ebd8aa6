package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/memlock"
	"github.com/goverbs/goverbs/uverbs"
)

// A Conn is a connection. Its methods may be called concurrently.
type Conn struct {
	cm   *cm.Conn
	qp   *uverbs.QP
	cq   *uverbs.CQ
	pool *pool

	poolClosed bool // belongs to receiving
	account    account
	options    *Options
	remote     hello // what the peer has said
	local      netip.AddrPort
	peer       netip.AddrPort
	inline     int // SENDs up to this length need no memory

	mu sync.Mutex
	ending
	hooks
	stats Stats

	waits
	wcs [32]uverbs.WC // of the leader

	sendQueue
	receiveQueue
	messages flow
	replies  flow
	cancels  flow
	control  control
	calls    calls
	contexts map[*callContext]struct{} // that have not ended
	// canceling is whether a goroutine waits until the cancels are sent.
	canceling bool
	ctx       *callContext // of messages that are not calls, or nil
	windows   []window     // for offers
	shares    map[*Share]struct{}
	idleOps   *op

	idleWatch
	keepAlive *time.Timer
	busy      bool // something was sent to the peer since the timer last ran

	watcher watcher // of a test, or nil
	closed  func()  // ends the watch of the connection; nil if watcher is
}

// Dial connects to a listener of this package at addr, host:port. If ctx has no deadline and
// Options.Timeout is 0, it gives up after 30 seconds.
//
// Dial returns [ErrProtocol] if the peer accepts the connection and does not use this package, and [ErrVersion] if the
// two sides speak no common version of the protocol. A listener of this package sends the reason if it refuses a
// client: [ErrServerBusy], [ErrServerLimit], [ErrVersion], [ErrProtocol] or [ErrUnauthenticated]. A program that does
// not use this package and rejects the connection cannot be distinguished from one that ends: the error is
// [cm.ErrRejected]. The other errors are those of [cm.Dial], with [uverbs.ErrInvalid] for Options out of range.
func Dial(ctx context.Context, addr string, o *Options) (*Conn, error) {
	full, err := o.complete(maxDialData)
	if err != nil {
		return nil, &Error{Op: "dial " + addr, Err: err}
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
		return nil, &Error{Op: "dial " + addr, Err: err}
	}
	if c.remote, err = parseHello(m.PrivateData(), server); err != nil {
		return nil, &Error{Op: "dial", Peer: m.RemoteAddr(), Err: errors.Join(err, m.Close())}
	}
	if err := c.start(); err != nil {
		return nil, &Error{Op: "dial", Peer: m.RemoteAddr(), Err: errors.Join(err, m.Close())}
	}
	return c, nil
}

func newConn(m *cm.Conn, o *Options) *Conn {
	c := &Conn{cm: m, options: o, ending: ending{done: make(chan struct{})}, shares: map[*Share]struct{}{}}
	c.initWaits()
	return c
}

// Each queue has some requests more than messages: READs and other requests of this side, and what the
// protocol sends beside messages.
const (
	extraSends = 16
	maxSends   = 256 // requests in the send queue
	inlineSize = 128
)

// extraReceives returns how many receives are for SENDs without a credit for messages or replies: one for each offer
// that the peer has read, up to two for credits of each of the two flows, one for each cancel and for its credit,
// one for the end, and one to spare.
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
	if err := c.account.tryFixed(memlock.Queues(qp.MaxSendWR, qp.MaxRecvWR)); err != nil {
		return err
	}
	c.makeRoom() // the memory of the QP is locked, too
	err := c.pool.retry(func() (err error) {
		c.cq, err = c.cm.Verbs().CreateCQ(uverbs.CQConfig{Entries: qp.MaxSendWR + qp.MaxRecvWR})
		return err
	})
	if err != nil {
		return err
	}
	qp.SendCQ, qp.RecvCQ, c.waiters.CQ = c.cq, c.cq, c.cq
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
	c.local, c.peer = c.cm.LocalAddr(), c.cm.RemoteAddr()
	c.messages.credits, c.messages.most = c.remote.depth, c.remote.depth
	c.replies.most = replyDepth(c.remote.depth)
	c.initWindows(min(c.options.Offers, c.remote.offers))
	c.initCancels()
	c.watch()
	if l := c.options.Logger; l != nil {
		l.Debug("rdma: connected", "local", c.local, "peer", c.peer)
	}
	if t := c.options.Trace; t != nil && t.Connected != nil {
		t.Connected(c)
	}
	c.startKeepAlive() // a timer may end the connection at once
	c.startIdleTimer()
	return nil
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// closeResources closes what prepare, start and calls have created, when the QP no longer exists. A call after one that
// has failed tries again.
func (c *Conn) closeResources() error {
	c.receiving.Lock() // a call may register receives for replies
	defer c.receiving.Unlock()
	errs := []error{c.closeWindows()}
	if c.cq != nil {
		errs = append(errs, c.cq.Close())
	}
	c.dropRequests()
	c.dropArrived()
	errs = append(errs, c.freeReceives())
	c.account.releaseFixed()
	if c.pool != nil && !c.poolClosed {
		err := c.pool.close()
		c.poolClosed = err == nil
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Err returns nil while the connection can be used, and why it has ended afterwards: an error that matches
// [ErrDisconnected], and io.EOF too if the peer has closed it and everything that it has sent has arrived,
// io.ErrUnexpectedEOF if something may be missing, or a [*CloseError]; or net.ErrClosed after Close. A
// connection on which no call waits does not notice its end.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.eof:
		return c.peerEnd()
	}
	if end := c.cm.Err(); end != nil {
		return c.refused(end)
	}
	return nil
}

// LocalAddr returns the local address.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// RemoteAddr returns the address of the peer.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.peer }

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
