package rsocket_test

import (
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// A udpNetwork carries UDP between machines in memory.
type udpNetwork struct {
	mu      sync.Mutex
	sockets map[netip.AddrPort]*udpSocket
	port    uint16
	carried int
	lose    func(from, to netip.AddrPort, b []byte) bool // or nil
}

// A udpSocket is a socket of one machine.
type udpSocket struct {
	net     *udpNetwork
	ips     []netip.Addr // of the machine: IPv4, IPv6
	local   netip.AddrPort
	arrived chan udpPacket
	closed  chan struct{}
	once    sync.Once
}

type udpPacket struct {
	from netip.AddrPort
	data []byte
}

// socket returns a socket of the machine with the addresses ips.
func (n *udpNetwork) socket(local netip.AddrPort, ips ...netip.Addr) (*udpSocket, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if local.Port() == 0 {
		n.port++
		local = netip.AddrPortFrom(local.Addr(), 40000+n.port)
	}
	if !local.Addr().IsValid() {
		local = netip.AddrPortFrom(netip.IPv6Unspecified(), local.Port())
	}
	s := &udpSocket{net: n, ips: ips, local: local, arrived: make(chan udpPacket, 1000), closed: make(chan struct{})}
	for _, a := range s.reached() {
		if n.sockets[a] != nil {
			return nil, syscall.EADDRINUSE
		}
	}
	for _, a := range s.reached() {
		n.sockets[a] = s
	}
	return s, nil
}

// reached returns the addresses under which others reach the socket.
func (s *udpSocket) reached() (all []netip.AddrPort) {
	if !s.local.Addr().IsUnspecified() {
		return []netip.AddrPort{s.local}
	}
	for _, ip := range s.ips {
		all = append(all, netip.AddrPortFrom(ip, s.local.Port()))
	}
	return all
}

func (s *udpSocket) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(s.local) }

func (s *udpSocket) Source(to netip.Addr) (netip.Addr, error) {
	for _, ip := range s.ips {
		if ip.Is4() == to.Is4() {
			return ip, nil
		}
	}
	return netip.Addr{}, syscall.ENETUNREACH
}

func (s *udpSocket) Close() error {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	for _, a := range s.reached() {
		if s.net.sockets[a] == s {
			delete(s.net.sockets, a)
		}
	}
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *udpSocket) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	select {
	case p := <-s.arrived:
		return copy(b, p.data), p.from, nil
	case <-s.closed:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

func (s *udpSocket) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	from := s.local
	if from.Addr().IsUnspecified() {
		ip, err := s.Source(to.Addr())
		if err != nil {
			return 0, err
		}
		from = netip.AddrPortFrom(ip, from.Port())
	}
	s.net.send(from, to, b)
	return len(b), nil
}

// send delivers a packet if there is a socket, and room.
func (n *udpNetwork) send(from, to netip.AddrPort, b []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.carried++
	if n.lose != nil && n.lose(from, to, b) {
		return
	}
	if s := n.sockets[to]; s != nil {
		select {
		case s.arrived <- udpPacket{from, append([]byte(nil), b...)}:
		default:
		}
	}
}

// setLose makes f select packets that are lost.
func (n *udpNetwork) setLose(f func(from, to netip.AddrPort, b []byte) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = f
}

// count returns how many packets were sent.
func (n *udpNetwork) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.carried
}

// A packetRig has machines for datagrams. In memory it has a UDP network.
type packetRig struct {
	*pair
	udp *udpNetwork
}

var replacing sync.Mutex // listenUDP

func newPacketRig(t testing.TB, options ...verbstest.Option) *packetRig {
	p := &pair{}
	if !onKernel {
		p.net = verbstest.NewNetwork(t, options...)
		p.here, p.there = p.net.Machine(), p.net.Machine()
	}
	return &packetRig{p, &udpNetwork{sockets: map[netip.AddrPort]*udpSocket{}}}
}

// longest is the length of datagrams that all paths permit.
const longest = 1016

// on runs f on a machine, whose UDP sockets are in memory then.
func (r *packetRig) on(m *verbstest.Machine, f func()) {
	if m == nil {
		f()
		return
	}
	replacing.Lock()
	defer replacing.Unlock()
	defer replaceUDP(r.udp, m.Addr(), addr6(m))()
	m.Run(f)
}

// replaceUDP makes the UDP sockets of PacketConns those of n, on a machine with the addresses ips.
func replaceUDP(n *udpNetwork, ips ...netip.Addr) (restore func()) {
	return rsocket.ListenUDPWith(func(_ string, addr netip.AddrPort) (rsocket.ContactSocket, error) {
		s, err := n.socket(addr, ips...)
		if err != nil {
			return nil, err
		}
		return rsocket.SocketOf(s), nil
	})
}

// addr6 returns the IPv6 address of a machine in memory.
func addr6(m *verbstest.Machine) netip.Addr {
	ip := netip.MustParseAddr("2001:db8::").As16()
	ip[15] = m.Addr().As4()[3]
	return netip.AddrFrom16(ip)
}

// host returns the address of a machine.
func (r *packetRig) host(m *verbstest.Machine) string {
	if m == nil {
		return deviceIP
	}
	return m.Addr().String()
}

// listenOn returns a PacketConn on a machine, which is closed with the test.
func (r *packetRig) listenOn(t testing.TB, m *verbstest.Machine, config rsocket.Config, host string) (
	p *rsocket.PacketConn) {
	t.Helper()
	r.on(m, func() {
		lc := &rsocket.ListenConfig{Config: config}
		p = must(lc.ListenPacket(t.Context(), "udp", net.JoinHostPort(host, "0")))(t).(*rsocket.PacketConn)
	})
	t.Cleanup(func() { check(t, p.Close()) })
	check(t, p.SetDeadline(time.Now().Add(time.Minute)))
	return p
}

// dialFrom returns a PacketConn on a machine with a remote address, which is closed with the test.
func (r *packetRig) dialFrom(t testing.TB, m *verbstest.Machine, config rsocket.Config, to netip.AddrPort) (
	p *rsocket.PacketConn) {
	t.Helper()
	r.on(m, func() {
		d := &rsocket.Dialer{Config: config}
		p = must(d.DialPacket(t.Context(), "udp", to.String()))(t)
	})
	t.Cleanup(func() { check(t, p.Close()) })
	check(t, p.SetDeadline(time.Now().Add(time.Minute)))
	return p
}

// both returns a PacketConn on each machine.
func (r *packetRig) both(t testing.TB, config rsocket.Config) (here, there *rsocket.PacketConn) {
	t.Helper()
	return r.listenOn(t, r.here, config, r.host(r.here)), r.listenOn(t, r.there, config, r.host(r.there))
}

// addrOf returns where others reach p, which is bound.
func addrOf(p *rsocket.PacketConn) netip.AddrPort { return p.LocalAddr().(*net.UDPAddr).AddrPort() }

// acquaint sends datagrams in both directions until both sides have a route.
func acquaint(t testing.TB, a, b *rsocket.PacketConn) {
	t.Helper()
	buf := make([]byte, 16)
	for {
		_, ab := a.Route(addrOf(b))
		_, ba := b.Route(addrOf(a))
		if ab && ba {
			return
		}
		must(a.WriteToUDPAddrPort([]byte("to b"), addrOf(b)))(t)
		must(b.Read(buf))(t)
		must(b.WriteToUDPAddrPort([]byte("to a"), addrOf(a)))(t)
		must(a.Read(buf))(t)
	}
}
