package engine

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// Protocol numbers.
const (
	typeIPv4 = 0x0800
	typeIPv6 = 0x86dd
	typeVLAN = 0x8100
	typeQinQ = 0x88a8
	protoTCP = 6
	protoUDP = 17
)

// A parsed has the offsets of a frame's headers; 0 if a header does not exist.
type parsed struct {
	frame    []byte
	vlan     bool
	tag      uint16
	qinq     bool // the tag is an 802.1ad service tag
	kind     uint16
	l3, l4   int
	v6       bool
	ip       bool
	fragment bool
	proto    uint8
	src, dst []byte
	payload  int // after the TCP or UDP header
}

// parseFrame parses a frame. Truncated headers count as missing.
func parseFrame(b []byte) (p parsed) {
	p.frame = b
	if len(b) < 14 {
		return p
	}
	p.kind, p.l3 = be16(b[12:]), 14
	if (p.kind == typeVLAN || p.kind == typeQinQ) && len(b) >= 18 {
		p.vlan, p.qinq, p.tag = true, p.kind == typeQinQ, be16(b[14:])
		p.kind, p.l3 = be16(b[16:]), 18
	}
	ip := b[p.l3:]
	switch {
	case p.kind == typeIPv4 && len(ip) >= 20 && ip[0]>>4 == 4:
		n := int(ip[0]&15) * 4
		if n < 20 || n > len(ip) {
			return p
		}
		p.ip, p.proto, p.src, p.dst = true, ip[9], ip[12:16], ip[16:20]
		p.fragment = be16(ip[6:])&0x3fff != 0
		p.l4 = p.l3 + n
	case p.kind == typeIPv6 && len(ip) >= 40 && ip[0]>>4 == 6:
		p.ip, p.v6, p.proto, p.src, p.dst = true, true, ip[6], ip[8:24], ip[24:40]
		p.l4 = p.l3 + 40
	default:
		return p
	}
	l4 := b[p.l4:]
	switch {
	case p.fragment:
		p.l4 = 0
	case p.proto == protoTCP && len(l4) >= 20 && int(l4[12]>>4)*4 >= 20 && int(l4[12]>>4)*4 <= len(l4):
		p.payload = p.l4 + int(l4[12]>>4)*4
	case p.proto == protoUDP && len(l4) >= 8:
		p.payload = p.l4 + 8
	default:
		p.l4 = 0
	}
	return p
}

// l4Length returns the length of the layer 4 packet according to the layer 3
// header.
func (p *parsed) l4Length() int {
	n := 0
	if p.v6 {
		n = int(be16(p.frame[p.l3+4:]))
	} else {
		n = int(be16(p.frame[p.l3+2:])) - (p.l4 - p.l3)
	}
	return max(0, min(n, len(p.frame)-p.l4))
}

// l4Sum returns the sum of layer 4 with its pseudo header.
func (p *parsed) l4Sum() uint16 {
	n := p.l4Length()
	s := roce.Sum(uint32(p.proto)+uint32(n), p.src)
	s = roce.Sum(uint32(s), p.dst)
	return roce.Sum(uint32(s), p.frame[p.l4:p.l4+n])
}

// checksums computes the checksums that a WQE requests.
func checksums(frame []byte, l3, l4 bool) {
	p := parseFrame(frame)
	if l3 && p.ip && !p.v6 {
		h := frame[p.l3 : p.l3+int(frame[p.l3]&15)*4]
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], ^roce.Sum(0, h))
	}
	if !l4 || p.l4 == 0 {
		return
	}
	at := p.l4 + 16
	if p.proto == protoUDP {
		at = p.l4 + 6
	}
	frame[at], frame[at+1] = 0, 0
	sum := ^p.l4Sum()
	if sum == 0 && p.proto == protoUDP {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(frame[at:], sum)
}

// checksumsOK reports whether the checksums of layers 3 and 4 are correct. It
// reports false for a missing layer.
func (p *parsed) checksumsOK() (l3, l4 bool) {
	if !p.ip {
		return false, false
	}
	l3 = p.v6 || roce.Sum(0, p.frame[p.l3:p.l3+int(p.frame[p.l3]&15)*4]) == 0xffff
	if p.l4 == 0 {
		return l3, false
	}
	if p.proto == protoUDP && be16(p.frame[p.l4+6:]) == 0 {
		return l3, !p.v6
	}
	return l3, p.l4Sum() == 0xffff
}
