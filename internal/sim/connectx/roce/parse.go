package roce

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors of Parse.
var (
	ErrNotRoCE  = errors.New("not a RoCE frame")
	ErrLength   = errors.New("wrong length")
	ErrHeader   = errors.New("malformed header")
	ErrChecksum = errors.New("wrong checksum")
	ErrOpcode   = errors.New("unknown opcode")
	ErrICRC     = errors.New("wrong ICRC")
)

// Parse decodes an Ethernet frame. The payload aliases the frame. It returns
// ErrNotRoCE for other protocols. All other errors are for frames that a device
// drops.
func Parse(frame []byte) (*Packet, error) {
	p := &Packet{Route: Route{GRH: true}}
	b, kind, err := p.parseEthernet(frame)
	if err != nil {
		return nil, err
	}
	switch kind {
	case typeRoCE:
		b, err = p.parseGRH(b)
	case typeIPv4:
		b, err = p.parseIPv4(b)
	case typeIPv6:
		b, err = p.parseIPv6(b)
	default:
		err = ErrNotRoCE
	}
	if err != nil {
		return nil, err
	}
	if err := p.parseInvariant(b); err != nil {
		return nil, err
	}
	return p, nil
}

// parseEthernet parses addresses, tag and type. It returns the rest and the
// type.
func (p *Packet) parseEthernet(b []byte) ([]byte, uint16, error) {
	be := binary.BigEndian
	if len(b) < sizeEthernet {
		return nil, 0, ErrNotRoCE
	}
	copy(p.Route.DMAC[:], b)
	copy(p.Route.SMAC[:], b[6:])
	kind := be.Uint16(b[12:])
	if kind != typeVLAN {
		return b[sizeEthernet:], kind, nil
	}
	if len(b) < sizeEthernet+sizeTag {
		return nil, 0, ErrNotRoCE
	}
	p.Route.Tagged, p.Route.VLAN = true, be.Uint16(b[14:])
	return b[sizeEthernet+sizeTag:], be.Uint16(b[16:]), nil
}

// parseGRH parses the header of version 1. It returns the packet from the GRH
// to the ICRC, without Ethernet padding.
func (p *Packet) parseGRH(b []byte) ([]byte, error) {
	p.Route.Version = V1
	if len(b) < sizeGRH {
		return nil, fmt.Errorf("%w: %d bytes are too short for a GRH", ErrLength, len(b))
	}
	if b[0]>>4 != 6 || b[6] != protoIBA {
		return nil, fmt.Errorf("%w: GRH of version %d with next header %d", ErrHeader, b[0]>>4, b[6])
	}
	return p.parseLong(b)
}

// parseLong parses a GRH or IPv6 header, which is complete.
func (p *Packet) parseLong(b []byte) ([]byte, error) {
	be, r := binary.BigEndian, &p.Route
	n := sizeGRH + int(be.Uint16(b[4:]))
	if n > len(b) {
		return nil, fmt.Errorf("%w: %d bytes, the header has %d", ErrLength, len(b), n)
	}
	first := be.Uint32(b)
	r.TrafficClass, r.FlowLabel, r.HopLimit = uint8(first>>20), first&0xFFFFF, b[7]
	copy(r.SGID[:], b[8:])
	copy(r.DGID[:], b[24:])
	return b[:n], nil
}

// parseIPv6 parses the headers of version 2 over IPv6.
func (p *Packet) parseIPv6(b []byte) ([]byte, error) {
	p.Route.Version = V2
	if len(b) < sizeGRH+sizeUDP || b[0]>>4 != 6 || b[6] != protoUDP || binary.BigEndian.Uint16(b[sizeGRH+2:]) != Port {
		return nil, ErrNotRoCE
	}
	b, err := p.parseLong(b)
	if err != nil {
		return nil, err
	}
	if mapped(&p.Route.SGID) || mapped(&p.Route.DGID) {
		return nil, fmt.Errorf("%w: an IPv4 address over IPv6", ErrHeader)
	}
	return b, p.parseUDP(b[sizeGRH:], b[8:sizeGRH])
}

// parseIPv4 parses the headers of version 2 over IPv4.
func (p *Packet) parseIPv4(b []byte) ([]byte, error) {
	be, r := binary.BigEndian, &p.Route
	r.Version = V2
	if len(b) < sizeIPv4+sizeUDP || b[0] != 0x45 || b[9] != protoUDP || be.Uint16(b[sizeIPv4+2:]) != Port {
		return nil, ErrNotRoCE // packets with options are also left to the host's stack
	}
	if be.Uint16(b[6:])&0x3FFF != 0 {
		return nil, ErrNotRoCE // a fragment
	}
	if Sum(0, b[:sizeIPv4]) != 0xFFFF {
		return nil, fmt.Errorf("%w: IPv4 header", ErrChecksum)
	}
	n := int(be.Uint16(b[2:]))
	if n < sizeIPv4+sizeUDP || n > len(b) {
		return nil, fmt.Errorf("%w: %d bytes, the IPv4 header has %d", ErrLength, len(b), n)
	}
	r.TrafficClass, r.HopLimit = b[1], b[8]
	r.SGID, r.DGID = [16]byte{10: 0xFF, 11: 0xFF}, [16]byte{10: 0xFF, 11: 0xFF}
	copy(r.SGID[12:], b[12:])
	copy(r.DGID[12:], b[16:])
	return b[:n], p.parseUDP(b[sizeIPv4:n], b[12:sizeIPv4])
}

// parseUDP checks the UDP header at the start of b. addresses are for its
// pseudo header.
func (p *Packet) parseUDP(b, addresses []byte) error {
	be := binary.BigEndian
	if len(b) < sizeUDP || int(be.Uint16(b[4:])) != len(b) {
		return fmt.Errorf("%w: %d bytes differ from the UDP header", ErrLength, len(b))
	}
	p.Route.SourcePort = be.Uint16(b)
	if be.Uint16(b[6:]) == 0 {
		return nil
	}
	pseudo := uint32(Sum(uint32(protoUDP+len(b)), addresses))
	if Sum(pseudo, b) != 0xFFFF {
		return fmt.Errorf("%w: UDP", ErrChecksum)
	}
	return nil
}

// parseInvariant parses everything after the network headers, at the start of
// b.
func (p *Packet) parseInvariant(b []byte) error {
	n := sizeGRH
	if p.Route.Version == V2 {
		if n += sizeUDP; p.Route.IPv4() {
			n = sizeIPv4 + sizeUDP
		}
	}
	end := len(b) - sizeICRC
	if end < n+sizeBTH {
		return fmt.Errorf("%w: %d bytes after the network headers", ErrLength, len(b)-n)
	}
	if got, want := binary.LittleEndian.Uint32(b[end:]), icrc(p.Route.Version, b[:end]); got != want {
		return fmt.Errorf("%w: %#08x, want %#08x", ErrICRC, got, want)
	}
	return p.parseTransport(b[n:end])
}
