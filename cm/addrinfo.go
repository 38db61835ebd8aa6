package cm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// AddrInfoFlags are the flags of [GetAddrInfo].
type AddrInfoFlags uint32

// The flags of rdma_getaddrinfo(3). GetAddrInfo never resolves a route, as with
// RAI_NOROUTE, and parses the node as Family requires, as with RAI_FAMILY.
const (
	Passive     AddrInfoFlags = 1 << 0 // for a listener: the result is in Src
	NumericHost AddrInfoFlags = 1 << 1 // the node is an IP address: names are not looked up
)

// A Family is an address family.
type Family uint16

// The families: AF_INET, AF_INET6 and AF_IB of Linux.
const (
	AnyFamily Family = 0
	IPv4      Family = 2
	IPv6      Family = 10
	IB        Family = 27
)

// An AddrInfo has what an id needs to listen or to connect: struct rdma_addrinfo.
type AddrInfo struct {
	Flags     AddrInfoFlags
	Family    Family
	QPType    uverbs.QPType
	PortSpace PortSpace
	Src       netip.AddrPort // where to listen, or where to connect from
	Dst       netip.AddrPort
	Paths     []PathRecord // used instead of ResolveRoute if not empty
	Connect   []byte       // private data that is sent before the private data of Connect
}

// GetAddrInfo translates a host and a service, each a name or a number:
// rdma_getaddrinfo(3). Names are looked up with Go's resolver. An empty node stands
// for all addresses and is only for listeners. hints may be nil; of its fields,
// Flags, Family, QPType, PortSpace and Src are used. GetAddrInfo returns
// [uverbs.ErrInvalid] if the service or the address cannot be parsed or if hints
// contradict each other, [uverbs.ErrNotSupported] for a family other than IPv4 and
// IPv6, [ErrUnreachable] if the resolver does not find the name, and
// context.Cause(ctx) if ctx ends first.
func GetAddrInfo(ctx context.Context, node, service string, hints *AddrInfo) ([]AddrInfo, error) {
	if hints == nil {
		hints = &AddrInfo{}
	}
	base := *hints
	if err := base.complete(); err != nil {
		return nil, err
	}
	name := net.JoinHostPort(node, service)
	port, err := lookupPort(ctx, base.PortSpace, service)
	if err != nil {
		return nil, &Error{Op: "look up", Object: name, Kind: uverbs.ErrInvalid, Err: err}
	}
	ips, err := lookupHost(ctx, node, base.Flags, base.Family)
	if err != nil {
		return nil, err
	}
	var all []AddrInfo
	for _, ip := range ips {
		ai := base
		ai.Family = IPv6
		if ip.Is4() {
			ai.Family = IPv4
		}
		if a := netip.AddrPortFrom(ip, port); ai.Flags&Passive != 0 {
			ai.Src = a
		} else {
			ai.Dst = a
		}
		all = append(all, ai)
	}
	return all, nil
}

// complete sets the port space and the QP type if they are zero, and checks the
// combination.
func (ai *AddrInfo) complete() error {
	switch ai.Family {
	case AnyFamily, IPv4, IPv6:
	case IB:
		return &Error{Op: "look up", Kind: uverbs.ErrNotSupported, Errno: unix.EAFNOSUPPORT,
			Detail: "addresses of the InfiniBand family are not looked up: name them by IBAddr"}
	default:
		return &Error{Op: "look up", Kind: uverbs.ErrNotSupported, Errno: unix.EAFNOSUPPORT,
			Detail: "address family " + strconv.Itoa(int(ai.Family)) + " is none of IPv4, IPv6 and IB"}
	}
	switch {
	case ai.PortSpace == 0 && ai.QPType == uverbs.UD:
		ai.PortSpace = PSUDP
	case ai.PortSpace == 0 && (ai.QPType == uverbs.XRCSend || ai.QPType == uverbs.XRCRecv):
		ai.PortSpace = PSIB // it is for all services
	case ai.PortSpace == 0:
		ai.PortSpace = PSTCP
	}
	if ai.QPType == 0 {
		ai.QPType = ai.PortSpace.qpType()
	}
	_, err := newID(ai.PortSpace, ai.QPType) // only checks whether the two fit
	return err
}

func lookupPort(ctx context.Context, ps PortSpace, service string) (uint16, error) {
	if service == "" {
		return 0, nil
	}
	network := "tcp"
	if ps == PSUDP {
		network = "udp"
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	return uint16(port), err
}

func lookupHost(ctx context.Context, node string, flags AddrInfoFlags, f Family) ([]netip.Addr, error) {
	if node == "" {
		switch {
		case flags&Passive == 0:
			return nil, invalid("look up", "", "no host is named: only a listener can do without")
		case f == IPv4:
			return []netip.Addr{netip.IPv4Unspecified()}, nil
		}
		return []netip.Addr{netip.IPv6Unspecified()}, nil
	}
	if ip, err := netip.ParseAddr(node); err == nil {
		ip = ip.Unmap()
		if f == IPv4 && !ip.Is4() || f == IPv6 && ip.Is4() {
			return nil, invalid("look up", node, "the address is not of the family that is asked for")
		}
		return []netip.Addr{ip}, nil
	}
	if flags&NumericHost != 0 {
		return nil, invalid("look up", node, "it is not an IP address, and NumericHost is set")
	}
	network := map[Family]string{AnyFamily: "ip", IPv4: "ip4", IPv6: "ip6"}[f]
	ips, err := net.DefaultResolver.LookupNetIP(ctx, network, node)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ended(ctx, "look up", node)
		}
		return nil, &Error{Op: "look up", Object: node, Kind: ErrUnreachable, Err: err}
	}
	for k := range ips {
		ips[k] = ips[k].Unmap()
	}
	return ips, nil
}

// CreateEP creates a synchronous id as ai describes: rdma_create_ep(3). With
// [Passive], the id is bound and ready to listen, and cfg is for the QPs of the ids
// that GetRequest returns. Otherwise the address and the route are resolved, cfg is
// for the id's own QP, and the id is ready to connect. If cfg is nil, no QPs are
// created. A nil pd stands for the PD that the ids of the device share. The errors
// are those of [NewIDFor], [ID.Bind], [SyncID.ResolveAddr], [SyncID.ResolveRoute],
// [SyncID.SetPaths] and [ID.CreateQP], and [uverbs.ErrNotSupported] for the
// InfiniBand family.
func CreateEP(ctx context.Context, ai *AddrInfo, pd *uverbs.PD, cfg *uverbs.QPConfig) (*SyncID, error) {
	a := *ai
	if err := a.complete(); err != nil {
		return nil, err
	}
	s, err := NewIDFor(a.PortSpace, a.QPType)
	if err != nil {
		return nil, err
	}
	if a.Flags&Passive != 0 {
		err = s.Bind(a.Src)
		if cfg != nil {
			s.request = requestConfig{createQP: true, pd: pd, qp: *cfg}
		}
	} else {
		err = s.prepare(ctx, &a, pd, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare resolves the address and the route of an active id and creates its QP.
func (s *SyncID) prepare(ctx context.Context, ai *AddrInfo, pd *uverbs.PD, cfg *uverbs.QPConfig) error {
	if err := s.ResolveAddr(ctx, ai.Src, ai.Dst, 0); err != nil {
		return err
	}
	if len(ai.Paths) > 0 {
		if err := s.SetPaths(ctx, ai.Paths); err != nil {
			return err
		}
	} else if err := s.ResolveRoute(ctx, 0); err != nil {
		return err
	}
	s.ID.mu.Lock()
	s.ID.connectData = ai.Connect
	s.ID.mu.Unlock()
	if cfg == nil {
		return nil
	}
	return s.CreateQP(pd, *cfg)
}

// String returns the port space and the host:port to listen on or to connect to.
func (ai AddrInfo) String() string {
	a := ai.Dst
	if ai.Flags&Passive != 0 {
		a = ai.Src
	}
	return ai.PortSpace.String() + " " + net.JoinHostPort(a.Addr().String(), strconv.Itoa(int(a.Port())))
}
