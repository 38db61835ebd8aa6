package uverbs

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

// A grh is what the first GRHLen bytes of a datagram's buffer say.
type grh struct {
	src, dst     GID
	roce1        bool // or InfiniBand: the header is a GRH, not one of IP
	flowLabel    uint32
	trafficClass uint8
}

// The protocols that a GRH, or an IPv6 header, is followed by.
const (
	nextBTH = 0x1b // a GRH: InfiniBand, or RoCE v1
	nextUDP = 17   // an IPv6 header: RoCE v2
)

const (
	ipv4Len  = 20
	ipv4At   = GRHLen - ipv4Len
	ipv4Word = 0x45 // version 4, five words of header
)

// parseGRH decodes the area before a datagram. On RoCE v2 over IPv4 an IP
// header lies in its last 20 bytes, and the first 20 may hold anything: what
// looks like both is IPv4 when that header's checksum is right (IBA annex A17,
// A17.4.5.2).
func parseGRH(b []byte) (grh, error) {
	if len(b) < GRHLen {
		return grh{}, badGRH("it has %d bytes, not %d", len(b), GRHLen)
	}
	v4 := b[ipv4At:GRHLen]
	is6 := b[0]>>4 == 6
	switch {
	case v4[0]>>4 == 4 && !is6, v4[0] == ipv4Word && onesSum(v4) == math.MaxUint16:
		return parseIPv4(v4), nil
	case !is6:
		return grh{}, badGRH("it has neither a GRH nor an IPv4 header")
	}
	word := binary.BigEndian.Uint32(b)
	g := grh{src: GID(b[8:24]), dst: GID(b[24:40]), flowLabel: word & (1<<20 - 1), trafficClass: uint8(word >> 20)}
	switch b[6] {
	case nextBTH:
		g.roce1 = true
	case nextUDP:
	default:
		return grh{}, badGRH("its next header is %d, neither BTH nor UDP", b[6])
	}
	return g, nil
}

func parseIPv4(b []byte) grh {
	gid := func(at int) GID { return GIDFromAddr(netip.AddrFrom4([4]byte(b[at:]))) }
	return grh{src: gid(12), dst: gid(16), trafficClass: b[1]}
}

// onesSum is the checksum of a header, its own field included: all ones when
// it is right (RFC 1071).
func onesSum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum&math.MaxUint16 + sum>>16
	return uint16(sum + sum>>16)
}

func badGRH(format string, args ...any) error {
	return invalid("read address", "", "the GRH area is no datagram's: "+fmt.Sprintf(format, args...)+
		"; pass the first GRHLen bytes of the receive's buffer")
}

// AHAttrFromWC is the address of a datagram's sender, for an answer to it:
// ibv_init_ah_from_wc(3). It takes the completion of the receive and the first
// [GRHLen] bytes of its buffer, and looks for the local GID that the datagram
// was sent to; for one that was sent to a multicast group, for the GID that is
// best for the sender. The QPN to answer is WC.SrcQP.
//
// Other than the C library's, its HopLimit is 255: what was left of the
// sender's says nothing of the way back. [ErrInvalid] for a port that there is
// not, a GRH area that is none, and a datagram that was sent to no GID of the
// port.
func (c *Context) AHAttrFromWC(port int, wc *WC, grhArea []byte) (AHAttr, error) {
	const op = "read address"
	if err := c.checkPort(op, port); err != nil {
		return AHAttr{}, err
	}
	if wc.Status != WCSuccess {
		return AHAttr{}, invalid(op, c.name, "the receive has failed: its buffer holds no datagram")
	}
	a := AHAttr{DLID: wc.SLID, SL: wc.SL, SrcPathBits: wc.PathBits, Port: uint8(port)}
	if wc.Flags&WCGRH == 0 {
		return a, nil
	}
	g, err := parseGRH(grhArea)
	if err != nil {
		return AHAttr{}, err
	}
	local, err := c.localOf(port, &g)
	if err != nil {
		return AHAttr{}, err
	}
	a.IsGlobal, a.DGID, a.SGIDIndex, a.HopLimit = true, g.src, uint8(local.Index), math.MaxUint8
	a.FlowLabel, a.TrafficClass = g.flowLabel, g.trafficClass
	return a, nil
}

// localOf finds the local GID that a datagram was sent to.
func (c *Context) localOf(port int, g *grh) (*GIDEntry, error) {
	if g.dst.Addr().IsMulticast() {
		return c.SelectGID(port, g.src.Addr())
	}
	entries, err := c.GIDs(port)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		e := &entries[i]
		if e.GID == g.dst && (e.Type != GIDTypeRoCEv2) == g.roce1 && e.Index <= math.MaxUint8 {
			return e, nil
		}
	}
	return nil, invalid("read address", c.name, fmt.Sprintf("port %d has no GID %v, to which the datagram was sent: its addresses have changed, or the datagram came by another port", port, g.dst))
}
