package cm

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/quota"
	"github.com/goverbs/goverbs/uverbs"
)

// Options configure a connection or a membership: how to dial or join, or how a listener accepts, see
// [ListenOptions]. Nil stands for the zero Options, and the zero value of each field for its default.
type Options struct {
	// QP is the configuration of the QP. A MaxSendWR or MaxRecvWR of 0 stands for 16
	// work requests, a negative one for none. With an SRQ, the QP has no receive
	// queue. QP.Path sets the headers of the packets that this side sends, instead
	// of what the connection manager derives from TOS, addresses and ports.
	QP uverbs.QPConfig
	// PD is the protection domain of the QP and of the memory that is posted. Nil
	// stands for one that all connections of a device share. A peer that guesses an
	// rkey can then access the memory of other connections. The PD must belong to the
	// device of the connection.
	PD *uverbs.PD
	// OwnPD gives each connection its own PD, so that an rkey is valid on one
	// connection only. [Conn.Close] closes the PD. It reports [uverbs.ErrBusy] while
	// MRs of the connection are open: close them first, then call Close again. OwnPD
	// cannot be combined with PD.
	OwnPD bool

	// PrivateData is sent to the peer with the request or with the acceptance.
	// [ConnParam] has its maximum length. [Conn.SetPrivateData] replaces it.
	PrivateData []byte
	// Param has further parameters of the connection. PrivateData replaces
	// Param.PrivateData.
	Param *ConnParam

	// LocalAddr is the address to dial from. If it is the zero AddrPort, the routing
	// table decides.
	LocalAddr netip.AddrPort
	// LocalIB is the address that DialIB dials from. If it is nil, the kernel chooses one.
	LocalIB *IBAddr
	// Paths are set as the route to the peer by Dial and DialIB, instead of resolving it: see
	// [ID.SetPaths].
	Paths []PathRecord
	// Timeout limits Dial and JoinMulticast as a whole. If it is 0, the deadline of
	// the context applies, or 30 seconds if the context has no deadline.
	Timeout time.Duration
	// ResolveTimeout is the kernel's timeout for each resolution of an address or a
	// route. If zero, it is 2 seconds.
	ResolveTimeout time.Duration
	// TOS is the type of service of the connection's packets: the DSCP times 4. On
	// RoCE it is the traffic class, and the kernel derives the service level from
	// it: SO_PRIORITY's table, then the VLAN's egress map or the traffic classes of
	// the network interface. On InfiniBand it is the QoS class that the subnet
	// administrator uses to select the path and its service level.
	TOS uint8
	// ReuseAddr allows several connections to be dialed from the port of LocalAddr:
	// see [ID.SetReuseAddr]. It does not allow a listener to share its address and
	// port with another id.
	ReuseAddr bool

	// Prepare is called when the device is known and before the QP is created. Dial
	// calls it for each address that it tries, a listener for each request. It may
	// change qp, for example to set completion queues or an SRQ created on
	// [Conn.Verbs] and [Conn.PD], which [Conn.Own] closes with the connection. An
	// error ends the attempt.
	Prepare func(c *Conn, qp *uverbs.QPConfig) error
	// Setup is called when the QP exists and before the peer can send. Post the first
	// receives there. An error ends the attempt. A listener calls Prepare and Setup
	// from several goroutines at once.
	//
	// If the error of a listener's Prepare or Setup matches [ErrServerBusy],
	// [ErrServerLimit], [ErrVersion], [ErrUnauthenticated] or [ErrProtocol], so does the
	// client's. The client receives the first 100 bytes of what the error's text adds to
	// them: name the limit there, and no secrets.
	//
	// If the attempt fails, in Setup or later, the MRs that Prepare and Setup have
	// created on c with [Conn.AllocMsgs], [Conn.RegMsgs] and the like are closed, as
	// are the objects that they have passed to [Conn.Own].
	Setup func(c *Conn) error
	// Established is called when the peer has confirmed the connection, before Dial or Accept returns it: exchange there
	// what has to precede all messages, such as proofs of who the two sides are. ctx is that of Dial, or ends with
	// ListenOptions.HandshakeTimeout: a peer that does not reply occupies a handshake of the listener until then. Call
	// nothing on c that closes it. An error ends the connection; the peer receives [ErrDisconnected].
	Established func(ctx context.Context, c *Conn) error
}

// ListenOptions configure a listener. Nil stands for the zero ListenOptions, and the zero value of each
// field for its default.
type ListenOptions struct {
	// Options apply to each connection, ReuseAddr to the listener. The fields for dialing
	// have no effect: LocalAddr, LocalIB, Paths, Timeout, ResolveTimeout and TOS.
	Options

	// V6Only makes a listener on [::] accept IPv6 connections only.
	V6Only bool
	// Backlog is how many requests of a listener may wait for a handshake, or for
	// [Listener.Request]. While as many connections wait for [Listener.Accept], no
	// handshake begins. If zero, it is 4096. A request costs some kilobytes of the
	// kernel's memory.
	//
	// Besides, the kernel keeps up to 1024 requests that the library has not read yet
	// (the sysctl net.rdma_ucm.max_backlog). It drops others, and their clients' kernels
	// repeat them after 4 seconds.
	Backlog int
	// MaxHandshakes is how many connections of a listener may be between request and
	// Accept at a time: see [Listener.Accept]. Each has a QP and a goroutine. If
	// zero, it is 256.
	MaxHandshakes int
	// MaxConns is how many connections of a listener may exist, from request to Close.
	// Clients beyond it receive [ErrServerLimit]. If zero, it is 16384: adapters have
	// 131,072 queue pairs and more, which other programs need too. A negative number
	// stands for no limit.
	MaxConns int
	// MaxConnsPerPeer is MaxConns for one IP address or, with ListenIB, for one GID. If
	// zero, it is half of MaxConns, so that no single address can lock out others. A
	// negative number stands for no limit.
	MaxConnsPerPeer int
	// ManualAccept leaves all requests of a listener to [Listener.Request]. No handshakes
	// run in the background, and [Listener.Accept] returns an error.
	ManualAccept bool
	// HandshakeTimeout limits how long a listener waits for a peer to confirm the
	// connection after its request was accepted, and for Established. If zero, it is ten
	// seconds.
	HandshakeTimeout time.Duration
	// Refused is called when a listener refuses a client because of MaxConns,
	// MaxConnsPerPeer or Backlog, before a Conn exists. peer is the client's IP address or
	// GID, and err matches [ErrServerLimit] or [ErrServerBusy]. Further clients wait until
	// Refused returns.
	Refused func(peer netip.Addr, err error)
}

// defaultConns is the default of ListenOptions.MaxConns.
const defaultConns = 16384

// connLimit returns the limits on the connections of a listener.
func (o *ListenOptions) connLimit() *quota.Limit {
	all, each := o.MaxConns, o.MaxConnsPerPeer
	if all == 0 {
		all = defaultConns
	}
	if each == 0 {
		each = (all + 1) / 2
	}
	return quota.New(int64(all), int64(each))
}

// defaultWR is the size of queues if Options do not set it.
const defaultWR = 16

func (o *Options) qp(typ uverbs.QPType) uverbs.QPConfig {
	cfg := o.QP
	cfg.MaxSendWR = orDefault(cfg.MaxSendWR, defaultWR)
	switch {
	case cfg.SRQ == nil:
		cfg.MaxRecvWR = orDefault(cfg.MaxRecvWR, defaultWR)
	default:
		cfg.MaxRecvWR = max(cfg.MaxRecvWR, 0)
	}
	cfg.Type = typ
	return cfg
}

// orDefault returns n, d for 0, and 0 for a negative number.
func orDefault(n, d int) int {
	if n == 0 {
		return d
	}
	return max(n, 0)
}

// A Conn is a reliable connection that [Dial] or [Listener.Accept] has established.
// Its methods register memory, post requests and wait for completions, as the calls
// of rdma_verbs.h do. They may be called concurrently. Everything else that rdma_cm
// offers is reached through [Conn.ID].
type Conn struct {
	id       *SyncID
	peerData []byte

	mu        sync.Mutex
	localData []byte // from SetPrivateData
	hasSRQ    bool   // the QP was to be created with an SRQ
	closers   []io.Closer
	// closing is set while a call closes the objects in owned.
	closing bool
}

// setUp creates the QP and calls Prepare and Setup. It reports whether the error is
// from Prepare or Setup.
func (c *Conn) setUp(o *Options) (fromCaller bool, err error) {
	c.id.setup.Store(&setupMRs{})
	pd, err := c.choosePD(o)
	if err != nil {
		return false, err
	}
	cfg := o.qp(uverbs.RC)
	defer func() { c.hasSRQ = cfg.SRQ != nil }()
	if o.Prepare != nil {
		if err := withStep("prepare", o.Prepare(c, &cfg)); err != nil {
			return true, err
		}
	}
	if err := c.id.CreateQP(pd, cfg); err != nil {
		return false, err
	}
	if o.Setup == nil {
		return false, nil
	}
	err = withStep("set up", o.Setup(c))
	return err != nil, err
}

// established calls Options.Established. peerData is what the peer has sent.
func (c *Conn) established(ctx context.Context, o *Options, peerData []byte) error {
	c.peerData = peerData
	if o.Established == nil {
		return nil
	}
	return withStep("establish", o.Established(ctx, c))
}

// choosePD returns the PD that the options select, or nil for the one that the ids of
// the device share. It sets the PD of the id, because Prepare uses it before CreateQP.
func (c *Conn) choosePD(o *Options) (pd *uverbs.PD, err error) {
	pd = o.PD
	if o.OwnPD {
		pd, err = c.allocPD(o)
	}
	if pd == nil {
		return nil, err
	}
	c.id.mu.Lock()
	defer c.id.mu.Unlock()
	if pd, err = c.id.checkPD("set PD of", pd); err == nil {
		c.id.setAttrs(func() { c.id.pd = pd })
	}
	return pd, err
}

// allocPD allocates the connection's own PD.
func (c *Conn) allocPD(o *Options) (*uverbs.PD, error) {
	const op = "allocate PD for"
	if o.PD != nil {
		return nil, invalid(op, c.id.name(), "Options have a PD and OwnPD: set one of them")
	}
	ctx := c.id.Verbs()
	if ctx == nil {
		return nil, closed(op, c.id.name())
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	c.Own(pd)
	return pd, nil
}

// param returns the parameters for Connect or Accept.
func (c *Conn) param(o *Options) *ConnParam {
	var p ConnParam
	if o.Param != nil {
		p = *o.Param
	}
	if o.PrivateData != nil {
		p.PrivateData = o.PrivateData
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.localData != nil {
		p.PrivateData = c.localData
	}
	return &p
}

// finishSetup ends the setup of a connection that is established. From then on, the
// caller closes its MRs.
func (c *Conn) finishSetup() *Conn {
	c.id.setup.Store(nil)
	return c
}

// abandon closes a connection that could not be established, with the MRs that
// Prepare and Setup have created.
func (c *Conn) abandon() error {
	if qp := c.id.qp.Load(); qp != nil && c.hasSRQ {
		// What the QP has taken from the SRQ completes. The QP is destroyed also if that fails.
		_ = qp.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState)
	}
	errs := []error{c.id.DestroyQP()}
	if mrs := c.id.setup.Swap(nil); mrs != nil {
		errs = append(errs, mrs.close())
	}
	return errors.Join(append(errs, c.Close())...)
}

// SetPrivateData sets the private data of the request or the acceptance, instead of
// Options.PrivateData. For example, it can contain the rkey of an MR. It only has an
// effect in Options.Prepare and Options.Setup.
func (c *Conn) SetPrivateData(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.localData = append([]byte{}, b...)
}

// Own passes objects, such as completion queues, to the connection. Close closes them
// after the QP, the last one first. They are also closed if Dial or Accept fails. Their
// Close may call methods of c.
func (c *Conn) Own(objects ...io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closers = append(c.closers, objects...)
}

// closeOwned closes the objects passed to Own. It stops at the first that cannot be
// closed. It returns at once if another call closes them: that call may be the caller.
func (c *Conn) closeOwned() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil
	}
	c.closing = true
	defer func() { c.closing = false }()
	for n := len(c.closers); n > 0; n = len(c.closers) {
		if err := c.closeUnlocked(c.closers[n-1]); err != nil {
			return err
		}
		c.closers = slices.Delete(c.closers, n-1, n) // Close may have added others behind it
	}
	return nil
}

// closeUnlocked closes an object without c.mu, because its Close may call methods of c.
// The caller holds c.mu.
func (c *Conn) closeUnlocked(object io.Closer) error {
	c.mu.Unlock()
	defer c.mu.Lock()
	return object.Close()
}

// PrivateData returns the private data of the peer's request or acceptance, padded
// with zeros to the size of the message's field.
func (c *Conn) PrivateData() []byte { return c.peerData }

// Shutdown ends the connection, waits until the peer has confirmed it, and closes the
// connection. Requests that are still in the queues are flushed, so wait for the
// completions that matter first. If ctx ends first, the connection is closed anyway.
// The errors are those of [Conn.Disconnect] and [Conn.Close].
func (c *Conn) Shutdown(ctx context.Context) error {
	err := c.id.Disconnect(ctx)
	return errors.Join(err, c.Close())
}

// Close ends the connection, closes it, and closes the objects passed to [Conn.Own].
// It does not wait for the peer, which is notified once: see [Conn.Shutdown]. It is
// idempotent. While a call closes the objects, other calls do not wait for it. The
// errors are those of [ID.Close], and those of closing the objects: [uverbs.ErrBusy]
// with Options.OwnPD while MRs are open.
func (c *Conn) Close() error {
	err := c.id.Close()
	if err != nil && !c.id.isClosed() { // objects may still be in use
		return err
	}
	return errors.Join(err, c.closeOwned())
}
