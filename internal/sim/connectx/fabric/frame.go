package fabric

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// A MAC is an Ethernet address.
type MAC [6]byte

// multicast reports whether the address is a multicast or the broadcast
// address.
func (m MAC) multicast() bool { return m[0]&1 != 0 }

const (
	ethernetHeader = 14
	// MaxFrame is the maximum length of a frame: the maximum MTU of a network
	// card and two VLAN tags.
	MaxFrame = 65535 + ethernetHeader + 8
)

// frame is an Ethernet frame without its check sequence.
type frame []byte

func (f frame) size() int { return len(f) }

func (f frame) destination() MAC { return MAC(f[0:6]) }
func (f frame) source() MAC      { return MAC(f[6:12]) }

func (f frame) satisfies(m *Match) bool {
	return m.Packet == nil && (m.Frame == nil || m.Frame(f))
}

// corrupt inverts a bit in a copy.
func (f frame) corrupt(offset int, chance *rand.Rand) unit {
	bit := byte(1)
	switch {
	case offset < 0:
		offset += len(f)
	case offset == 0:
		offset = ethernetHeader + chance.IntN(max(len(f)-ethernetHeader, 1))
		bit <<= chance.IntN(8)
	}
	c := slices.Clone(f)
	c[min(max(offset, 0), len(c)-1)] ^= bit
	return c
}

// EtherTypes, and protocols in front of a base transport header.
const (
	typeIPv4 = 0x0800
	typeVLAN = 0x8100
	typeQinQ = 0x88A8
	typeIPv6 = 0x86DD
	typeRoCE = 0x8915

	protocolUDP = 17
	portRoCE    = 4791
)

// header parses the EtherType and the base transport header. It does not
// validate them: faults also apply to malformed frames.
func (f frame) header() header {
	be := binary.BigEndian
	h := header{etherType: be.Uint16(f[12:])}
	rest := f[ethernetHeader:]
	for range 2 {
		if (h.etherType == typeVLAN || h.etherType == typeQinQ) && len(rest) >= 4 {
			h.etherType = be.Uint16(rest[2:])
			rest = rest[4:]
		}
	}
	switch h.etherType {
	case typeRoCE:
		h.base(skip(rest, 40))
	case typeIPv4:
		if len(rest) >= 20 && rest[9] == protocolUDP && be.Uint16(rest[6:])&0x1FFF == 0 {
			h.datagram(skip(rest, int(rest[0]&15)*4))
		}
	case typeIPv6:
		if len(rest) >= 40 && rest[6] == protocolUDP {
			h.datagram(rest[40:])
		}
	}
	return h
}

func skip(b []byte, n int) []byte { return b[min(n, len(b)):] }

func (h *header) datagram(b []byte) {
	if len(b) >= 8 && binary.BigEndian.Uint16(b[2:]) == portRoCE {
		h.base(b[8:])
	}
}

func (h *header) base(b []byte) {
	if len(b) >= 12 {
		h.transport = true
		h.opcode = roce.Opcode(b[0])
		h.destQPN = binary.BigEndian.Uint32(b[4:]) & 0xFFFFFF
		h.psn = binary.BigEndian.Uint32(b[8:]) & 0xFFFFFF
	}
}
