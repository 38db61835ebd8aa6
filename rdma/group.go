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
	maxPeers         = 1024 // in the cache of addresses
)

// A Group is a member of a multicast group. It exchanges datagrams with the group and with single members. Datagrams
// are not longer than MaxDatagram; they may be lost, but not changed. The methods of a Group may be called
// concurrently.
type Group struct {
	cm    *cm.Group
	mtu   int
	depth int
	qpn   uint32
	gid   uverbs.GID

	// What cm returns is nil after Close, while calls may still run.
	verbs  *uverbs.Context
	pd     *uverbs.PD
	port   int
	sendCQ *uverbs.CQ

	recvs, sends     *uverbs.MR
	recvMem, sendMem []byte // of the MRs: slots of GRH and datagram, and of datagrams

	uses []atomic.Uint32 // by slot of recvs: how often a datagram in it was released

	mu     sync.Mutex
	closed bool
	free   []int                 // slots of sends
	routes [datagramSends]*route // of the datagrams in the slots
	peers  map[uverbs.AHKey]*route
	clock  uint64 // counts uses of peers
}

// A route is an address handle in the cache.
type route struct {
	ah   *uverbs.AH
	used uint64 // when it was used last
	busy int    // calls and datagrams that use it
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
	g := &Group{cm: m, depth: full.Depth, peers: map[uverbs.AHKey]*route{}}
	if err := g.setUp(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// setUp registers memory and posts the receives.
func (g *Group) setUp() error {
	g.verbs, g.pd, g.port, g.sendCQ = g.cm.Verbs(), g.cm.PD(), g.cm.ID().Port(), g.cm.ID().SendCQ()
	port, err := g.verbs.QueryPort(g.port)
	if err != nil {
		return err
	}
	g.mtu = port.ActiveMTU.Bytes()
	g.qpn, g.gid = g.cm.QP().QPN(), g.cm.ID().LocalGID()
	g.recvMem = make([]byte, g.depth*(uverbs.GRHLen+g.mtu))
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
	n := uverbs.GRHLen + g.mtu
	return g.cm.PostRecv(uint64(slot), g.recvs.SGE(slot*n, n))
}

// MaxDatagram returns the length in bytes of the longest datagram: the MTU of the port.
func (g *Group) MaxDatagram() int { return g.mtu }

// LocalAddr returns the local address.
func (g *Group) LocalAddr() netip.AddrPort { return g.cm.LocalAddr() }

// CM returns the member of package cm, for queries of its id, its QP and its device.
func (g *Group) CM() *cm.Group { return g.cm }

// Recv waits for a datagram of another member. It returns context.Cause(ctx) if ctx ends first, and an error that
// matches net.ErrClosed after Close. While the program holds as many datagrams as GroupOptions.Depth says, none arrive.
func (g *Group) Recv(ctx context.Context) (Datagram, error) {
	for {
		wc, err := g.cm.RecvComp(ctx)
		if err != nil {
			return Datagram{}, g.error("receive in", err)
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
	n := uverbs.GRHLen + g.mtu
	b := g.recvMem[int(wc.WRID)*n:][:n]
	d := Datagram{g: g, slot: int(wc.WRID), use: g.uses[wc.WRID].Load()}
	key, err := wc.AHKey(b[:uverbs.GRHLen])
	if err != nil || wc.ByteLen < uverbs.GRHLen || int(wc.ByteLen) > n || g.isOwn(wc, b) {
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

// Release gives the memory of the datagram back, for the next one. Further calls do nothing. Package verbstest
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
// for later datagrams: the first one costs two commands of the kernel. SendTo returns [uverbs.ErrInvalid] for the zero
// Peer, and for one that has sent to an address that the port does not have any more. See [Group.Send].
func (g *Group) SendTo(ctx context.Context, b []byte, to Peer) error {
	if to.qpn == 0 {
		return g.error("send in", fmt.Errorf("%w: the zero Peer has no address: use Datagram.From", uverbs.ErrInvalid))
	}
	r, err := g.route(to.key)
	if err != nil {
		return g.error("send in", err)
	}
	defer g.routeDone(r)
	err = g.send(ctx, b, r, func(wrID uint64, s uverbs.SGE) error {
		return g.cm.ID().PostUDSend(wrID, uverbs.Signaled, r.ah, to.qpn, s)
	})
	return g.error("send in", err)
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

// send copies b to memory of the group and posts it.
func (g *Group) send(ctx context.Context, b []byte, r *route, post func(wrID uint64, s uverbs.SGE) error) error {
	if len(b) > g.mtu {
		return fmt.Errorf("%w: a datagram of %d bytes: the limit is %d", ErrTooLong, len(b), g.mtu)
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
			return 0, context.Cause(ctx)
		}
		if err := g.reap(); err != nil {
			return 0, err
		}
		if slot, ok := g.takeSlot(r); ok {
			return slot, nil
		}
		wc, err := g.cm.SendComp(ctx)
		if err != nil {
			return 0, err
		}
		g.freeSlot(int(wc.WRID))
	}
}

// reap takes the slots of datagrams that have been sent.
func (g *Group) reap() error {
	var wcs [8]uverbs.WC
	n, err := g.sendCQ.Poll(wcs[:])
	for i := range wcs[:n] {
		if err == nil {
			err = wcs[i].Err()
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

// route returns the address handle for a peer. The caller calls routeDone.
func (g *Group) route(key uverbs.AHKey) (*route, error) {
	if r, err := g.cached(key); r != nil || err != nil {
		return r, err
	}
	attr, err := g.verbs.AHAttrFromKey(g.port, key)
	if err != nil {
		return nil, err
	}
	ah, err := g.pd.CreateAH(attr) // may wait for the network, so without g.mu
	if err != nil {
		return nil, err
	}
	return g.addRoute(key, ah)
}

// cached returns the route of a peer if there is one.
func (g *Group) cached(key uverbs.AHKey) (*route, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, net.ErrClosed
	}
	r := g.peers[key]
	if r != nil {
		g.clock++
		r.used = g.clock
		r.busy++
	}
	return r, nil
}

// addRoute adds an address handle to the cache, unless another call has added one.
func (g *Group) addRoute(key uverbs.AHKey, ah *uverbs.AH) (*route, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errors.Join(net.ErrClosed, ah.Close())
	}
	g.clock++
	if r := g.peers[key]; r != nil {
		r.used = g.clock
		r.busy++
		return r, ah.Close()
	}
	if len(g.peers) >= maxPeers {
		if err := g.evict(); err != nil {
			return nil, errors.Join(err, ah.Close())
		}
	}
	r := &route{ah: ah, used: g.clock, busy: 1}
	g.peers[key] = r
	return r, nil
}

// evict removes the route that was not used for the longest time.
func (g *Group) evict() error {
	var oldest uverbs.AHKey
	var found *route
	for key, r := range g.peers {
		if r.busy == 0 && (found == nil || r.used < found.used) {
			oldest, found = key, r
		}
	}
	if found == nil {
		return nil // all are in use: there are as many calls
	}
	delete(g.peers, oldest)
	return found.ah.Close()
}

func (g *Group) routeDone(r *route) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.busy--
}

// Close leaves the group. It is idempotent. The errors are those of [cm.Group.Close].
func (g *Group) Close() error {
	errs := []error{g.cm.Close()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errs[0]
	}
	g.closed = true
	for _, r := range g.peers {
		errs = append(errs, r.ah.Close())
	}
	for _, mr := range []*uverbs.MR{g.recvs, g.sends} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	return errors.Join(errs...)
}
