package rdma

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/memlock"
	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
)

// Dial connects to a listener of this package at addr, host:port. If ctx has no deadline and
// Options.Timeout is 0, it gives up after 30 seconds.
//
// Dial returns [ErrProtocol] if the peer accepts the connection and does not use this package, and [ErrVersion] if the
// two sides speak no common version of the protocol. A listener of this package sends the reason if it refuses a
// client: [ErrServerBusy], [ErrServerLimit], [ErrVersion], [ErrProtocol] or [ErrUnauthenticated]. A program that does
// not use this package and rejects the connection cannot be distinguished from one that ends: the error is
// [cm.ErrRejected]. On iWARP, which has no immediate data, the error is [uverbs.ErrNotSupported]. The other errors are
// those of [cm.Dial], with [uverbs.ErrInvalid] for Options out of range.
func Dial(ctx context.Context, addr string, o *Options) (*Conn, error) {
	full, err := o.complete(maxDialData)
	if err == nil {
		err = full.completeClientTLS(addr)
	}
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
	co.Established = func(ctx context.Context, m *cm.Conn) (err error) {
		if c.remote, err = parseHello(m.PrivateData(), server); err == nil {
			err = c.remote.checkTLS(full, server)
		}
		if err != nil {
			return err
		}
		c.agree()
		return c.authenticate(ctx, server)
	}
	if _, err := cm.Dial(ctx, addr, &co); err != nil {
		return nil, &Error{Op: "dial " + addr, Err: err}
	}
	c.start()
	return c, nil
}

func newConn(m *cm.Conn, o *Options) *Conn {
	c := &Conn{cm: m, options: o, ending: ending{done: make(chan struct{})}, shares: map[*Share]struct{}{}}
	c.initWaits()
	return c
}

// prepare creates what the QP needs.
func (c *Conn) prepare(qp *uverbs.QPConfig) error {
	if c.cm.Verbs().Device().NodeType == uverbs.NodeRNIC {
		return errIWARP
	}
	c.cm.Own(closerFunc(c.closeResources))
	c.pool = openPool(c.cm.PD())
	if err := c.joinShared(); err != nil {
		return err
	}
	qp.MaxSendWR, _ = c.sends()
	receives := c.options.Depth + c.extraReceives()
	qp.MaxRecvWR = receives + replyDepth(c.options.Depth)
	qp.MaxInline = inlineSize
	if c.options.TLS != nil {
		qp.MaxInline += tagLen // the peer may want to seal
	}
	entries := qp.MaxSendWR + qp.MaxRecvWR
	if c.shared != nil {
		qp.MaxRecvWR, qp.SRQ, qp.MaxInline = 0, c.shared.srq, sharedInline
	}
	qp.MaxInline = verbs.MaxInline(c.cm.Verbs(), qp.MaxInline)
	if err := c.account.tryFixed(memlock.Queues(qp.MaxSendWR, qp.MaxRecvWR, entries)); err != nil {
		return err
	}
	c.makeRoom() // the memory of the QP is locked, too
	err := c.pool.retry(func() (err error) {
		c.cq, err = c.cm.Verbs().CreateCQ(uverbs.CQConfig{Entries: entries})
		return err
	})
	if err != nil {
		return err
	}
	c.cq.SetPolling(c.options.Polling)
	if c.shared != nil {
		verbs.EndWith(c.cm, c.cq)
	}
	qp.SendCQ, qp.RecvCQ, c.waiters.CQ = c.cq, c.cq, c.cq
	if c.shared != nil {
		return c.initShared()
	}
	c.initReceives(qp.MaxRecvWR)
	return c.allocReceives(receives)
}

// setUp posts the receives.
func (c *Conn) setUp() error {
	c.qp = c.cm.QP()
	c.inline, c.fences, c.binds = c.qp.Cap().MaxInline, c.fencesBinds(), c.bindsReadOnly()
	c.initSends() // the device may have room for more, but the completion queue has not
	if c.shared != nil {
		c.shared.add(c)
	}
	return c.postReceives(c.slots[:c.filled])
}

// agree sets what the sides permit each other. c.remote is set.
func (c *Conn) agree() {
	c.local, c.peer = c.cm.LocalAddr(), c.cm.RemoteAddr()
	c.messages.credits, c.messages.most = c.remote.depth, c.remote.window()
	c.replies.most = replyDepth(c.remote.window())
	c.initWindows(min(c.options.Offers, c.remote.offers))
	c.initCancels()
}

// start tells of the connection, which the program gets, and starts its timers.
func (c *Conn) start() {
	c.watch()
	if l := c.options.Logger; l != nil {
		l.Debug("rdma: connected", "local", c.local, "peer", c.peer)
	}
	if t := c.options.Trace; t != nil && t.Connected != nil {
		t.Connected(c)
	}
	c.startKeepAlive() // a timer may end the connection at once
	c.startIdleTimer()
	c.startShared()
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// closeResources closes what prepare, start and calls have created, when the QP no longer exists. A call after one that
// has failed tries again.
func (c *Conn) closeResources() error {
	c.receiving.Lock() // a call may register receives for replies
	defer c.receiving.Unlock()
	errs := []error{c.closeWindows()}
	c.drainShared()
	if c.cq != nil {
		errs = append(errs, c.cq.Close())
	}
	c.dropRequests()
	c.dropArrived()
	errs = append(errs, c.freeReceives(), c.leaveShared())
	c.account.releaseFixed()
	if c.pool != nil && !c.poolClosed {
		err := c.pool.close()
		c.poolClosed = err == nil
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// errIWARP is the error of a connection on iWARP.
var errIWARP = fmt.Errorf("%w: messages have immediate data, which iWARP does not have: use RoCE or InfiniBand there, "+
	"or package rsocket or cm", uverbs.ErrNotSupported)
