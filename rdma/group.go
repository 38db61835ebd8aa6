package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
)

// GroupOptions configure a [Group]. Nil stands for the zero GroupOptions, and the zero value of each field for its
// default.
type GroupOptions struct {
	// LocalAddr selects the device by its address. If it is the zero Addr, the routing table decides.
	LocalAddr netip.Addr
	// Depth is how many datagrams may wait for Recv: 128 by default, at most 2048. More are lost.
	Depth int
}

const (
	defaultDatagrams = 128
	datagramSends    = 32
)

// A Group is a member of a multicast group. It exchanges datagrams with the group and with single members. Datagrams
// are not longer than MaxDatagram; they may be lost, but not changed. The methods of a Group may be called
// concurrently.
type Group struct {
	cm      *cm.Group
	mtu     int // of datagrams that are sent
	recvLen int // of a receive: a GRH and the longest datagram that the port can receive
	depth   int
	qpn     uint32
	gid     uverbs.GID

	// What cm returns is nil after Close, while calls may still run.
	verbs  *uverbs.Context
	pd     *uverbs.PD
	port   int
	sendCQ *uverbs.CQ
	recvCQ *uverbs.CQ

	recvs, sends     *uverbs.MR
	recvMem, sendMem []byte // of the MRs: slots of GRH and datagram, and of datagrams

	uses []atomic.Uint32 // by slot of recvs: how often a datagram in it was released

	failed atomic.Pointer[error] // why the QP has failed

	mu     sync.Mutex
	closed bool
	free   []int                 // slots of sends
	routes [datagramSends]*route // of the datagrams in the slots
	routing
}

// A Peer is the sender of a datagram. It is comparable.
type Peer struct {
	key uverbs.AHKey
	qpn uint32
}

// String returns the peer's queue pair number.
func (p Peer) String() string { return fmt.Sprintf("QP %#x", p.qpn) }

// A Datagram is one that has arrived. Its bytes are used in place, and it must be released.
type Datagram struct {
	g    *Group
	slot int
	use  uint32 // see Group.uses
	b    []byte
	from Peer
}

// JoinGroup joins a multicast group, an IPv4 or IPv6 address without a port. The errors are those of
// [cm.JoinMulticast], and [uverbs.ErrInvalid] for options out of range.
func JoinGroup(ctx context.Context, group string, o *GroupOptions) (*Group, error) {
	g, err := joinGroup(ctx, group, o)
	if err != nil {
		return nil, &Error{Op: "join " + group, Err: err}
	}
	return g, nil
}

func joinGroup(ctx context.Context, group string, o *GroupOptions) (*Group, error) {
	var full GroupOptions
	if o != nil {
		full = *o
	}
	full.Depth = orDefault(full.Depth, defaultDatagrams)
	if full.Depth < 1 || full.Depth > maxDepth {
		return nil, fmt.Errorf("%w: GroupOptions.Depth is %d: set it to 1 to %d", uverbs.ErrInvalid, full.Depth, maxDepth)
	}
	co := cm.Options{QP: uverbs.QPConfig{MaxSendWR: datagramSends, MaxRecvWR: full.Depth}}
	if full.LocalAddr.IsValid() {
		co.LocalAddr = netip.AddrPortFrom(full.LocalAddr, 0)
	}
	m, err := cm.JoinMulticast(ctx, group, &co)
	if err != nil {
		return nil, err
	}
	g := &Group{cm: m, depth: full.Depth}
	g.startRouting()
	if err := g.setUp(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// setUp registers memory and posts the receives.
func (g *Group) setUp() error {
	g.verbs, g.pd, g.port = g.cm.Verbs(), g.cm.PD(), g.cm.ID().Port()
	g.sendCQ, g.recvCQ = g.cm.ID().SendCQ(), g.cm.ID().RecvCQ()
	port, err := g.verbs.QueryPort(g.port)
	if err != nil {
		return err
	}
	g.mtu = port.ActiveMTU.Bytes()
	// A datagram that is longer than its receive fails the QP. A peer whose MTU is larger than this port's active one
	// can send such datagrams, which also fit into the frames of a network interface whose MTU is not a power of two.
	g.recvLen = uverbs.GRHLen + max(port.MaxMTU.Bytes(), g.mtu)
	g.qpn, g.gid = g.cm.QP().QPN(), g.cm.ID().LocalGID()
	g.recvMem = make([]byte, g.depth*g.recvLen)
	if g.recvs, err = g.cm.RegMsgs(g.recvMem); err != nil {
		return err
	}
	g.sendMem = make([]byte, datagramSends*g.mtu)
	if g.sends, err = g.cm.RegMsgs(g.sendMem); err != nil {
		return err
	}
	g.uses = make([]atomic.Uint32, g.depth)
	for i := range datagramSends {
		g.free = append(g.free, i)
	}
	for i := range g.depth {
		if err := g.postReceive(i); err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) postReceive(slot int) error {
	return g.cm.PostRecv(uint64(slot), g.recvs.SGE(slot*g.recvLen, g.recvLen))
}

// MaxDatagram returns the length in bytes of the longest datagram that can be sent: the active MTU of the port. Members
// whose MTU is larger may send longer ones, up to the maximum MTU of the port, which Recv returns too.
func (g *Group) MaxDatagram() int { return g.mtu }

// LocalAddr returns the local address.
func (g *Group) LocalAddr() netip.AddrPort { return g.cm.LocalAddr() }

// CM returns the member of package cm, for queries of its id, its QP and its device.
func (g *Group) CM() *cm.Group { return g.cm }

// Recv waits for a datagram of another member. It returns context.Cause(ctx) if ctx ends first, and an error that
// matches net.ErrClosed after Close. While the program holds as many datagrams as GroupOptions.Depth says, none arrive.
//
// If the QP of the group has failed, Recv, Send and SendTo return an error that matches [ErrDisconnected] and the
// cause.
func (g *Group) Recv(ctx context.Context) (Datagram, error) {
	for {
		if err := g.failure(); err != nil {
			return Datagram{}, g.error("receive in", err)
		}
		wc, err := g.cm.RecvComp(ctx)
		if err != nil {
			return Datagram{}, g.error("receive in", g.explain(&wc, err))
		}
		d, ok := g.datagram(&wc)
		if ok {
			return d, nil
		}
		if err := d.release(); err != nil {
			return Datagram{}, g.error("receive in", err)
		}
	}
}

// datagram returns the datagram of a completion. It returns false if it comes from this member or has no address.
func (g *Group) datagram(wc *uverbs.WC) (Datagram, bool) {
	b := g.recvMem[int(wc.WRID)*g.recvLen:][:g.recvLen]
	d := Datagram{g: g, slot: int(wc.WRID), use: g.uses[wc.WRID].Load()}
	key, err := wc.AHKey(b[:uverbs.GRHLen])
	if err != nil || wc.ByteLen < uverbs.GRHLen || int(wc.ByteLen) > g.recvLen || g.isOwn(wc, b) {
		return d, false
	}
	d.b, d.from = b[uverbs.GRHLen:wc.ByteLen:wc.ByteLen], Peer{key, wc.SrcQP}
	return d, true
}

// isOwn reports whether this member has sent a datagram. grh is the area of its GRH, which has an IPv4 header at its
// end or a header with GIDs.
func (g *Group) isOwn(wc *uverbs.WC, grh []byte) bool {
	if wc.SrcQP != g.qpn || wc.Flags&uverbs.WCGRH == 0 { // a multicast datagram has a GRH
		return false
	}
	// The first 20 bytes are undefined if an IPv4 header follows.
	if grh[20]>>4 == 4 && g.gid.Addr().Is4() && string(grh[32:36]) == string(g.gid[12:]) {
		return true
	}
	return grh[0]>>4 == 6 && string(grh[8:24]) == string(g.gid[:])
}

// Bytes returns the datagram, or nil after Release. It must not be used after Release.
func (d Datagram) Bytes() []byte {
	if d.g == nil || d.g.uses[d.slot].Load() != d.use {
		return nil
	}
	return d.b
}

// From returns the sender, for [Group.SendTo].
func (d Datagram) From() Peer { return d.from }

// Release releases the memory of the datagram, for the next one. Further calls do nothing. Package verbstest
// reports them.
func (d Datagram) Release() {
	// If the group was closed, no datagram will come.
	_ = d.release()
}

func (d Datagram) release() error {
	if d.g == nil {
		return nil
	}
	if !d.g.uses[d.slot].CompareAndSwap(d.use, d.use+1) {
		misused("Release of a datagram that was released before,")
		return nil
	}
	return d.g.postReceive(d.slot)
}

// Send sends a datagram to the group. It returns when b may be used again. It returns [ErrTooLong] if b is longer than
// MaxDatagram, and context.Cause(ctx) if ctx ends before there is room in the send queue.
func (g *Group) Send(ctx context.Context, b []byte) error {
	err := g.send(ctx, b, nil, func(wrID uint64, s uverbs.SGE) error {
		return g.cm.PostSend(wrID, uverbs.Signaled, s)
	})
	return g.error("send in", err)
}

// SendTo sends a datagram to one member, the sender of a datagram that was received. The address of the member is kept
// for later datagrams. The first datagram costs two commands of the kernel, one of which may ask the network for up to
// a second. SendTo does not wait for them: it copies b, and the datagram is sent when the address is resolved. It is
// lost if that fails. A datagram with a forged source therefore does not stop a program that replies, unless with more
// than 32 datagrams: after as many, SendTo waits for the address.
//
// SendTo returns [uverbs.ErrInvalid] for the zero Peer, and an error that matches [cm.ErrUnreachable] if the address of
// this member could not be resolved within the last second, or if 1024 datagrams or 256 addresses wait to be resolved.
// Such an error concerns this member only. See [Group.Send].
func (g *Group) SendTo(ctx context.Context, b []byte, to Peer) error {
	return g.error("send in", g.sendTo(ctx, b, to))
}

func (g *Group) sendTo(ctx context.Context, b []byte, to Peer) error {
	switch {
	case to.qpn == 0:
		return fmt.Errorf("%w: the zero Peer has no address: use Datagram.From", uverbs.ErrInvalid)
	case ctx.Err() != nil:
		return ctxerr.Of(ctx)
	}
	if err := g.failure(); err != nil {
		return err
	}
	if err := g.checkLength(b); err != nil {
		return err
	}
	r, err := g.route(ctx, b, to)
	if err != nil || r == nil {
		return err
	}
	defer g.routeDone(r)
	return g.sendOn(ctx, r, b, to.qpn)
}

// sendOn sends a datagram to a QP whose address is resolved.
func (g *Group) sendOn(ctx context.Context, r *route, b []byte, qpn uint32) error {
	return g.send(ctx, b, r, func(wrID uint64, s uverbs.SGE) error {
		return g.cm.ID().PostUDSend(wrID, uverbs.Signaled, r.ah, qpn, s)
	})
}

// explain returns the error of a wait for a completion. If a request has failed, the QP has failed: no datagram can
// arrive or be sent any more. Calls that wait return then, too.
func (g *Group) explain(wc *uverbs.WC, err error) error {
	if wc.Status == uverbs.WCSuccess || errors.Is(err, uverbs.ErrClosed) {
		return err
	}
	failed := error(&groupFailed{err})
	if g.failed.CompareAndSwap(nil, &failed) {
		verbs.EndWaits(g.sendCQ, failed)
		verbs.EndWaits(g.recvCQ, failed)
	}
	return g.failure()
}

// groupFailed is the error of a group whose QP has failed.
type groupFailed struct{ cause error }

func (f *groupFailed) Error() string {
	return "the queue pair of the group has failed: " + f.cause.Error()
}
func (f *groupFailed) Unwrap() []error { return []error{ErrDisconnected, f.cause} }

// failure returns why the QP has failed, or nil if it has not.
func (g *Group) failure() error {
	if err := g.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (g *Group) error(op string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, uverbs.ErrClosed) {
		err = net.ErrClosed
	}
	return &Error{Op: op + " the group at", Local: g.LocalAddr(), Err: err}
}

func (g *Group) checkLength(b []byte) error {
	if len(b) > g.mtu {
		return fmt.Errorf("%w: a datagram of %d bytes: Group.MaxDatagram is %d", ErrTooLong, len(b), g.mtu)
	}
	return nil
}

// send copies b to memory of the group and posts it.
func (g *Group) send(ctx context.Context, b []byte, r *route, post func(wrID uint64, s uverbs.SGE) error) error {
	if err := g.checkLength(b); err != nil {
		return err
	}
	slot, err := g.sendSlot(ctx, r)
	if err != nil {
		return err
	}
	copy(g.sendMem[slot*g.mtu:], b)
	if err := post(uint64(slot), g.sends.SGE(slot*g.mtu, len(b))); err != nil {
		g.freeSlot(slot)
		return err
	}
	return nil
}

// sendSlot returns a free slot for a datagram to r, and waits for one if there is none.
func (g *Group) sendSlot(ctx context.Context, r *route) (int, error) {
	for {
		if ctx.Err() != nil {
			return 0, ctxerr.Of(ctx)
		}
		if err := g.reap(); err != nil {
			return 0, err
		}
		if err := g.failure(); err != nil {
			return 0, err
		}
		if slot, ok := g.takeSlot(r); ok {
			return slot, nil
		}
		wc, err := g.cm.SendComp(ctx)
		if err != nil {
			return 0, g.explain(&wc, err)
		}
		g.freeSlot(int(wc.WRID))
	}
}

// reap takes the slots of datagrams that have been sent.
func (g *Group) reap() error {
	var wcs [8]uverbs.WC
	n, err := g.sendCQ.Poll(wcs[:])
	for i := range wcs[:n] {
		if failed := wcs[i].Err(); failed != nil {
			err = g.explain(&wcs[i], failed)
		}
		g.freeSlot(int(wcs[i].WRID))
	}
	return err
}

func (g *Group) takeSlot(r *route) (int, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.free)
	if n == 0 {
		return 0, false
	}
	slot := g.free[n-1]
	g.free = g.free[:n-1]
	if g.routes[slot] = r; r != nil {
		r.busy++
	}
	return slot, true
}

func (g *Group) freeSlot(slot int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.routes[slot]; r != nil {
		r.busy--
		g.routes[slot] = nil
	}
	g.free = append(g.free, slot)
}

// Close leaves the group. It is idempotent. The errors are those of [cm.Group.Close]. Datagrams that wait for an
// address are lost. If the kernel asks the network for an address, Close waits for it, usually for up to a second.
func (g *Group) Close() error {
	errs := []error{g.cm.Close()}
	g.mu.Lock()
	closed := g.closed
	g.closed = true
	g.mu.Unlock()
	if closed {
		return errs[0]
	}
	over := error(net.ErrClosed)
	g.failed.Store(&over)
	errs = append(errs, g.stopRouting())
	for _, mr := range []*uverbs.MR{g.recvs, g.sends} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	return errors.Join(errs...)
}
