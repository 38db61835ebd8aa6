package cm

import (
	"errors"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// Bind sets the local address of the id: rdma_bind_addr(3). The address of an RDMA
// device's interface binds the id to that device. The unspecified address stands for
// all devices. If the port is 0, the kernel chooses one: see [ID.LocalAddr]. Bind
// returns [uverbs.ErrNoDevice] if the address does not belong to an RDMA device,
// EADDRINUSE or EADDRNOTAVAIL if another id has the port, os.ErrPermission for a
// port below 1024, [uverbs.ErrInvalid] if the id already has an address or if the
// zone does not exist, [uverbs.ErrClosed] after Close, or an error of [uverbs.Open].
func (id *ID) Bind(addr netip.AddrPort) error {
	b, err := sockaddr(addr)
	if err != nil {
		return err
	}
	return id.bind(b, addr.String(), addr)
}

// BindIB is Bind to an address of the InfiniBand family. The errors are those of
// [ID.Bind].
func (id *ID) BindIB(addr IBAddr) error {
	return id.bind(addr.sockaddr(), addr.GID.String(), netip.AddrPort{})
}

func (id *ID) bind(b []byte, name string, addr netip.AddrPort) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.isClosed() {
		return closed("bind", name)
	}
	if err := id.node.file.Bind(id.kernelID, b); err != nil {
		return id.bindError("bind", name, addr, err, "the id has an address already, or a link-local address lacks its zone")
	}
	return id.queryAddr(false)
}

// opListen is the operation in errors of Listen.
const opListen = "listen"

// bindError converts an error that Bind, Listen or ResolveAddr meets at the local
// address. state is the explanation of EINVAL.
func (id *ID) bindError(op, object string, own netip.AddrPort, err error, state string) error {
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
		return id.wrap(op, object, err, "")
	case errors.Is(err, unix.EADDRINUSE) && op == opListen:
		return id.wrap(op, object, err, "another id is bound to that address and port, and a listener cannot share them:"+
			" choose another port")
	case errors.Is(err, unix.EADDRINUSE):
		return id.wrap(op, object, err, "another id has that address and port: choose another port;"+
			" ids share one only if all of them call SetReuseAddr and none listens")
	case errors.Is(err, unix.EADDRNOTAVAIL) && isLocal(own.Addr()):
		return id.wrap(op, object, err, "another id has that port, perhaps under another address: choose another")
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ENODEV):
		return noDevice()
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return id.wrap(op, object, err, "ports below 1024 need CAP_NET_BIND_SERVICE")
	case errors.Is(err, unix.EINVAL):
		return id.wrap(op, object, err, state)
	}
	return id.wrap(op, object, err, "")
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	errors.As(err, &errno)
	return errno
}

// isLocal reports whether the machine has the address. It returns false if this
// cannot be determined.
func isLocal(ip netip.Addr) bool {
	if !ip.IsValid() || ip.IsUnspecified() {
		return true
	}
	all, err := machineAddrs()
	return err == nil && slices.Contains(all, ip.Unmap().WithZone(""))
}

// ResolveAddr finds the device and the local address that lead to dst, and binds the
// id to them: rdma_resolve_addr(3). If src is not the zero AddrPort, the id is bound
// to it first. EventAddrResolved or EventAddrError follows. A timeout of 0 stands
// for two seconds. ResolveAddr returns [ErrUnreachable] if there is no route, and
// [uverbs.ErrInvalid] if the address is already resolved or if src and dst are of
// different families. Otherwise the errors are those of [ID.Bind].
func (id *ID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
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
	return id.resolveAddr(from, to, src, dst, timeout)
}

// ResolveIB is ResolveAddr for addresses of the InfiniBand family. src may be nil.
// To let the kernel choose the port of src, set its ServiceID to the number of the
// port space, shifted left by 16, and clear the lowest 16 bits of its ServiceMask.
// ResolveIB returns [uverbs.ErrNotSupported] if a service is of another port space
// than the id. Otherwise the errors are those of [ID.ResolveAddr].
func (id *ID) ResolveIB(src *IBAddr, dst IBAddr, timeout time.Duration) error {
	var from []byte
	if src != nil {
		from = src.sockaddr()
	}
	return id.resolveAddr(from, dst.sockaddr(), netip.AddrPort{}, netip.AddrPort{}, timeout)
}

func (id *ID) resolveAddr(src, dst []byte, own, peer netip.AddrPort, timeout time.Duration) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	const op = "resolve address"
	name := describe(peer, id.local)
	if id.isClosed() {
		return closed(op, name)
	}
	err := id.node.file.ResolveAddr(id.kernelID, src, dst, milliseconds(timeout))
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return id.wrap(op, name, err, "no route to it: check the routing table and that the interface is up")
	case errors.Is(err, unix.ENODEV) && !own.IsValid():
		return id.wrap(op, name, err, "no RDMA device leads there: see `rdma link`")
	case errors.Is(err, unix.EINVAL) && peer.Addr().IsLoopback(): // on iWARP
		return &Error{Op: op, Object: name, Kind: uverbs.ErrNoDevice, Errno: unix.EINVAL,
			Detail: "no RDMA device leads to a loopback address: see `rdma link`"}
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return id.wrap(op, name, err,
			"the service's number is not of the id's port space: it begins with that, shifted by 16")
	case err != nil:
		return id.bindError(op, name, own, err, "the id is already resolved, bound to an address of the other family,"+
			" or of a port space that the device does not serve; a link-local address needs its zone")
	}
	if peer.IsValid() {
		id.setAttrs(func() { id.peer = peer })
	}
	return nil
}

// defaultTimeout is the timeout that rdma_create_ep(3) uses for a resolution.
const defaultTimeout = 2 * time.Second

// milliseconds converts a timeout for the kernel, rounded up. The maximum is
// MaxInt32, because jiffies have fewer bits than a Duration.
func milliseconds(d time.Duration) uint32 {
	if d <= 0 {
		d = defaultTimeout
	}
	ms := d / time.Millisecond
	if d%time.Millisecond != 0 {
		ms++
	}
	return uint32(min(ms, math.MaxInt32))
}

// ResolveRoute finds the path to the address that was passed to ResolveAddr:
// rdma_resolve_route(3). EventRouteResolved or EventRouteError follows. A timeout of
// 0 stands for two seconds. ResolveRoute returns [uverbs.ErrInvalid] before the
// address is resolved and if the route is already resolved, [uverbs.ErrNoDevice] for
// an interface without an RDMA device, and [uverbs.ErrClosed] after Close.
func (id *ID) ResolveRoute(timeout time.Duration) error {
	return id.command("resolve route", explainRoute, func() error {
		return id.node.file.ResolveRoute(id.kernelID, milliseconds(timeout))
	})
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

// Listen accepts connection requests for the address that the id is bound to:
// rdma_listen(3). Each arrives as an EventConnectRequest with a new id. The kernel
// queues up to backlog of them. 0 and larger numbers stand for its maximum, 1024.
// Listen returns [uverbs.ErrInvalid] if backlog is negative or above 2^31-1, or if the
// id already listens or connects. Otherwise the errors are those of [ID.Bind].
func (id *ID) Listen(backlog int) error {
	if backlog < 0 || backlog > math.MaxInt32 {
		return invalid(opListen, id.name(), "the backlog must be 0 to 2^31-1")
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.isClosed() {
		return closed(opListen, id.describe())
	}
	if err := id.node.file.Listen(id.kernelID, uint32(backlog)); err != nil {
		return id.bindError(opListen, id.describe(), id.local, err, "the id listens already, or is connected")
	}
	id.life.enter(phaseListening)
	if s := id.syncID(); s != nil {
		s.setBacklog(kernelBacklog(backlog))
	}
	return id.queryAddr(false)
}

// queryAddr queries the addresses and the device that the kernel has assigned to the
// id. If needDevice is set, it returns an error if there is no device. The caller
// holds id.mu.
func (id *ID) queryAddr(needDevice bool) error {
	a, err := id.node.file.QueryAddr(id.kernelID)
	if err != nil {
		return id.wrap("query address of", id.describe(), err, "")
	}
	if id.dev == nil && a.NodeGuid != 0 {
		d, err := acquire(keyOf(a.NodeGuid, a.IbdevIndex))
		if err != nil {
			return err
		}
		id.setAttrs(func() {
			id.dev, id.pd = d, d.pd
			id.port, id.pkey = int(a.PortNum), bits.ReverseBytes16(a.Pkey) // big-endian
		})
	}
	zone, err := id.zone(parseSockaddr(a.SrcAddr[:]))
	if err != nil {
		return err
	}
	id.setAttrs(func() {
		id.local = withZone(parseSockaddr(a.SrcAddr[:]), zone)
		if peer := parseSockaddr(a.DstAddr[:]); peer.IsValid() && !peer.Addr().IsUnspecified() {
			id.peer = withZone(peer, zone)
		}
	})
	if id.dev == nil {
		if needDevice {
			return &Error{Op: "resolve address", Object: id.describe(), Kind: uverbs.ErrNoDevice, Errno: unix.ENODEV,
				Detail: explainStatus(EventAddrError, unix.ENODEV)}
		}
		return nil
	}
	if id.dev.rnic || !needDevice {
		return nil // iWARP has no useful GIDs, and an id that is only bound needs none
	}
	return id.queryGID()
}

func (id *ID) queryGID() error {
	g, err := id.node.file.QueryGID(id.kernelID)
	if err != nil {
		return id.wrap("query GID of", id.describe(), err, "")
	}
	id.setAttrs(func() {
		if a, ok := parseIBAddr(g.SrcAddr[:]); ok {
			id.localGID = a.GID
		}
		if a, ok := parseIBAddr(g.DstAddr[:]); ok {
			id.peerGID = a.GID
		}
	})
	return nil
}

// zone returns the network interface of a link-local address, which the kernel does
// not always report. It returns "" if the interface cannot be determined.
func (id *ID) zone(a netip.AddrPort) (string, error) {
	ip := a.Addr()
	if !ip.Is6() || !ip.IsLinkLocalUnicast() || ip.Zone() != "" || id.dev == nil || id.dev.ctx == nil {
		return ip.Zone(), nil
	}
	entries, err := id.dev.ctx.GIDs(id.port)
	if err != nil {
		return "", err
	}
	z := chooseZone(entries, ip, id.peer.Addr().Zone(), id.local.Addr().Zone(), id.fromRequest, func() int {
		attr, _, err := id.initQPAttr(uverbs.StateRTR)
		if err != nil {
			return -1
		}
		return int(attr.AV.SGIDIndex)
	})
	return z, nil
}

// chooseZone returns the network interface that has the GID of ip. Stacked
// interfaces, such as VLANs, have the same link-local address. In this case it
// returns the zone of the peer's address or of the id's own, if known. For a
// connection request, it returns the interface of the GID that its QP uses.
func chooseZone(entries []uverbs.GIDEntry, ip netip.Addr, peer, own string, requested bool, used func() int) string {
	var zones []string
	for _, e := range entries {
		if e.GID == uverbs.GIDFromAddr(ip) && e.Netdev != "" && !slices.Contains(zones, e.Netdev) {
			zones = append(zones, e.Netdev)
		}
	}
	switch {
	case len(zones) == 0:
		return ""
	case len(zones) == 1:
		return zones[0]
	case slices.Contains(zones, peer):
		return peer
	case slices.Contains(zones, own):
		return own
	case !requested:
		return ""
	}
	index := used()
	for _, e := range entries {
		if e.Index == index && slices.Contains(zones, e.Netdev) {
			return e.Netdev
		}
	}
	return ""
}

// withZone adds the zone to a link-local address without one.
func withZone(a netip.AddrPort, zone string) netip.AddrPort {
	if ip := a.Addr(); zone != "" && ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "" {
		return netip.AddrPortFrom(ip.WithZone(zone), a.Port())
	}
	return a
}
