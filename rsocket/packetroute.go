package rsocket

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

const (
	maxResolvers   = 8 // routes of a PacketConn that are resolved at a time
	resolveTimeout = 2 * time.Second
)

// manage starts what needs the connection manager, for the calls of the program and for contacts.
func (p *PacketConn) manage() {
	for {
		select {
		case r := <-p.create:
			r.reply <- p.createQP(r.local)
		case <-p.resolve:
			p.startResolvers()
		case <-p.ctx.Done():
			return
		}
	}
}

// startResolvers starts goroutines for the routes that are wanted.
func (p *PacketConn) startResolvers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.wanted); n > 0 && p.resolvers < maxResolvers && !p.closed; n-- {
		p.resolvers++
		p.wg.Go(p.resolveRoutes)
	}
}

// resolveRoutes resolves routes until none is wanted.
func (p *PacketConn) resolveRoutes() {
	for {
		p.mu.Lock()
		if len(p.wanted) == 0 || p.closed {
			p.resolvers--
			p.mu.Unlock()
			return
		}
		peer := p.wanted[0]
		p.wanted = p.wanted[1:]
		q, qpn := peer.qp, peer.qpn
		p.mu.Unlock()
		r, err := p.resolveRoute(q, peer.addr)
		p.resolved(peer, qpn, r, err)
	}
}

// resolved notes the route to a peer. If it could not be resolved, datagrams go on by UDP.
func (p *PacketConn) resolved(peer *packetPeer, qpn uint32, r *route, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer.wanted = false
	if err != nil {
		peer.retryAt = time.Now().Add(resolveRetry)
		return
	}
	r.qpn = qpn
	if p.closed || p.peers[peer.addr] != peer || peer.qpn != qpn {
		r.retired = true
		p.fail(r.closeIdle())
		if p.peers[peer.addr] == peer {
			p.want(peer)
		}
		return
	}
	p.fail(p.retire(peer))
	peer.route = r
}

// resolveRoute returns a route to a peer, without the number of its QP.
func (p *PacketConn) resolveRoute(q *packetQP, to netip.AddrPort) (*route, error) {
	path, err := p.resolvePath(q, to)
	if err != nil {
		return nil, err
	}
	attr, err := q.ahAttr(path)
	if err != nil {
		return nil, err
	}
	r := &route{mtu: q.mtu, resolved: time.Now()}
	if mtu := path.MTU.Bytes(); mtu > 0 {
		r.mtu = min(r.mtu, mtu)
	}
	if r.ah, err = q.qp.PD().CreateAH(attr); err != nil {
		return nil, err
	}
	return r, nil
}

// resolvePath returns the path from a QP to a peer.
func (p *PacketConn) resolvePath(q *packetQP, to netip.AddrPort) (_ *cm.PathRecord, err error) {
	id, err := cm.NewID(cm.PSUDP)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, id.Close()) }()
	if err := id.SetTOS(p.config.TOS); err != nil {
		return nil, err
	}
	if err := id.ResolveAddr(p.ctx, netip.AddrPortFrom(q.local.Addr(), 0), to, resolveTimeout); err != nil {
		return nil, err
	}
	if err := id.ResolveRoute(p.ctx, resolveTimeout); err != nil {
		return nil, err
	}
	paths, err := id.Paths()
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 || id.Port() != q.id.Port() || id.Verbs() != q.id.Verbs() {
		return nil, fmt.Errorf("%w: no path from %v to %v", cm.ErrUnreachable, q.local.Addr(), to)
	}
	return &paths[0], nil
}

// ahAttr returns the address of the end of a path.
func (q *packetQP) ahAttr(path *cm.PathRecord) (uverbs.AHAttr, error) {
	port := q.id.Port()
	a := uverbs.AHAttr{Port: uint8(port), DLID: path.DLID, SL: path.SL, StaticRate: path.Rate,
		SrcPathBits: uint8(path.SLID) & (1<<q.lmc - 1)}
	if q.linkLayer == uverbs.LinkInfiniBand && path.HopLimit <= 1 {
		return a, nil // within the subnet
	}
	gids, err := q.id.Verbs().GIDs(port)
	if err != nil {
		return a, err
	}
	index, found := 0, false
	for _, g := range gids {
		// The kernel uses RoCE v2 by default, and it is routed.
		if g.GID == path.SGID && (!found || g.Type == uverbs.GIDTypeRoCEv2) {
			index, found = g.Index, true
		}
	}
	if !found {
		return a, fmt.Errorf("%w: port %d does not have the GID %v of the path", cm.ErrUnreachable, port, path.SGID)
	}
	a.IsGlobal, a.DGID, a.SGIDIndex = true, path.DGID, uint8(index)
	a.FlowLabel, a.HopLimit, a.TrafficClass = path.FlowLabel, max(path.HopLimit, 1), path.TrafficClass
	return a, nil
}

// A createRequest asks the manager for the QP of a local address.
type createRequest struct {
	local netip.AddrPort
	reply chan created
}

type created struct {
	qp  *packetQP
	err error
}

// A failure is of a QP that could not be created. Contacts do not make the kernel try again and again.
type failure struct {
	err error
	at  time.Time
}

// qpTo returns the QP whose address this machine sends from to another one.
func (p *PacketConn) qpTo(to netip.Addr) (*packetQP, error) {
	if p.bound {
		return p.qps[0], nil
	}
	from, err := p.udp.source(to)
	if err != nil {
		return nil, err
	}
	r := createRequest{netip.AddrPortFrom(from, p.local.Port()), make(chan created, 1)}
	if q, err := p.findQP(r.local); q != nil || err != nil {
		return q, err
	}
	select {
	case p.create <- r:
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
	select {
	case c := <-r.reply:
		return c.qp, c.err
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

// findQP returns the QP of a local address if there is one, or why it could not be created a moment ago.
func (p *PacketConn) findQP(local netip.AddrPort) (*packetQP, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.qps {
		if q.local == local {
			return q, nil
		}
	}
	if f, ok := p.failures[local.Addr()]; ok && time.Since(f.at) < resolveRetry {
		return nil, f.err
	}
	return nil, nil
}

// createQP creates the QP of a local address, unless it exists.
func (p *PacketConn) createQP(local netip.AddrPort) created {
	if q, err := p.findQP(local); q != nil || err != nil {
		return created{q, err}
	}
	q, err := newPacketQP(p.config, local)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failures[local.Addr()] = failure{err, time.Now()} // as many as this machine has addresses
		return created{nil, err}
	}
	p.addQP(q)
	return created{q, nil}
}

// addQP adds a QP. The caller holds p.mu.
func (p *PacketConn) addQP(q *packetQP) {
	p.qps = append(p.qps, q)
	if len(p.qps) > 1 {
		p.wg.Go(func() { p.watch(q) })
	}
	p.reader.Interrupt()
}
