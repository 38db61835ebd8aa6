package valkeyrdma

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/lead"
	"github.com/goverbs/goverbs/uverbs"
)

// network is the name of the network in errors.
const network = "valkey-rdma"

// A Conn is a connection. It implements [net.Conn], and its methods may be called concurrently. Its addresses are
// *net.TCPAddr.
type Conn struct {
	cm     *cm.Conn
	qp     *uverbs.QP
	cq     *uverbs.CQ
	config *Config
	server bool // this side has accepted the connection
	local  net.Addr
	remote net.Addr

	mu         sync.Mutex
	err        error // why the connection has ended, or nil
	closed     bool  // Close was called
	unreleased bool  // an object could not be closed: another Close tries again
	disconnect bool  // unlock tells the peer of the end

	waiters    lead.Waiters
	leaderDone sync.Cond // completions were handled
	wcs        [batch]uverbs.WC
	reader     side
	writer     side
	ender      side // of the handshake and Close

	sender
	receiver
	keepAlive
}

// batch is how many completions are handled at once.
const batch = 16

// A Config has the sizes and times of connections. The zero value of each field stands for its default.
type Config struct {
	// RecvBuffer is how many unread bytes the peer may have sent: 1 MiB by default, as in the server, 64 KiB to 1 GiB.
	// The peer allocates as much for what it sends. A connection registers 288 KiB of other memory. Processes without
	// privileges can often register 8 MiB.
	RecvBuffer int
	// KeepAlive is how often this side sends a sign of life while nothing else is sent: 15 seconds by default, as in
	// package net, negative for never, and at least every 5 minutes otherwise. If the peer's device has not replied
	// four times, the connection ends.
	KeepAlive time.Duration
}

const (
	minRecvBuffer = 64 << 10
	maxRecvBuffer = 1 << 30
)

// complete returns a copy of c with the defaults filled in.
func (c Config) complete() (*Config, error) {
	if c.RecvBuffer == 0 {
		c.RecvBuffer = 1 << 20
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.RecvBuffer < minRecvBuffer || c.RecvBuffer > maxRecvBuffer {
		return nil, fmt.Errorf("%w: Config.RecvBuffer is %d: set it to %d to %d", uverbs.ErrInvalid, c.RecvBuffer,
			minRecvBuffer, maxRecvBuffer)
	}
	return &c, nil
}

// options returns the options for package cm. Each connection has its own PD, so that no peer can reach the memory of
// another.
func (c *Config) options() cm.Options {
	return cm.Options{OwnPD: true, Param: &cm.ConnParam{FlowControl: true, RetryCount: 7, RNRRetryCount: 7,
		ResponderResources: cm.NoReads, InitiatorDepth: cm.NoReads}}
}

func newConn(m *cm.Conn, config *Config, server bool) *Conn {
	c := &Conn{cm: m, config: config, server: server}
	c.initWaits()
	return c
}

func (c *Conn) sides() [3]*side { return [...]*side{&c.reader, &c.writer, &c.ender} }

// prepare creates what the QP needs. It is called when the device is known.
func (c *Conn) prepare(qp *uverbs.QPConfig) (err error) {
	c.cm.Own(closerFunc(c.closeResources))
	if c.cq, err = c.cm.Verbs().CreateCQ(uverbs.CQConfig{Entries: sends + peerReceives}); err != nil {
		return err
	}
	qp.SendCQ, qp.RecvCQ, c.waiters.CQ = c.cq, c.cq, c.cq
	qp.MaxSendWR, qp.MaxRecvWR, qp.MaxSendSGE, qp.MaxInline = sends, peerReceives, 2, minInline
	if err := c.allocSends(); err != nil {
		return err
	}
	return c.allocReceives()
}

// setUp posts the receives. It is called when the QP exists.
func (c *Conn) setUp() error {
	c.qp = c.cm.QP()
	c.inline = c.qp.Cap().MaxInline
	for slot := 0; slot < peerReceives; slot += batch {
		for i := range batch {
			c.slots[i] = uint64(slot + i)
		}
		if err := c.postReceives(batch); err != nil {
			return err
		}
	}
	return nil
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// closeResources closes what prepare has created, when the QP no longer exists.
func (c *Conn) closeResources() error {
	var errs []error
	if c.cq != nil {
		errs = append(errs, c.cq.Close())
	}
	for _, mr := range []*uverbs.MR{c.sendMR, c.recvMR} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	return errors.Join(errs...)
}

// fail ends the connection because of err. The caller holds c.mu.
func (c *Conn) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = c.cause(err)
	c.stopKeepAlive()
	c.disconnect = true
}

// tellPeer ends the connection for the peer. An error means that it has ended already.
func (c *Conn) tellPeer() { _ = c.cm.ID().ID.Disconnect() }

// LocalAddr returns the local address, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the peer, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets the deadlines of Read and Write.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(t, &c.reader, &c.writer) }

// SetReadDeadline sets the deadline of Read, also of calls that wait. They return an error that matches
// [os.ErrDeadlineExceeded] after it. The zero time stands for none. It returns an error that matches [net.ErrClosed]
// after Close.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, &c.reader) }

// SetWriteDeadline sets the deadline of Write: see [Conn.SetReadDeadline].
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, &c.writer) }

func (c *Conn) setDeadline(t time.Time, sides ...*side) error {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	for _, s := range sides {
		s.SetDeadline(t)
	}
	return nil
}
