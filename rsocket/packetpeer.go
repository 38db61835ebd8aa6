package rsocket

import (
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A packetPeer is what a PacketConn knows of an address. The fields that change belong to PacketConn.mu.
type packetPeer struct {
	addr      netip.AddrPort
	qp        *packetQP // the local one, or nil
	qpn       uint32    // of the peer, or 0 if it is not known
	written   bool      // the program has sent to it
	used      uint64    // see PacketConn.clock
	contacted time.Time // when the program last sent to it by UDP

	route   *route // or nil
	wanted  bool   // the route is to be resolved
	retryAt time.Time
}

// A route leads to the QP of a peer. The fields that change belong to PacketConn.mu.
type route struct {
	ah       *uverbs.AH
	qpn      uint32
	mtu      int // of a datagram with its header
	resolved time.Time
	busy     int  // datagrams that use it
	retired  bool // no datagram will use it
}

const (
	maxPacketPeers = 4096 // that a PacketConn knows
	evictSample    = 16   // peers of which one is forgotten if there are too many
	maxWanted      = 256  // routes that wait to be resolved

	// A peer that has restarted has another QP. A contact finds out.
	contactInterval = 5 * time.Second
	// A path may change. The contact after this time resolves it again.
	routeLife = time.Minute
	// resolveRetry is the time after which a route that could not be resolved is tried again.
	resolveRetry = time.Second
)

// peer returns what is known of an address. The caller holds p.mu.
func (p *PacketConn) peer(addr netip.AddrPort) (*packetPeer, error) {
	peer := p.peers[addr]
	if peer == nil {
		if err := p.evict(); err != nil {
			return nil, err
		}
		peer = &packetPeer{addr: addr}
		p.peers[addr] = peer
	}
	p.clock++
	peer.used = p.clock
	return peer, nil
}

// evict makes room for a peer. It forgets a peer to which the program has not sent, if it meets one, and otherwise one
// that was not used for long. Peers that are forgotten are found again by a contact. The caller holds p.mu.
func (p *PacketConn) evict() error {
	if len(p.peers) < maxPacketPeers {
		return nil
	}
	var found *packetPeer
	seen := 0
	for _, peer := range p.peers { // in random order
		if found == nil || found.written && !peer.written || found.written == peer.written && peer.used < found.used {
			found = peer
		}
		if seen++; seen == evictSample {
			break
		}
	}
	delete(p.peers, found.addr)
	return p.retire(found)
}

// retire makes no further datagram use the route of a peer. The caller holds p.mu.
func (p *PacketConn) retire(peer *packetPeer) error {
	r := peer.route
	if r == nil {
		return nil
	}
	peer.route, r.retired = nil, true
	return r.closeIdle()
}

// closeIdle closes the address handle if nothing uses it any more.
func (r *route) closeIdle() error {
	if !r.retired || r.busy > 0 {
		return nil
	}
	return r.ah.Close()
}

// heard notes that a peer has a QP. The caller holds p.mu.
func (p *PacketConn) heard(peer *packetPeer, q *packetQP, qpn uint32) error {
	if peer.qp == nil {
		peer.qp = q
	}
	if peer.qpn != qpn {
		peer.qpn, peer.retryAt = qpn, time.Time{}
		if err := p.retire(peer); err != nil {
			return err
		}
	}
	if peer.written {
		p.want(peer)
	}
	return nil
}

// want has the route to a peer resolved if there is none, or if it is old. The caller holds p.mu.
func (p *PacketConn) want(peer *packetPeer) {
	if peer.wanted || peer.qpn == 0 || len(p.wanted) >= maxWanted ||
		peer.route != nil && time.Since(peer.route.resolved) < routeLife || time.Until(peer.retryAt) > 0 {
		return
	}
	peer.wanted = true
	p.wanted = append(p.wanted, peer)
	select {
	case p.resolve <- struct{}{}:
	default: // the manager is to look already
	}
}
