package rsocket

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/lead"
	"github.com/goverbs/goverbs/uverbs"
)

// network is the name of the network in errors.
const network = "rsocket"

// A Conn is a connection. It implements [net.Conn], and its methods may be called concurrently. *net.TCPAddr is the
// type of its addresses.
type Conn struct {
	cm     *cm.Conn
	pd     *uverbs.PD // also after the end of cm
	qp     *uverbs.QP
	cq     *uverbs.CQ
	config *Config
	peer   hello
	header int // length of what precedes the private data that this side sends
	local  net.Addr
	remote net.Addr

	mu          sync.Mutex
	err         error         // why the connection has ended before its time, or nil
	peerEOF     bool          // the peer will send no more
	peerClosed  bool          // the peer will receive no more either
	readClosed  bool          // CloseRead was called
	writeClosed bool          // CloseWrite was called
	shutDown    bool          // this side has said that it will send no more
	finished    bool          // the peer knows that this side will neither send nor receive
	broken      bool          // the peer does not follow the protocol: what it sends is ignored
	closed      bool          // Close was called
	discard     bool          // Close does not wait, and resets the connection
	unreleased  bool          // an object could not be closed: another Close tries again
	linger      time.Duration // Config.Linger, or what SetLinger has set

	waiters lead.Waiters
	wcs     [16]uverbs.WC
	reader  side
	writer  side
	ender   side // of CloseRead, CloseWrite and Close

	sender
	receiver
	mappings
	keepAlive
	iwarp *iwarp // nil for other devices
}

// newConn returns a connection that does not exist yet.
func newConn(m *cm.Conn, config *Config) *Conn {
	c := &Conn{cm: m, config: config, linger: config.Linger}
	c.initWaits()
	return c
}

func (c *Conn) sides() [3]*side { return [...]*side{&c.reader, &c.writer, &c.ender} }

// prepare creates what the QP needs. It is called when the device is known.
func (c *Conn) prepare(qp *uverbs.QPConfig) error {
	c.pd = c.cm.PD()
	c.cm.Own(closerFunc(c.closeResources))
	sends, receives, err := c.queueSizes()
	if err != nil {
		return err
	}
	requests, inline := sends, c.config.Inline
	if c.isIWARP() { // a message is a request of its own
		requests, inline = 2*sends, max(inline, messageLen)
	}
	if c.cq, err = c.cm.Verbs().CreateCQ(uverbs.CQConfig{Entries: requests + receives}); err != nil {
		return err
	}
	c.cq.SetPolling(c.config.Polling)
	qp.SendCQ, qp.RecvCQ, c.waiters.CQ = c.cq, c.cq, c.cq
	qp.MaxSendWR, qp.MaxRecvWR, qp.MaxSendSGE, qp.MaxInline = requests, receives, 2, inline
	c.initSends(sends)
	if err := c.allocSends(); err != nil {
		return err
	}
	return c.allocReceives(receives)
}

// isIWARP reports whether the device of a connection is one of iWARP.
func (c *Conn) isIWARP() bool { return isRNIC(c.cm.Verbs().Device()) }

// isRNIC is a variable for tests.
var isRNIC = func(d uverbs.Device) bool { return d.NodeType == uverbs.NodeRNIC }

// queueSizes returns the sizes of the queues that the device permits.
func (c *Conn) queueSizes() (sends, receives int, err error) {
	sends, receives = c.config.SendQueue, c.config.RecvQueue+controlReceives
	if max(sends, receives) <= 1024 { // all devices have as many
		return sends, receives, nil
	}
	a, err := c.cm.Verbs().QueryDevice()
	if err != nil {
		return 0, 0, err
	}
	return min(sends, a.MaxQPWR), min(receives, a.MaxQPWR), nil
}

// setUp posts the receives, and sets what the peer is told. It is called when the QP exists.
func (c *Conn) setUp() error {
	c.qp = c.cm.QP()
	c.inline = min(c.qp.Cap().MaxInline, maxInline)
	c.cm.SetPrivateData(append(make([]byte, c.header), c.hello().bytes()...))
	for left := c.credits + controlReceives; left > 0; {
		n := min(left, len(emptyReceives))
		if _, err := c.qp.PostRecv(c.receives(n)...); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// hello returns what the peer is told.
func (c *Conn) hello() *hello {
	h := &hello{credits: c.credits, mappings: c.config.Mappings, list: c.list, data: c.half(0)}
	h.order = binary.LittleEndian
	if nativeBigEndian {
		h.order = binary.BigEndian
	}
	return h
}

// nativeBigEndian reports the byte order of this machine.
var nativeBigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// start begins the exchange of data. The peer has said h.
func (c *Conn) start(h hello) {
	c.setAddrs()
	c.mu.Lock()
	defer c.unlock()
	c.peer = h
	c.target, c.limit = h.data, uint16(h.credits)
	c.nextEntry = 1 % int(h.list.length)
	c.reserve = uint16(min(controlReceives, h.credits/4))
	c.grant()
	c.startKeepAlive()
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
	return errors.Join(append(errs, c.closeMappings(), c.closeMessages())...)
}

// fail ends the connection because of err. The caller holds c.mu.
func (c *Conn) fail(err error) {
	c.broken = c.broken || errors.Is(err, ErrProtocol)
	if c.err != nil {
		return
	}
	c.err = c.cause(err)
	c.stopKeepAlive()
	// The peer is to know. An error means that the connection has ended already.
	_ = c.cm.ID().ID.Disconnect()
}

// cause returns why a call, a completion or a check has failed with err.
func (c *Conn) cause(err error) error {
	ended := errors.Is(err, uverbs.WCWRFlushErr) || errors.Is(err, uverbs.ErrState) || errors.Is(err, cm.ErrDisconnected)
	switch end := c.cm.Err(); {
	case errors.Is(err, ErrProtocol) || errors.Is(err, errPeerSilent) || errors.Is(err, ErrIdle):
		return &reset{err}
	case end != nil && !errors.Is(end, cm.ErrDisconnected):
		return &reset{end}
	case !ended:
		return &reset{err}
	case end != nil:
		return errPeerGone
	}
	return errQPFailed // without an event of the peer
}

// LocalAddr returns the local address, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the peer, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// CM returns the connection of package cm, for queries of its id, its QP and its device. Posting requests, polling
// and closing it break the Conn.
func (c *Conn) CM() *cm.Conn { return c.cm }

// SetDeadline sets the deadlines of reads and of writes.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of the calls that read, also of those that wait. They return an error that
// matches [os.ErrDeadlineExceeded] after it. The zero time stands for none. It returns an error that matches
// [net.ErrClosed] after Close.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, &c.reader) }

// SetWriteDeadline sets the deadline of the calls that write: see [Conn.SetReadDeadline].
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, &c.writer, &c.ender) }

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

// setAddrs sets the addresses of a connection.
func (c *Conn) setAddrs() {
	if !isIB(c.cm) {
		c.local = net.TCPAddrFromAddrPort(c.cm.LocalAddr())
		c.remote = net.TCPAddrFromAddrPort(c.cm.RemoteAddr())
		return
	}
	id := c.cm.ID()
	c.local, c.remote = IBAddr{GID: id.LocalGID()}, IBAddr{GID: id.RemoteGID()}
}
