package rsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A Dialer has options for connecting. [Dial] uses the zero value. Its methods may be called concurrently.
type Dialer struct {
	Config
	// Timeout limits a call. If it is 0, the deadline of its context applies, or 30 seconds if the context has
	// none.
	Timeout time.Duration
	// LocalAddr is the address to dial from, a *net.TCPAddr. If it is nil, the routing table decides.
	LocalAddr net.Addr
	// LocalIB is the address to dial from with DialIB. If it is nil, the kernel chooses one.
	LocalIB *cm.IBAddr
	// Paths are the route to the peer. If there are none, it is resolved.
	Paths []cm.PathRecord
}

// Dial connects to an rsocket that listens at addr: see [Dialer.DialContext].
func Dial(network, addr string) (*Conn, error) {
	return new(Dialer).dial(context.Background(), network, addr)
}

// DialContext connects to an rsocket that listens at addr, host:port. Names and addresses are those of TCP, and
// network is "tcp", "tcp4" or "tcp6", so that DialContext can replace the one of [net.Dialer]. The [net.Conn] is
// a [*Conn].
//
// The error is a [*net.OpError]. It matches [ErrNoRDMA] if there is no way by RDMA, [syscall.ECONNREFUSED] if no
// program listens, [ErrProtocol] if the program that listens is no rsocket, and otherwise the errors of [cm.Dial].
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (d *Dialer) dial(ctx context.Context, network, addr string) (*Conn, error) {
	c, err := d.connect(func(o *cm.Options) (_ *cm.Conn, err error) {
		if o.LocalAddr, err = addrPort(d.LocalAddr); err != nil {
			return nil, err
		}
		resolved, err := resolve(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return cm.Dial(ctx, resolved, o)
	})
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Source: d.LocalAddr, Addr: textAddr(addr), Err: dialError(err)}
	}
	return c, nil
}

// DialIB is [Dialer.DialContext] to an address of the InfiniBand family, from Dialer.LocalIB or an address that the
// kernel chooses. Without a subnet manager, the program sets Dialer.Paths. The addresses of the Conn are of type
// [IBAddr]. The errors are those of DialContext and [cm.DialIB].
func (d *Dialer) DialIB(ctx context.Context, to cm.IBAddr) (*Conn, error) {
	c, err := d.connect(func(o *cm.Options) (*cm.Conn, error) {
		o.LocalIB = d.LocalIB
		return cm.DialIB(ctx, to, o)
	})
	addr := IBAddr{to.GID, uint16(to.ServiceID)}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: addr.Network(), Addr: addr, Err: dialError(err)}
	}
	c.remote = addr
	return c, nil
}

// connect returns a connection that dial has dialed.
func (d *Dialer) connect(dial func(*cm.Options) (*cm.Conn, error)) (*Conn, error) {
	config, err := d.Config.complete()
	if err != nil {
		return nil, err
	}
	o := config.cm()
	o.Timeout, o.Paths = d.Timeout, d.Paths
	var c *Conn
	o.Prepare = func(m *cm.Conn, qp *uverbs.QPConfig) error {
		c = newConn(m, config)
		if isIB(m) {
			c.header = ibHeaderLen
		}
		return c.prepare(qp)
	}
	o.Setup = func(*cm.Conn) error { return c.setUp() }
	m, err := dial(&o)
	if err != nil {
		return nil, err
	}
	h, err := parseHello(m.PrivateData())
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	c.start(h)
	return c, nil
}

// addrPort returns the address and port of a *net.TCPAddr, which may be nil.
func addrPort(a net.Addr) (netip.AddrPort, error) {
	switch a := a.(type) {
	case nil:
		return netip.AddrPort{}, nil
	case *net.TCPAddr:
		ap := a.AddrPort()
		if !ap.Addr().IsValid() {
			ap = netip.AddrPortFrom(netip.IPv4Unspecified(), ap.Port())
		}
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
	}
	return netip.AddrPort{}, fmt.Errorf("%w: an address of type %T: use a *net.TCPAddr", uverbs.ErrInvalid, a)
}

// resolve returns addr for package cm. If the network is of one family only, it looks up the name.
func resolve(ctx context.Context, network, addr string) (string, error) {
	switch network {
	case "tcp":
		return addr, nil
	case "tcp4", "tcp6":
	default:
		return "", net.UnknownNetworkError(network)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return addr, err
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() == (network == "tcp4") {
		return addr, nil // with its zone, which the resolver drops
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip"+network[3:], host)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(ips[0].String(), port), nil
}

// A textAddr is an address as the program has written it.
type textAddr string

func (textAddr) Network() string  { return network }
func (a textAddr) String() string { return string(a) }
