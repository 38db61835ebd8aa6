package rsocket

import (
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// What tests outside of this package use.

const (
	MaxPacketPeers  = maxPacketPeers
	MaxWanted       = maxWanted
	MaxEarly        = maxEarly
	ContactInterval = contactInterval
)

type ContactSocket = contactSocket

// ListenUDPWith replaces the UDP sockets of PacketConns. The result restores them.
func ListenUDPWith(f func(network string, addr netip.AddrPort) (ContactSocket, error)) (restore func()) {
	before := listenUDP
	listenUDP = f
	return func() { listenUDP = before }
}

// Source is the method of ContactSocket, for other packages.
type Source interface {
	ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	LocalAddr() net.Addr
	Close() error
	Source(to netip.Addr) (netip.Addr, error)
}

type sourced struct{ Source }

func (s sourced) source(to netip.Addr) (netip.Addr, error) { return s.Source.Source(to) }

// SocketOf returns a ContactSocket.
func SocketOf(s Source) ContactSocket { return sourced{s} }

// Contact returns a contact of a QP.
func Contact(reply bool, qpn uint32, from netip.Addr, payload []byte) []byte {
	c := contact{op: opData, qpn: qpn, payload: payload}
	if reply {
		c.op = opControl
	}
	return appendContact(nil, c, from)
}

// ParseContact parses a contact.
func ParseContact(b []byte, is4 bool) (reply bool, qpn uint32, payload []byte, ok bool) {
	c, ok := parseContact(b, is4)
	return c.op == opControl, c.qpn, c.payload, ok
}

// DatagramHeader returns the header of the datagrams from an address.
func DatagramHeader(from netip.AddrPort) []byte { return appendDatagramHeader(nil, from) }

// Peers returns the number of peers that p knows, and of routes that wait to be resolved.
func (p *PacketConn) Peers() (known, wanted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.peers), len(p.wanted)
}

// Route reports whether p has a route to a peer, and the number of the QP that it leads to.
func (p *PacketConn) Route(to netip.AddrPort) (qpn uint32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if peer := p.peers[to]; peer != nil && peer.route != nil {
		return peer.route.qpn, true
	}
	return 0, false
}

// Renew makes the next datagram to a peer go by UDP.
func (p *PacketConn) Renew(to netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peers[to].contacted = p.peers[to].contacted.Add(-contactInterval)
}

// QPN returns the number of the first QP of p.
func (p *PacketConn) QPN() uint32 { return p.qps[0].qp.QPN() }

// PostTo sends bytes as they are from the first QP of p by the route to a peer, also more than datagrams have.
func (p *PacketConn) PostTo(to netip.AddrPort, b []byte) error {
	p.writer.lock.Lock()
	defer p.writer.lock.Unlock()
	w, err := p.way(to)
	if err != nil || w.route == nil {
		return err
	}
	slot, err := p.sendSlot(w.qp)
	if err != nil {
		return err
	}
	w.qp.routes[slot] = w.route
	if len(b) > datagramLen {
		_, err := w.qp.qp.PostSend(uverbs.SendWR{WRID: uint64(slot), Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{w.qp.sends.SGE(0, len(b))}, AH: w.route.ah, QPN: w.route.qpn, QKey: cm.UDQKey})
		return err
	}
	copy(w.qp.sends.Bytes()[slot*datagramLen:][:datagramLen], b)
	return w.qp.post(slot, len(b), w.route)
}

// ParseDatagram parses a datagram.
func ParseDatagram(b []byte, is4 bool) (from netip.AddrPort, payload []byte, ok bool) {
	return parseDatagram(b, is4)
}

// QPs returns the number of QPs of p.
func (p *PacketConn) QPs() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.qps)
}
