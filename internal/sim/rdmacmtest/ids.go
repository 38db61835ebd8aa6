package rdmacmtest

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

type state string

const (
	idle          state = "idle"
	bound         state = "bound"
	resolved      state = "resolved"
	routed        state = "routed"
	listening     state = "listening"
	connecting    state = "connecting"  // the request is sent
	requested     state = "requested"   // the request is received
	accepted      state = "accepted"    // the reply is sent
	answered      state = "answered"    // the reply is received
	established   state = "established" // for datagrams: the peer has replied
	disconnecting state = "disconnecting"
	disconnected  state = "disconnected" // by the peer; a reply is expected
	over          state = "over"
)

// afOnly is whether an id uses one family of addresses only.
type afOnly uint8

const (
	afDefault afOnly = iota // yes for IPv4, no for IPv6
	afBoth
	afOne
)

// oneFamily reports whether an id with the address a uses one family only.
func (i *id) oneFamily(a netip.Addr) bool {
	return i.afOnly == afOne || i.afOnly == afDefault && a.Is4()
}

// An id is a struct rdma_cm_id with its struct ucma_context.
type id struct {
	n        uint32
	uid      uint64
	file     *file
	machine  *Machine
	ps       uint16
	qpType   uint8
	datagram bool
	ib       bool // its addresses are GIDs: AF_IB
	state    state
	owned    bool // the library knows its number
	dead     bool // its device was removed
	reuse    bool
	afOnly   afOnly
	child    bool // created by a request
	src, dst netip.AddrPort
	device   bool // bound to the device
	services bool // RESOLVE_IB_SERVICE has found one

	reported uint32
	backlog  uint32
	waiting  []waiting // requests to this listener while its backlog is full

	peer     *id
	psn      uint32 // its own sequence number
	param    uapi.RdmaUcmConnParam
	ece      uapi.RdmaUcmEce
	timeout  uint8
	tos      uint8
	patience int    // the wait for a reply, in timeouts
	created  string // the place, see Kernel.Caller, or empty
	// From the peer's message.
	remoteQPN, remotePSN, mtu uint32
	// Negotiated by the two sides.
	responder, initiator, retry, rnr uint8
}

// A waiting is a request for which a listener has no room.
type waiting struct {
	id *id
	m  *Message
}

func createID(m *message) unix.Errno {
	req, k := payload[uapi.RdmaUcmCreateId](m), m.k
	i := &id{uid: req.Uid, file: m.file, machine: &k.Machine, ps: req.Ps, qpType: req.QpType, state: idle, owned: true}
	if k.Current != nil {
		i.machine = k.Current()
	}
	if k.Caller != nil {
		i.created = k.Caller()
	}
	switch req.Ps {
	case uapi.RDMA_PS_TCP:
	case uapi.RDMA_PS_UDP, uapi.RDMA_PS_IPOIB:
		i.datagram = true
	case uapi.RDMA_PS_IB:
		i.datagram = req.QpType == uapi.IB_UVERBS_QPT_UD
	default:
		return unix.EINVAL
	}
	if req.Uid == 0 {
		m.violation("%s: with uid 0 an id has no events", m.call)
	}
	k.add(i)
	reply(m, uapi.RdmaUcmCreateIdResp{Id: i.n})
	return 0
}

func (k *Kernel) add(i *id) {
	i.n = k.next // the kernel's numbers also start from 0
	k.next++
	k.psn += 0x111
	i.psn = k.psn & 0xffffff
	k.ids[i.n] = i
}

func destroyID(m *message) unix.Errno {
	m.k.destroy(m.id)
	reply(m, uapi.RdmaUcmDestroyIdResp{EventsReported: m.id.reported})
	return 0
}

// destroy ends the id's connection, and drops its events.
func (k *Kernel) destroy(i *id) {
	if k.ids[i.n] != i {
		return
	}
	delete(k.ids, i.n)
	switch {
	case i.dead:
	case i.state == connecting:
		k.abandon(i)
	case i.state == requested && i.datagram:
		k.unreachable(i.peer, sidrReject, nil)
	case i.state == requested, i.state == accepted, i.state == answered:
		k.rejected(i.peer, rdmacm.RejectConsumer, nil)
	case i.state == established && !i.datagram:
		k.disconnectPeer(i)
	case i.state == disconnected:
		k.replyToDisconnect(i)
	}
	i.state = over
	for n, g := range k.groups {
		if g.id == i {
			delete(k.groups, n)
		}
	}
	for _, e := range k.dropEvents(i) {
		k.destroy(e.child)
	}
	for _, w := range i.waiting {
		k.rejected(w.id, rejectInvalidServiceID, nil)
	}
}

// isGID reports whether an address is a GID other than the unspecified one.
func isGID(b [128]byte) bool {
	return binary.NativeEndian.Uint16(b[:]) == unix.AF_IB && [16]byte(b[8:24]) != [16]byte{}
}

// sockaddr decodes an address, whose size must match its family.
func sockaddr(b [128]byte, size uint16) (netip.AddrPort, unix.Errno) {
	port := binary.BigEndian.Uint16(b[2:])
	switch family := binary.NativeEndian.Uint16(b[:]); {
	case family == unix.AF_INET && size == 16:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), 0
	case family == unix.AF_INET6 && size == 28:
		a := netip.AddrFrom16([16]byte(b[8:24]))
		if scope := binary.NativeEndian.Uint32(b[24:]); a.IsLinkLocalUnicast() && scope != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(scope), 10))
		}
		return netip.AddrPortFrom(a, port), 0
	}
	return netip.AddrPort{}, unix.EINVAL
}

// putSockaddr encodes an address and returns its size.
func putSockaddr(b *[128]byte, a netip.AddrPort) uint16 {
	if !a.Addr().IsValid() {
		return 0
	}
	binary.BigEndian.PutUint16(b[2:], a.Port())
	if a.Addr().Is4() {
		binary.NativeEndian.PutUint16(b[:], unix.AF_INET)
		copy(b[4:], a.Addr().AsSlice())
		return 16
	}
	binary.NativeEndian.PutUint16(b[:], unix.AF_INET6)
	copy(b[8:], a.Addr().AsSlice())
	if scope, err := strconv.ParseUint(a.Addr().Zone(), 10, 32); err == nil {
		binary.NativeEndian.PutUint32(b[24:], uint32(scope))
	}
	return 28
}

func bind(m *message) unix.Errno {
	req := payload[uapi.RdmaUcmBind](m)
	if isGID(req.Addr) {
		return m.k.bindIB(m.id, req)
	}
	a, errno := sockaddr(req.Addr, req.AddrSize)
	if m.file.foreign && binary.NativeEndian.Uint16(req.Addr[:]) == unix.AF_IB && req.AddrSize == 48 {
		// Librdmacm binds to any GID to find out whether the kernel knows the family.
		a, errno = netip.AddrPortFrom(netip.IPv6Unspecified(), 0), 0
	}
	if errno != 0 || req.Reserved != 0 {
		return unix.EINVAL
	}
	return m.k.bind(m.id, a)
}

func (k *Kernel) bind(i *id, a netip.AddrPort) unix.Errno {
	if i.state != idle {
		return unix.EINVAL
	}
	if a.Addr().IsLinkLocalUnicast() && a.Addr().Is6() && a.Addr().Zone() == "" {
		return unix.EINVAL
	}
	device := i.machine
	if !anyAddr(a.Addr()) {
		switch device = k.deviceAt(i.machine, a.Addr()); {
		case device == nil:
			return unix.EADDRNOTAVAIL
		case device.gone:
			return unix.ENODEV
		case i.ps == uapi.RDMA_PS_IPOIB && !device.infiniBand():
			return unix.EINVAL
		}
	}
	if a.Port() == 0 {
		a = k.freePort(i, a.Addr())
	}
	if errno := k.conflict(i, a, i.reuse); errno != 0 {
		return errno
	}
	if i.afOnly == afDefault && a.Addr().Is4() {
		i.afOnly = afOne
	}
	i.src, i.machine, i.device, i.state = a, device, !anyAddr(a.Addr()), bound
	return 0
}

// freePort returns an address with a port that no other id has.
func (k *Kernel) freePort(i *id, addr netip.Addr) (a netip.AddrPort) {
	for range 1 << 16 {
		k.port = max(k.port+1, firstPort)
		if a = netip.AddrPortFrom(addr, k.port); k.conflict(i, a, false) == 0 {
			break
		}
	}
	return a
}

// anyAddr reports whether an address does not select a device. The kernel
// includes loopback addresses.
func anyAddr(a netip.Addr) bool { return a.IsUnspecified() || a.IsLoopback() }

// conflict checks for another owner of the port.
func (k *Kernel) conflict(i *id, a netip.AddrPort, reuse bool) unix.Errno {
	for _, o := range k.ids {
		switch {
		case o == i, o.child, o.machine.host() != i.machine.host(), o.src.Port() != a.Port(), o.ps != i.ps, reuse && o.reuse:
		case o.src.Addr().Is4() != a.Addr().Is4() && o.oneFamily(o.src.Addr()) && i.oneFamily(a.Addr()):
		case anyAddr(o.src.Addr()), anyAddr(a.Addr()):
			return unix.EADDRNOTAVAIL
		case o.src.Addr() == a.Addr():
			return unix.EADDRINUSE
		}
	}
	return 0
}

func resolveAddr(m *message) unix.Errno {
	req, k, i := payload[uapi.RdmaUcmResolveAddr](m), m.k, m.id
	if isGID(req.DstAddr) {
		return k.resolveIB(i, req)
	}
	dst, errno := sockaddr(req.DstAddr, req.DstSize)
	if errno != 0 || req.Reserved != 0 {
		return unix.EINVAL
	}
	src := netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	if dst.Addr().Is4() {
		src = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	}
	if req.SrcSize != 0 {
		if src, errno = sockaddr(req.SrcAddr, req.SrcSize); errno != 0 {
			return errno
		}
	}
	if i.state == idle {
		if errno := k.bind(i, src); errno != 0 {
			return errno
		}
	}
	if i.state != bound || i.src.Addr().Is4() != dst.Addr().Is4() {
		return unix.EINVAL
	}
	return k.resolve(i, dst, time.Duration(req.TimeoutMs)*time.Millisecond)
}

// resolveIB resolves a GID, which selects the machine's device.
func (k *Kernel) resolveIB(i *id, req *uapi.RdmaUcmResolveAddr) unix.Errno {
	gid := netip.AddrFrom16([16]byte(req.DstAddr[8:24])).Unmap()
	switch {
	case req.DstSize != 48 || req.Reserved != 0 || i.state != idle:
		return unix.EINVAL
	case i.machine.gone || !i.machine.infiniBand() && !slices.Contains(i.machine.Addrs, gid):
		return unix.ENODEV
	}
	service := binary.BigEndian.Uint64(req.SrcAddr[24:])
	if req.SrcSize != 0 && i.machine.infiniBand() && service>>16 != uint64(i.ps) {
		return unix.EPROTONOSUPPORT
	}
	port := uint16(binary.BigEndian.Uint64(req.DstAddr[24:]))
	i.src, i.dst = netip.AddrPortFrom(gid, 0), netip.AddrPortFrom(gid, port)
	if i.machine.infiniBand() {
		i.src = netip.AddrPortFrom(i.machine.GID, 0)
	}
	i.ib, i.device, i.state = true, true, resolved
	k.post(i, rdmacm.EventAddrResolved, 0)
	return 0
}

// resolve resolves the addresses of the machines. Other addresses of the IPv4
// network do not respond until the timeout.
func (k *Kernel) resolve(i *id, dst netip.AddrPort, timeout time.Duration) unix.Errno {
	near := func(a netip.Addr) bool {
		p, err := a.Prefix(24)
		return err == nil && a.Is4() && p.Contains(dst.Addr())
	}
	here, there := i.machine, k.machineOf(dst.Addr())
	if own := k.deviceAt(here, dst.Addr()); own != nil && !i.device {
		here = own
	}
	src := here.sourceFor(dst.Addr())
	switch {
	case here.gone && anyAddr(dst.Addr()):
		return unix.ENODEV
	case anyAddr(dst.Addr()):
		src = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if dst.Addr().Is6() {
			src = netip.IPv6Loopback()
		}
	case here.gone && there != nil:
		k.post(i, rdmacm.EventAddrError, -int32(unix.ENODEV))
		return 0
	case i.src.Addr().IsLoopback(): // its interface is not RDMA
		k.post(i, rdmacm.EventAddrError, -int32(unix.ENODEV))
		return 0
	case there != nil && k.reaches(here, there) && k.reaches(there, here), dst.Addr().IsMulticast() && k.MulticastRoute:
	case there != nil, slices.ContainsFunc(here.Addrs, near):
		k.after(timeout, func() { k.post(i, rdmacm.EventAddrError, -int32(unix.ETIMEDOUT)) })
		return 0
	default:
		return unix.ENETUNREACH
	}
	if anyAddr(i.src.Addr()) {
		i.src = netip.AddrPortFrom(src, i.src.Port())
	}
	i.dst, i.machine, i.device, i.state = dst, here, true, resolved
	k.post(i, rdmacm.EventAddrResolved, 0)
	return 0
}

// sourceFor returns the source address of a route: the destination itself if it
// belongs to the machine.
func (m *Machine) sourceFor(dst netip.Addr) netip.Addr {
	if slices.Contains(m.Addrs, dst.WithZone("")) {
		return dst
	}
	for _, a := range m.Addrs {
		if a.Is4() == dst.Is4() && !a.IsMulticast() && a.IsLinkLocalUnicast() == dst.IsLinkLocalUnicast() {
			return a.WithZone(dst.Zone())
		}
	}
	return dst
}

func resolveRoute(m *message) unix.Errno {
	i := m.id
	switch {
	case !i.device || payload[uapi.RdmaUcmResolveRoute](m).TimeoutMs == 0 || i.state != resolved:
		return unix.EINVAL
	case !i.machine.infiniBand() && (anyAddr(i.src.Addr()) || i.ib): // RoCE has no GID or no interface for it
		return unix.ENODEV
	case i.ib && m.k.machineOf(i.dst.Addr()) == nil: // the subnet administration has no such path
		i.state = bound
		m.k.post(i, rdmacm.EventRouteError, -int32(unix.EINVAL))
		return 0
	}
	i.state = routed
	m.k.post(i, rdmacm.EventRouteResolved, 0)
	return 0
}

func listen(m *message) unix.Errno {
	i := m.id
	if i.state == idle {
		if errno := m.k.bind(i, netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); errno != 0 {
			return errno
		}
	}
	if i.state != bound {
		return unix.EINVAL
	}
	if i.reuse { // a listener has exclusive use of its port
		if m.k.conflict(i, i.src, false) != 0 {
			return unix.EADDRINUSE
		}
		i.reuse = false
	}
	i.state, i.backlog = listening, payload[uapi.RdmaUcmListen](m).Backlog
	if i.backlog == 0 || i.backlog > 1024 {
		i.backlog = 1024
	}
	return 0
}

func migrate(m *message) unix.Errno {
	req, k := payload[uapi.RdmaUcmMigrateId](m), m.k
	from := k.files[int(int32(req.Fd))]
	if from == nil {
		m.violation("%s: descriptor %d is not a file of this kernel", m.call, int32(req.Fd))
		return unix.ENOENT
	}
	i, errno := k.find(from, req.Id)
	if errno != 0 {
		return errno
	}
	if i.file = m.file; from != m.file {
		// As in the kernel, moved events do not make the file readable.
		from.events, m.file.events = moved(i, from.events, m.file.events)
	}
	reply(m, uapi.RdmaUcmMigrateResp{EventsReported: i.reported})
	return 0
}
