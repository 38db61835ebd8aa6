package cm

import (
	"errors"
	"math"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// Bind gives the id an address of its own: rdma_bind_addr(3). The address of an
// RDMA device's interface binds the id to that device; the unspecified address
// stands for all of them. Port 0 lets the kernel choose one: see
// [ID.LocalAddr]. The errors: [uverbs.ErrNoDevice] for an address of no RDMA
// device, EADDRINUSE and EADDRNOTAVAIL for a port that another id has,
// os.ErrPermission for one below 1024, [uverbs.ErrInvalid] for an id that has
// an address and for a zone that there is not, [uverbs.ErrClosed] after Close,
// or those of [uverbs.Open].
func (i *ID) Bind(addr netip.AddrPort) error {
	b, err := sockaddr(addr)
	if err != nil {
		return err
	}
	return i.bind(b, addr.String(), addr)
}

// BindIB is Bind to an address of the InfiniBand family. The errors are those
// of [ID.Bind].
func (i *ID) BindIB(addr IBAddr) error {
	return i.bind(addr.sockaddr(), addr.GID.String(), netip.AddrPort{})
}

func (i *ID) bind(b []byte, name string, addr netip.AddrPort) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return closed("bind", name)
	}
	if err := i.node.file.Bind(i.kernel, b); err != nil {
		return bindError("bind", name, addr, err, "the id has an address already, or a link-local address lacks its zone")
	}
	return i.queryAddr(false)
}

// bindError makes an error of what Bind, Listen and ResolveAddr meet at the own
// address. state is for EINVAL.
func bindError(op, object string, own netip.AddrPort, err error, state string) error {
	noDevice := func() error {
		which := "that address"
		if own.Addr().IsValid() {
			which = "the address " + own.Addr().String()
		}
		return &Error{Op: op, Object: object, Kind: uverbs.ErrNoDevice, Errno: errnoOf(err),
			Detail: "no RDMA device has " + which + ": see `rdma link` and `ip address`"}
	}
	switch {
	case errors.Is(err, rdmacm.ErrCredentials):
		return wrap(op, object, err, "")
	case errors.Is(err, unix.EADDRINUSE):
		return wrap(op, object, err, "another id has that port: choose another, or SetReuseAddr on both")
	case errors.Is(err, unix.EADDRNOTAVAIL) && isLocal(own.Addr()):
		return wrap(op, object, err, "another id has that port, perhaps under another address: choose another")
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ENODEV):
		return noDevice()
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return wrap(op, object, err, "ports below 1024 need CAP_NET_BIND_SERVICE")
	case errors.Is(err, unix.EINVAL):
		return wrap(op, object, err, state)
	}
	return wrap(op, object, err, "")
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	errors.As(err, &errno)
	return errno
}

// isLocal tells whether the machine has the address. Of what cannot be found
// out it answers false.
func isLocal(ip netip.Addr) bool {
	if !ip.IsValid() || ip.IsUnspecified() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == ip.Unmap().WithZone("")
	})
}

// ResolveAddr finds the device and the address that lead to dst, and binds the
// id to it: rdma_resolve_addr(3). A src that is not the zero AddrPort is bound
// first. EventAddrResolved or EventAddrError follows. A timeout of 0 stands for
// two seconds. [ErrUnreachable] without a route, [uverbs.ErrInvalid] for an id
// that is past that and for addresses of two families; else the errors are
// those of [ID.Bind].
func (i *ID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	to, err := sockaddr(dst)
	if err != nil {
		return err
	}
	var from []byte
	if src.Addr().IsValid() {
		if from, err = sockaddr(src); err != nil {
			return err
		}
	}
	return i.resolveAddr(from, to, src, dst, timeout)
}

// ResolveIB is ResolveAddr for addresses of the InfiniBand family; src may be
// nil. For a src whose port the kernel chooses, ServiceID is the port space's
// number, shifted by 16, and ServiceMask leaves out the lowest 16 bits.
// [uverbs.ErrNotSupported] for a service of another port space than the id's; else
// the errors are those of [ID.ResolveAddr].
func (i *ID) ResolveIB(src *IBAddr, dst IBAddr, timeout time.Duration) error {
	var from []byte
	if src != nil {
		from = src.sockaddr()
	}
	return i.resolveAddr(from, dst.sockaddr(), netip.AddrPort{}, netip.AddrPort{}, timeout)
}

func (i *ID) resolveAddr(src, dst []byte, own, peer netip.AddrPort, timeout time.Duration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	const op = "resolve address"
	name := describe(peer, i.local)
	if i.closed {
		return closed(op, name)
	}
	err := i.node.file.ResolveAddr(i.kernel, src, dst, milliseconds(timeout))
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return wrap(op, name, err, "no route to it: check the routing table and that the interface is up")
	case errors.Is(err, unix.ENODEV) && !own.IsValid():
		return wrap(op, name, err, "no RDMA device leads there: see `rdma link`")
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return wrap(op, name, err, "the service's number is not of the id's port space: it begins with that, shifted by 16")
	case err != nil:
		return bindError(op, name, own, err, "the id is past that, bound to an address of the other family, or of a port space that the device does not serve; a link-local address needs its zone")
	}
	if peer.IsValid() {
		i.peer = peer
	}
	return nil
}

// defaultTimeout is what rdma_create_ep(3) allows a resolution.
const defaultTimeout = 2 * time.Second

// milliseconds is a timeout for the kernel, rounded up.
func milliseconds(d time.Duration) uint32 {
	if d <= 0 {
		d = defaultTimeout
	}
	return uint32(min((d+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
}

// ResolveRoute finds the path to the address that ResolveAddr was given:
// rdma_resolve_route(3). EventRouteResolved or EventRouteError follows. A
// timeout of 0 stands for two seconds. [uverbs.ErrInvalid] before the address
// is resolved, and a second time; [uverbs.ErrNoDevice] for an interface without
// an RDMA device; [uverbs.ErrClosed] after Close.
func (i *ID) ResolveRoute(timeout time.Duration) error {
	return i.command("resolve route", explainRoute, func() error { return i.node.file.ResolveRoute(i.kernel, milliseconds(timeout)) })
}

func explainRoute(err error) string {
	switch {
	case errors.Is(err, unix.ENODEV):
		return "the address leads to an interface without an RDMA device: use the address of one that has, see `rdma link`"
	case errors.Is(err, unix.EINVAL):
		return "resolve the address first, once"
	}
	return ""
}

// Listen takes connection requests for the address that the id is bound to:
// rdma_listen(3). Each comes as an EventConnectRequest with an id of its own.
// The kernel keeps up to backlog of them; 0 stands for its maximum.
// [uverbs.ErrInvalid] for one out of range, and for an id that listens or
// connects already; else the errors are those of [ID.Bind].
func (i *ID) Listen(backlog int) error {
	if backlog < 0 || backlog > math.MaxInt32 {
		return invalid("listen", i.name(), "the backlog must be 0 to 2^31-1")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return closed("listen", i.describe())
	}
	if err := i.node.file.Listen(i.kernel, uint32(backlog)); err != nil {
		return bindError("listen", i.describe(), i.local, err, "the id listens already, or is connected")
	}
	i.listening = true
	if s := i.synced(); s != nil {
		s.limit(backlog)
	}
	return i.queryAddr(false)
}

// queryAddr reads the addresses and the device that the kernel has given the
// id. needDevice makes it an error to have none. The caller holds i.mu.
func (i *ID) queryAddr(needDevice bool) error {
	a, err := i.node.file.QueryAddr(i.kernel)
	if err != nil {
		return wrap("query address of", i.describe(), err, "")
	}
	if i.dev == nil && a.NodeGuid != 0 {
		d, err := acquire(keyOf(a.NodeGuid, a.IbdevIndex))
		if err != nil {
			return err
		}
		i.dev, i.pd = d, d.pd
		i.port, i.pkey = int(a.PortNum), bits.ReverseBytes16(a.Pkey) // big-endian
	}
	zone, err := i.zone(parseSockaddr(a.SrcAddr[:]))
	if err != nil {
		return err
	}
	i.local = zoned(parseSockaddr(a.SrcAddr[:]), zone)
	if peer := parseSockaddr(a.DstAddr[:]); peer.IsValid() && !peer.Addr().IsUnspecified() {
		i.peer = zoned(peer, zone)
	}
	if i.dev == nil {
		if needDevice {
			return &Error{Op: "resolve address", Object: i.describe(), Kind: uverbs.ErrNoDevice, Errno: unix.ENODEV,
				Detail: explainStatus(EventAddrError, unix.ENODEV)}
		}
		return nil
	}
	if i.dev.rnic || !needDevice {
		return nil // iWARP has no GIDs to speak of, and what is only bound needs none
	}
	return i.queryGID()
}

func (i *ID) queryGID() error {
	g, err := i.node.file.QueryGID(i.kernel)
	if err != nil {
		return wrap("query GID of", i.describe(), err, "")
	}
	if a, ok := parseIBAddr(g.SrcAddr[:]); ok {
		i.localGID = a.GID
	}
	if a, ok := parseIBAddr(g.DstAddr[:]); ok {
		i.peerGID = a.GID
	}
	return nil
}

// zone is the network interface of a link-local address, which the kernel does
// not always tell.
func (i *ID) zone(a netip.AddrPort) (string, error) {
	ip := a.Addr()
	if !ip.Is6() || !ip.IsLinkLocalUnicast() || ip.Zone() != "" || i.dev == nil || i.dev.ctx == nil {
		return ip.Zone(), nil
	}
	entries, err := i.dev.ctx.GIDs(i.port)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.GID == uverbs.GIDFromAddr(ip) && e.Netdev != "" {
			return e.Netdev, nil
		}
	}
	return "", nil
}

// zoned gives a link-local address the zone that it lacks.
func zoned(a netip.AddrPort, zone string) netip.AddrPort {
	if ip := a.Addr(); zone != "" && ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "" {
		return netip.AddrPortFrom(ip.WithZone(zone), a.Port())
	}
	return a
}
