package rsocket

import (
	"net/netip"
)

// A packet is a datagram that has arrived by UDP.
type packet struct {
	from netip.AddrPort
	data []byte
}

// maxEarly is how many datagrams that have arrived by UDP may wait for a read.
const maxEarly = 64

// serve handles the contacts of peers. No contact makes it wait for the network.
func (p *PacketConn) serve() {
	b, reply := make([]byte, datagramLen+1), make([]byte, 0, contactLen6)
	for {
		n, from, err := p.udp.ReadFromUDPAddrPort(b)
		if err != nil {
			p.mu.Lock()
			p.fail(err) // after Close it means nothing
			p.mu.Unlock()
			return
		}
		from = unmapped(from)
		if p.remote.IsValid() && from != p.remote {
			continue
		}
		if c, ok := parseContact(b[:n], from.Addr().Is4()); ok {
			p.serveContact(c, from, reply)
		}
	}
}

// serveContact handles one contact.
func (p *PacketConn) serveContact(c contact, from netip.AddrPort, reply []byte) {
	if c.op == opControl {
		p.mu.Lock()
		defer p.mu.Unlock()
		// A peer that this side has not contacted has no reason to reply.
		if peer := p.peers[from]; peer != nil && peer.qp != nil {
			p.fail(p.heard(peer, peer.qp, c.qpn))
		}
		return
	}
	q, err := p.contacted(from, c.qpn)
	if err != nil {
		return // no QP here has a path to the peer, which will send again
	}
	// The peer does without a reply that is lost.
	_, _ = p.udp.WriteToUDPAddrPort(appendContact(reply, contact{op: opControl, qpn: q.qp.QPN()}, q.local.Addr()), from)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.early) < maxEarly {
		p.early = append(p.early, packet{from, append([]byte(nil), c.payload...)})
		p.reader.Interrupt()
	}
}

// contacted notes the QP of a peer that has sent a datagram by UDP. It returns the QP for the peer.
func (p *PacketConn) contacted(from netip.AddrPort, qpn uint32) (*packetQP, error) {
	p.mu.Lock()
	known := p.peers[from]
	if known != nil && known.qp != nil {
		defer p.mu.Unlock()
		return known.qp, p.heard(known, known.qp, qpn)
	}
	p.mu.Unlock()
	q, err := p.qpTo(from.Addr())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	peer, err := p.peer(from)
	if err != nil {
		return nil, err
	}
	return q, p.heard(peer, q, qpn)
}

// unmapped returns a without the form of IPv4 addresses that sockets for both families use.
func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
