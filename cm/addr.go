package cm

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

const (
	afIB          = 27 // AF_IB
	sockaddrIn    = 16
	sockaddrIn6   = 28
	sockaddrIB    = 48
	anyServiceBit = ^uint64(0)
)

// sockaddr encodes an address for the kernel. An invalid IP address becomes the
// unspecified IPv6 address, which stands for all addresses of both families.
func sockaddr(a netip.AddrPort) ([]byte, error) {
	ip := a.Addr().Unmap()
	if !ip.IsValid() {
		ip = netip.IPv6Unspecified()
	}
	if ip.Is4() {
		b := make([]byte, sockaddrIn)
		binary.NativeEndian.PutUint16(b, unix.AF_INET)
		binary.BigEndian.PutUint16(b[2:], a.Port())
		copy(b[4:], ip.AsSlice())
		return b, nil
	}
	scope, err := scopeOf(ip)
	if err != nil {
		return nil, err
	}
	b := make([]byte, sockaddrIn6)
	binary.NativeEndian.PutUint16(b, unix.AF_INET6)
	binary.BigEndian.PutUint16(b[2:], a.Port())
	copy(b[8:], ip.AsSlice())
	binary.NativeEndian.PutUint32(b[24:], scope)
	return b, nil
}

// scopeOf returns the interface index of an IPv6 zone.
func scopeOf(ip netip.Addr) (uint32, error) {
	zone := ip.Zone()
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	index, err := machine.InterfaceIndex(zone)
	if err != nil {
		return 0, invalid("use address", ip.String(), "there is no network interface "+zone)
	}
	return uint32(index), nil
}

// parseSockaddr decodes an IP address that the kernel returned. It returns the zero
// AddrPort for other families.
func parseSockaddr(b []byte) netip.AddrPort {
	if len(b) < sockaddrIn {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:])), port)
	case unix.AF_INET6:
		if len(b) < sockaddrIn6 {
			return netip.AddrPort{}
		}
		ip := netip.AddrFrom16([16]byte(b[8:]))
		if scope := binary.NativeEndian.Uint32(b[24:]); scope != 0 && !ip.Is4In6() {
			ip = ip.WithZone(zoneOf(scope))
		}
		return netip.AddrPortFrom(ip, port)
	}
	return netip.AddrPort{}
}

// zoneOf returns the name of an interface, or its index if this network namespace has
// no such interface.
func zoneOf(scope uint32) string {
	if name, err := machine.InterfaceName(int(scope)); err == nil {
		return name
	}
	return strconv.FormatUint(uint64(scope), 10)
}

// An IBAddr is an address of the InfiniBand family: struct sockaddr_ib.
type IBAddr struct {
	PKey        uint16
	FlowInfo    uint32
	GID         uverbs.GID
	ServiceID   uint64
	ServiceMask uint64 // 0 stands for all ones
	ScopeID     uint64
}

func (a IBAddr) sockaddr() []byte {
	mask := a.ServiceMask
	if mask == 0 {
		mask = anyServiceBit
	}
	b := make([]byte, sockaddrIB)
	binary.NativeEndian.PutUint16(b, afIB)
	binary.BigEndian.PutUint16(b[2:], a.PKey)
	binary.BigEndian.PutUint32(b[4:], a.FlowInfo)
	copy(b[8:], a.GID[:])
	binary.BigEndian.PutUint64(b[24:], a.ServiceID)
	binary.BigEndian.PutUint64(b[32:], mask)
	binary.NativeEndian.PutUint64(b[40:], a.ScopeID)
	return b
}

// parseIBAddr decodes a sockaddr_ib. It reports whether b is one.
func parseIBAddr(b []byte) (IBAddr, bool) {
	if len(b) < sockaddrIB || binary.NativeEndian.Uint16(b) != afIB {
		return IBAddr{}, false
	}
	return IBAddr{
		PKey:        binary.BigEndian.Uint16(b[2:]),
		FlowInfo:    binary.BigEndian.Uint32(b[4:]),
		GID:         uverbs.GID(b[8:24]),
		ServiceID:   binary.BigEndian.Uint64(b[24:]),
		ServiceMask: binary.BigEndian.Uint64(b[32:]),
		ScopeID:     binary.NativeEndian.Uint64(b[40:]),
	}, true
}

// interfaceAddrs returns the machine's addresses. Hermetic tests replace it.
var interfaceAddrs = machine.InterfaceAddrs

// machineAddrs returns the machine's IP addresses, without zones.
func machineAddrs() ([]netip.Addr, error) {
	addrs, err := interfaceAddrs()
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			ips = append(ips, p.Addr().Unmap())
		}
	}
	return ips, nil
}

// hostAddr returns the address of a host, by whichever family and interface it was reached.
func hostAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
