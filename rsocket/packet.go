package rsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A PacketConn sends and receives datagrams. It implements [net.PacketConn] and, after [DialPacket], is a [net.Conn]
// whose peer is one address. Its methods may be called concurrently. *net.UDPAddr is the type of its addresses.
//
// The first datagrams to a peer go by UDP, from a socket with the same address and port, until the QP of the peer is
// known and the path to it resolved. One every few seconds also does, and finds a peer that has restarted. All others
// go from QP to QP. The longest datagram is 8 bytes (IPv6: 24) shorter than the MTU of the path, and at most 2032
// (IPv6: 2020) bytes long.
//
// Datagrams may be lost, repeated or reordered. While no call reads, as many are kept as Config.RecvBuffer and
// RecvQueue permit.
//
// The peer may be a datagram rsocket in C. Those of librdmacm work on InfiniBand only: on RoCE they fail to create an
// address handle for themselves (rdma-core 63).
type PacketConn struct {
	config *Config
	udp    contactSocket
	local  netip.AddrPort // of udp
	remote netip.AddrPort // that was dialed, or invalid
	bound  bool           // to one address, whose QP is qps[0]

	is4, bothFamilies bool

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // of goroutines
	close  func() error

	create  chan createRequest
	resolve chan struct{} // a route is wanted

	reader  packetSide
	writer  packetSide
	inbox   inbox  // of reader
	contact []byte // of writer

	mu        sync.Mutex // locked after those of the sides
	closed    bool
	err       error // why nothing works any more, or nil
	qps       []*packetQP
	failures  map[netip.Addr]failure
	early     []packet
	peers     map[netip.AddrPort]*packetPeer
	clock     uint64 // counts uses of peers
	wanted    []*packetPeer
	resolvers int
}

// ListenPacket receives datagrams at addr: see [ListenConfig.ListenPacket].
func ListenPacket(network, addr string) (*PacketConn, error) {
	return new(ListenConfig).listenPacket(context.Background(), network, addr)
}

// ListenPacket receives datagrams at addr, host:port. Network is "udp", "udp4" or "udp6". Without a host, it uses all
// addresses that belong to RDMA devices, and creates the QP of an address when a peer is met there. Port 0 stands for
// one that the kernel chooses. A UDP socket takes the port, too. The sizes of buffers and queues, Inline,
// Polling, Linger, TOS and PD of the Config are used. The [net.PacketConn] is a [*PacketConn].
//
// The error is a [*net.OpError]. It matches [ErrNoRDMA] if the address belongs to no RDMA device, and otherwise the
// errors of [net.ListenUDP], [cm.ID.Bind] and [cm.ID.CreateQP].
func (lc *ListenConfig) ListenPacket(ctx context.Context, network, addr string) (net.PacketConn, error) {
	p, err := lc.listenPacket(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (lc *ListenConfig) listenPacket(ctx context.Context, network, addr string) (*PacketConn, error) {
	p, err := func() (*PacketConn, error) {
		config, err := lc.Config.complete()
		if err != nil {
			return nil, err
		}
		local, err := resolveUDP(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return openPacket(config, network, local, netip.AddrPort{})
	}()
	if err != nil {
		return nil, packetError("listen", nil, textAddr(addr), err)
	}
	return p, nil
}

// DialPacket sends datagrams to addr, and receives those from there: see [Dialer.DialPacket].
func DialPacket(network, addr string) (*PacketConn, error) {
	return new(Dialer).DialPacket(context.Background(), network, addr)
}

// DialPacket sends datagrams to addr, host:port, and receives those from there. Nothing is sent before the first
// datagram: the peer need not exist. Network is "udp", "udp4" or "udp6". Dialer.LocalAddr is a *net.UDPAddr or nil; of
// the Config, the same fields are used as by [ListenConfig.ListenPacket].
//
// The error is a [*net.OpError]. It matches [ErrNoRDMA] if this machine's address for the peer belongs to no RDMA
// device, and otherwise the errors of [net.DialUDP], [cm.ID.Bind] and [cm.ID.CreateQP].
func (d *Dialer) DialPacket(ctx context.Context, network, addr string) (*PacketConn, error) {
	p, err := d.dialPacket(ctx, network, addr)
	if err != nil {
		return nil, packetError("dial", d.LocalAddr, textAddr(addr), err)
	}
	return p, nil
}

func (d *Dialer) dialPacket(ctx context.Context, network, addr string) (*PacketConn, error) {
	config, err := d.Config.complete()
	if err != nil {
		return nil, err
	}
	remote, err := resolveUDP(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if !remote.Addr().IsValid() || remote.Addr().IsUnspecified() || remote.Port() == 0 {
		return nil, &net.AddrError{Err: "missing host or port", Addr: addr}
	}
	var local netip.AddrPort
	switch a := d.LocalAddr.(type) {
	case nil:
	case *net.UDPAddr:
		local = unmapped(a.AddrPort())
	default:
		return nil, fmt.Errorf("%w: Dialer.LocalAddr is a %T: use a *net.UDPAddr", uverbs.ErrInvalid, a)
	}
	if !local.Addr().IsValid() || local.Addr().IsUnspecified() {
		from, err := sourceOf(network, remote.Addr())
		if err != nil {
			return nil, err
		}
		local = netip.AddrPortFrom(from, local.Port())
	}
	return openPacket(config, network, local, remote)
}

// sourceOf returns the address from which this machine sends to another one.
func sourceOf(network string, to netip.Addr) (netip.Addr, error) {
	udp, err := listenUDP(network, netip.AddrPort{})
	if err != nil {
		return netip.Addr{}, err
	}
	from, err := udp.source(to)
	return from, errors.Join(err, udp.Close())
}

// openPorts is how many ports of the kernel's choice are tried. A port that is free for UDP may be in use between
// QPs.
const openPorts = 8

// openPacket returns a PacketConn with a local address.
func openPacket(config *Config, network string, local, remote netip.AddrPort) (p *PacketConn, err error) {
	for range openPorts {
		if p, err = newPacket(config, network, local, remote); local.Port() != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return p, err
}

func newPacket(config *Config, network string, local, remote netip.AddrPort) (*PacketConn, error) {
	udp, err := listenUDP(network, local)
	if err != nil {
		return nil, err
	}
	p := &PacketConn{config: config, udp: udp, remote: remote,
		create: make(chan createRequest), resolve: make(chan struct{}, 1),
		failures: map[netip.Addr]failure{}, peers: map[netip.AddrPort]*packetPeer{}}
	p.local = unmapped(udp.LocalAddr().(*net.UDPAddr).AddrPort())
	p.is4 = p.local.Addr().Is4()
	p.bothFamilies = network == "udp" && p.local.Addr() == netip.IPv6Unspecified()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.close = sync.OnceValue(p.closeAll)
	p.initWaits()
	if p.bound = !p.local.Addr().IsUnspecified(); p.bound {
		q, err := newPacketQP(config, p.local)
		if err != nil {
			p.cancel()
			return nil, errors.Join(err, udp.Close())
		}
		p.qps = []*packetQP{q}
	}
	p.wg.Go(p.serve)
	p.wg.Go(p.manage)
	return p, nil
}

// resolveUDP returns the address for host:port. Without a host, the IP address is invalid.
func resolveUDP(ctx context.Context, network, addr string) (netip.AddrPort, error) {
	var ipNetwork string
	switch network {
	case "udp", "udp4", "udp6":
		ipNetwork = "ip" + network[3:]
	default:
		return netip.AddrPort{}, net.UnknownNetworkError(network)
	}
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		return netip.AddrPortFrom(netip.Addr{}, uint16(port)), nil
	}
	ip, err := lookupIP(ctx, ipNetwork, host)
	return netip.AddrPortFrom(ip, uint16(port)), err
}

// lookupIP returns the address of a host in the network ip, ip4 or ip6. In the network ip it prefers IPv4, as package
// net does.
func lookupIP(ctx context.Context, network, host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil { // the resolver drops zones
		ip = ip.Unmap()
		if network != "ip" && ip.Is4() != (network == "ip4") {
			return netip.Addr{}, &net.AddrError{Err: "an address of another family than the network's", Addr: host}
		}
		return ip, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, network, host)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, ip := range ips {
		if ip.Unmap().Is4() {
			return ip.Unmap(), nil
		}
	}
	return ips[0], nil
}

// LocalAddr returns the local address, a *net.UDPAddr.
func (p *PacketConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(p.local) }

// RemoteAddr returns the address that was dialed, a *net.UDPAddr, or nil after ListenPacket.
func (p *PacketConn) RemoteAddr() net.Addr {
	if !p.remote.IsValid() {
		return nil
	}
	return net.UDPAddrFromAddrPort(p.remote)
}

// MaxDatagram returns the length in bytes of the longest datagram that the port of the device permits. The path to a
// peer may permit less. If the PacketConn is not bound to one address, it is the length that the protocol permits.
func (p *PacketConn) MaxDatagram() int {
	if p.bound {
		return limit(p.qps[0].mtu, p.is4)
	}
	return limit(datagramLen, p.is4)
}

// Close closes the PacketConn. Calls that wait return an error that matches [net.ErrClosed]. Close waits until the
// device has sent what was written, at most for Config.Linger, or 100 milliseconds if that is 0. It is idempotent. An
// error means that an object could not be closed.
func (p *PacketConn) Close() error { return p.close() }

func (p *PacketConn) closeAll() error {
	p.mu.Lock()
	p.closed = true
	for _, s := range p.sides() {
		s.Interrupt()
		s.SetDeadline(time.Time{})
	}
	p.mu.Unlock()
	p.cancel()
	errs := []error{p.udp.Close()}
	p.wg.Wait()
	p.reader.lock.Lock() // until the calls have returned
	defer p.reader.lock.Unlock()
	p.writer.lock.Lock()
	defer p.writer.lock.Unlock()
	wait := p.config.Linger
	if wait == 0 {
		wait = closeTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(wait, time.Nanosecond))
	defer cancel()
	routes := map[*route]bool{}
	for _, q := range p.qps {
		p.finishSends(ctx, q)
		for _, r := range q.routes {
			if r != nil {
				routes[r] = true
			}
		}
		errs = append(errs, q.close())
	}
	for _, peer := range p.peers {
		if peer.route != nil {
			routes[peer.route] = true
		}
	}
	for r := range routes {
		errs = append(errs, r.ah.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return p.opError("close", err)
	}
	return nil
}

// finishSends waits until the device has sent what was posted to a QP.
func (p *PacketConn) finishSends(ctx context.Context, q *packetQP) {
	for len(q.free) < len(q.routes) {
		reaped, err := p.reap(q)
		if err != nil || !reaped && q.sendCQ.Wait(ctx) != nil {
			return // what was not sent is lost
		}
	}
}

// opError returns the error of a call.
func (p *PacketConn) opError(op string, err error) error { return p.opErrorTo(op, p.RemoteAddr(), err) }

func (p *PacketConn) opErrorTo(op string, addr net.Addr, err error) error {
	return packetError(op, p.LocalAddr(), addr, err)
}

func packetError(op string, source, addr net.Addr, err error) error {
	return &net.OpError{Op: op, Net: network, Source: source, Addr: addr, Err: dialError(err)}
}
