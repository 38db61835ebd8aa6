package uverbs

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

// A grh holds the fields of the first GRHLen bytes of a datagram's buffer.
type grh struct {
	src, dst     GID
	roce1        bool // RoCE v1 or InfiniBand: the header is a GRH, not an IP header
	flowLabel    uint32
	trafficClass uint8
}

// The protocols that follow a GRH or an IPv6 header.
const (
	nextBTH = 0x1b // after a GRH: InfiniBand or RoCE v1
	nextUDP = 17   // after an IPv6 header: RoCE v2
)

const (
	ipv4Len  = 20
	ipv4At   = GRHLen - ipv4Len
	ipv4Word = 0x45 // version 4, header of five 32-bit words
)

// parseGRH decodes the area before a datagram. On RoCE v2 over IPv4 the last 20 bytes are an IP
// header, and the first 20 bytes are undefined. If the area could be either kind of header, it
// is IPv4 if that header's checksum is correct (IBA annex A17, A17.4.5.2).
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

// onesSum returns the checksum of a header, including its checksum field. It is all ones if the
// header is correct (RFC 1071).
func onesSum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum&math.MaxUint16 + sum>>16
	return uint16(sum + sum>>16)
}

func badGRH(format string, args ...any) error {
	return invalid("read address", "", "the GRH area is not that of a datagram: "+fmt.Sprintf(format, args...)+
		"; pass the first GRHLen bytes of the receive's buffer")
}

// AHAttrFromWC returns the address of a datagram's sender, for a reply to it:
// ibv_init_ah_from_wc(3). Its arguments are the completion of the receive and the first
// [GRHLen] bytes of the buffer. The local GID is the one that the datagram was sent to. For a
// datagram to a multicast group it is the best GID for the sender. The QPN to reply to is
// WC.SrcQP.
//
// Service level, path bits, LID, flow label and traffic class are those of the datagram. The
// HopLimit is 255, unlike in the C library: the rest of the sender's hop limit says
// nothing about the way back.
//
// AHAttrFromWC issues one command to the kernel, whatever the number of GIDs, and several for a
// multicast datagram. Creating an AH takes longer. A server that replies to many datagrams
// should keep its AHs in a map by [WC.AHKey].
//
// It returns [ErrInvalid] if the device has no such port, if the GRH area is not valid, and if
// the datagram was not sent to a GID of the port.
func (c *Context) AHAttrFromWC(port int, wc *WC, grhArea []byte) (AHAttr, error) {
	k, err := wc.AHKey(grhArea)
	if err != nil {
		return AHAttr{}, err
	}
	return c.AHAttrFromKey(port, k)
}

// AHAttrFromKey is [Context.AHAttrFromWC] for a datagram whose [WC.AHKey] is k, so that a
// program can create the AH for a reply after it has reused the buffer. It returns [ErrInvalid]
// if the device has no such port, and if the datagram was not sent to a GID of the port.
func (c *Context) AHAttrFromKey(port int, k AHKey) (AHAttr, error) {
	if err := c.checkPort("read address", port); err != nil {
		return AHAttr{}, err
	}
	a := AHAttr{DLID: k.slid, SL: k.sl, SrcPathBits: k.pathBits, Port: uint8(port)}
	if !k.global {
		return a, nil
	}
	index, err := c.replyIndex(port, &k.grh)
	if err != nil {
		return AHAttr{}, err
	}
	a.IsGlobal, a.DGID, a.SGIDIndex, a.HopLimit = true, k.grh.src, index, math.MaxUint8
	a.FlowLabel, a.TrafficClass = k.grh.flowLabel, k.grh.trafficClass
	return a, nil
}

// An AHKey holds everything that [Context.AHAttrFromWC] uses of a datagram. It is comparable:
// datagrams that were received on the same port and have equal keys have the same way back. So
// a server can keep an AH for each key in a map.
//
// Limit the size of the map, since peers choose their addresses and flow labels: close and
// remove an AH that has not been used for a while. Remove all of them after [EventGIDChange]:
// the GIDs of the port have changed, and an AH sends from the GID that it was created with.
type AHKey struct {
	grh      grh
	global   bool // grh is valid
	slid     uint16
	sl       uint8
	pathBits uint8
}

// AHKey returns the key of a datagram, from the completion of its receive and the first
// [GRHLen] bytes of its buffer. It issues no command and does not allocate. It returns
// [ErrInvalid] if the receive has failed or the GRH area is not valid.
func (wc *WC) AHKey(grhArea []byte) (AHKey, error) {
	if wc.Status != WCSuccess {
		return AHKey{}, invalid("read address", "", "the receive has failed: its buffer holds no datagram")
	}
	k := AHKey{slid: wc.SLID, sl: wc.SL, pathBits: wc.PathBits}
	if wc.Flags&WCGRH == 0 {
		return k, nil
	}
	var err error
	if k.grh, err = parseGRH(grhArea); err != nil {
		return AHKey{}, err
	}
	k.global = true
	return k, nil
}

// replyIndex returns the index of the local GID for a reply to a datagram.
func (c *Context) replyIndex(port int, g *grh) (uint8, error) {
	if g.dst.Addr().IsMulticast() {
		e, err := c.SelectGID(port, g.src.Addr())
		if err != nil {
			return 0, err
		}
		return uint8(e.Index), nil
	}
	index, ok, err := c.findGID(port, g.dst, !g.roce1)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, invalid("read address", c.name, fmt.Sprintf("port %d has no GID %v, to which the datagram was sent:"+
			" its addresses have changed, or the datagram came by another port", port, g.dst))
	}
	return index, nil
}
