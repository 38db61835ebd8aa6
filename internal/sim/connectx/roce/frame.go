package roce

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Port is the UDP port of RoCE version 2.
const Port = 4791

const (
	typeVLAN = 0x8100
	typeIPv4 = 0x0800
	typeIPv6 = 0x86DD
	typeRoCE = 0x8915

	protoUDP = 17
	protoIBA = 27 // next header of a GRH

	sizeEthernet = 14
	sizeTag      = 4
	sizeIPv4     = 20
	sizeUDP      = 8
	sizeGRH      = 40 // and of an IPv6 header
)

// AppendFrame appends the packet as an Ethernet frame, without its frame check
// sequence. It refuses packets without an Ethernet form.
func (p *Packet) AppendFrame(b []byte) ([]byte, error) {
	r := &p.Route
	if err := p.check(); err != nil {
		return b, err
	}
	if r.Version != V1 && r.Version != V2 {
		return b, fmt.Errorf("%w: an InfiniBand packet has no frame", ErrHeader)
	}
	if r.Version == V2 && mapped(&r.SGID) != mapped(&r.DGID) {
		return b, fmt.Errorf("%w: one address is of IPv4, the other of IPv6", ErrHeader)
	}
	b = append(append(b, r.DMAC[:]...), r.SMAC[:]...)
	if r.Tagged {
		b = binary.BigEndian.AppendUint16(append(b, typeVLAN>>8, typeVLAN&0xFF), r.VLAN)
	}
	start := len(b) + 2
	switch {
	case r.Version == V1:
		b = append(b, typeRoCE>>8, typeRoCE&0xFF)
	case r.IPv4():
		b = append(b, typeIPv4>>8, typeIPv4&0xFF)
	default:
		b = append(b, typeIPv6>>8, typeIPv6&0xFF)
	}
	b = p.appendNetwork(b)
	if r.Version == V2 {
		b = p.appendUDP(b)
	}
	b = p.appendTransport(b)
	return binary.LittleEndian.AppendUint32(b, icrc(r.Version, b[start:])), nil
}

// appendNetwork appends the IPv4 header, IPv6 header or GRH.
func (p *Packet) appendNetwork(b []byte) []byte {
	be, r, n := binary.BigEndian, &p.Route, p.size()
	if r.IPv4() {
		start := len(b)
		b = append(b, 0x45, r.TrafficClass)
		b = be.AppendUint16(b, uint16(sizeIPv4+sizeUDP+n))
		b = append(b, 0, 0, 0x40, 0, r.HopLimit, protoUDP, 0, 0) // don't fragment
		b = append(append(b, r.SGID[12:]...), r.DGID[12:]...)
		be.PutUint16(b[start+10:], ^Sum(0, b[start:]))
		return b
	}
	next := byte(protoIBA)
	if r.Version == V2 {
		next, n = protoUDP, n+sizeUDP
	}
	b = be.AppendUint32(b, 6<<28|uint32(r.TrafficClass)<<20|r.FlowLabel&0xFFFFF)
	b = append(be.AppendUint16(b, uint16(n)), next, r.HopLimit)
	return append(append(b, r.SGID[:]...), r.DGID[:]...)
}

// appendUDP appends the UDP header. Its checksum is zero, as in the annex, also
// for IPv6, because the ICRC covers the packet.
func (p *Packet) appendUDP(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(be.AppendUint16(b, p.Route.SourcePort), Port)
	return append(be.AppendUint16(b, uint16(sizeUDP+p.size())), 0, 0)
}

// NetworkHeader returns the 40 bytes in front of a datagram in its receiver's
// buffers: the GRH, the IPv6 header, or 20 unused bytes and the IPv4 header. It
// reports whether the packet has such a header.
func (p *Packet) NetworkHeader() (h [40]byte, ok bool) {
	switch {
	case p.Route.IPv4():
		p.appendNetwork(h[20:20])
	case p.Route.Version != InfiniBand || p.Route.GRH:
		p.appendNetwork(h[:0])
	default:
		return h, false
	}
	return h, true
}

// icrc returns the invariant CRC of a packet: b is everything after the
// EtherType and before the ICRC itself. Fields that routers and switches may
// change count as ones, as do the eight bytes of a local route header, which
// Ethernet does not have.
func icrc(v Version, b []byte) uint32 {
	const lrh = 8
	var h [lrh + sizeGRH + sizeUDP + sizeBTH]byte
	for i := range lrh {
		h[i] = 0xFF
	}
	n := sizeGRH
	if v == V2 {
		if n += sizeUDP; b[0]>>4 == 4 {
			n = sizeIPv4 + sizeUDP
		}
	}
	head := h[:lrh+n+sizeBTH]
	copy(head[lrh:], b)
	ip := head[lrh:]
	if v == V2 && b[0]>>4 == 4 {
		ip[1], ip[8], ip[10], ip[11] = 0xFF, 0xFF, 0xFF, 0xFF // class, time to live, checksum
	} else {
		ip[0] |= 0x0F // class, flow label, hop limit
		ip[1], ip[2], ip[3], ip[7] = 0xFF, 0xFF, 0xFF, 0xFF
	}
	if v == V2 {
		ip[n-2], ip[n-1] = 0xFF, 0xFF // UDP checksum
	}
	ip[n+4] = 0xFF // congestion notification and reserved bits of the base header
	return crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, b[n+sizeBTH:])
}

// Sum returns the one's complement sum of b for Internet checksums, continued
// from s.
func Sum(s uint32, b []byte) uint16 {
	n := uint64(s)
	for ; len(b) >= 2; b = b[2:] {
		n += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		n += uint64(b[0]) << 8
	}
	for n>>16 != 0 {
		n = n&0xFFFF + n>>16
	}
	return uint16(n)
}

// SourcePort returns the UDP source port of a flow: derived from its label of
// 20 bits or, if that is 0, from the two queue pairs, as in the kernel
// (rdma_get_udp_sport).
func SourcePort(flow, local, remote uint32) uint16 {
	if flow == 0 {
		v := uint64(local) * uint64(remote)
		v ^= v >> 20
		v ^= v >> 40
		flow = uint32(v)
	}
	return uint16((flow^flow>>14&0x3F)&0x3FFF) | 0xC000
}
