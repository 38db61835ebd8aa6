package roce

import (
	"encoding/binary"
	"fmt"
)

// MaxPayload is the maximum payload of a packet: the maximum path MTU.
const MaxPayload = 4096

// extended is the set of an opcode's extended headers, in the order in which
// they follow the base header.
type extended uint16

const (
	withXRC extended = 1 << iota
	withDC
	withDETH
	withRETH
	withAtomic
	withMasked // the masked form of an atomic
	withAETH
	withAtomicAck
	withImm
	withInv
	withPayload
	whole // the payload fills the path MTU: more packets of the message follow
	response
	known
)

// sizes of the base header, of the ICRC and of each extended header.
const (
	sizeBTH  = 12
	sizeICRC = 4
)

var sizes = [...]struct {
	header extended
	size   int
}{
	{withXRC, 4}, {withDC, 24}, {withDETH, 8}, {withRETH, 16}, {withAtomic, 28}, {withMasked, 44},
	{withAETH, 4}, {withAtomicAck, 8}, {withImm, 4}, {withInv, 4},
}

// operations maps the operations of RC to their headers.
var operations = map[Opcode]extended{
	SendFirst: withPayload | whole, SendMiddle: withPayload | whole,
	SendLast: withPayload, SendLastImm: withImm | withPayload, SendLastInv: withInv | withPayload,
	SendOnly: withPayload, SendOnlyImm: withImm | withPayload, SendOnlyInv: withInv | withPayload,
	WriteFirst: withRETH | withPayload | whole, WriteMiddle: withPayload | whole,
	WriteLast: withPayload, WriteLastImm: withImm | withPayload,
	WriteOnly: withRETH | withPayload, WriteOnlyImm: withRETH | withImm | withPayload,
	ReadRequest:       withRETH,
	ReadResponseFirst: response | withAETH | withPayload | whole,
	ReadResponseMid:   response | withPayload | whole,
	ReadResponseLast:  response | withAETH | withPayload,
	ReadResponseOnly:  response | withAETH | withPayload,
	Acknowledge:       response | withAETH,
	AtomicAcknowledge: response | withAETH | withAtomicAck,
	CompareSwap:       withAtomic, FetchAdd: withAtomic,
	MaskedCompareSwap: withMasked, MaskedFetchAdd: withMasked,
}

// layouts has the headers of each opcode; zero for an unknown opcode.
var layouts = func() (l [256]extended) {
	for op, with := range operations {
		l[RC.Of(op)] = with | known
		l[XRC.Of(op)] = with | known
		if with&response == 0 {
			l[XRC.Of(op)] |= withXRC
		}
		if with&withMasked == 0 {
			l[DC.Of(op)] = with | withDC | known
		}
		unreliable := with&(withPayload|withInv|response) == withPayload
		if unreliable {
			l[UC.Of(op)] = with | known
		}
	}
	l[UD.Of(SendOnly)] = withDETH | withPayload | known
	l[UD.Of(SendOnlyImm)] = withDETH | withImm | withPayload | known
	return l
}()

// Known reports whether the opcode exists.
func (o Opcode) Known() bool { return layouts[o] != 0 }

// Response reports whether a responder sends the opcode.
func (o Opcode) Response() bool { return layouts[o]&response != 0 }

// Carries reports whether packets of the opcode have a payload, which may be
// empty.
func (o Opcode) Carries() bool { return layouts[o]&withPayload != 0 }

// Starts reports whether a packet of the opcode is the first of a message.
func (o Opcode) Starts() bool {
	switch o.Op() {
	case SendMiddle, SendLast, SendLastImm, SendLastInv, WriteMiddle, WriteLast, WriteLastImm, ReadResponseMid,
		ReadResponseLast:
		return false
	}
	return true
}

// Ends reports whether a packet of the opcode is the last of a message.
func (o Opcode) Ends() bool { return layouts[o]&whole == 0 }

// size returns the length of the base header and the extended ones.
func (l extended) size() int {
	n := sizeBTH
	for _, s := range sizes {
		if l&s.header != 0 {
			n += s.size
		}
	}
	return n
}

// check refuses a packet that cannot be encoded.
func (p *Packet) check() error {
	l := layouts[p.Opcode]
	switch {
	case l == 0:
		return fmt.Errorf("%w: %v", ErrOpcode, p.Opcode)
	case len(p.Payload) > MaxPayload:
		return fmt.Errorf("%w: payload of %d bytes, at most %d", ErrLength, len(p.Payload), MaxPayload)
	case l&withPayload == 0 && len(p.Payload) != 0:
		return fmt.Errorf("%w: %v has no payload, but %d bytes of it", ErrLength, p.Opcode, len(p.Payload))
	case l&whole != 0 && (len(p.Payload) == 0 || len(p.Payload)%4 != 0):
		return fmt.Errorf("%w: %v with %d bytes, not a path MTU", ErrLength, p.Opcode, len(p.Payload))
	case (p.DestQPN|p.PSN|p.XRCSRQ|p.DC.SrcQPN|p.DC.FirstPSN|p.DETH.SrcQPN|p.AETH.MSN)>>24 != 0:
		return fmt.Errorf("%w: a 24-bit field is too large", ErrHeader)
	}
	return nil
}

// size returns the length of the packet from the base header to the ICRC.
func (p *Packet) size() int {
	return layouts[p.Opcode].size() + (len(p.Payload)+3)&^3 + sizeICRC
}

// Length returns the number of bytes that an InfiniBand port counts for the packet: from the local route header to the
// ICRC.
func (p *Packet) Length() int {
	const sizeLRH, sizeGRH = 8, 40
	if p.Route.GRH {
		return sizeLRH + sizeGRH + p.size()
	}
	return sizeLRH + p.size()
}

// appendTransport appends base header, extended headers, payload and padding.
func (p *Packet) appendTransport(b []byte) []byte {
	be := binary.BigEndian
	l, pad := layouts[p.Opcode], -len(p.Payload)&3
	b = append(b, byte(p.Opcode), bit(p.Solicited, 7)|bit(p.MigReq, 6)|byte(pad)<<4)
	b = be.AppendUint16(b, p.PKey)
	b = be.AppendUint32(b, uint32(bit(p.FECN, 7)|bit(p.BECN, 6))<<24|p.DestQPN)
	b = be.AppendUint32(b, uint32(bit(p.AckReq, 7))<<24|p.PSN)
	if l&withXRC != 0 {
		b = be.AppendUint32(b, p.XRCSRQ)
	}
	if l&withDC != 0 {
		b = be.AppendUint64(be.AppendUint64(b, p.DC.Key), p.DC.Connection)
		b = be.AppendUint32(be.AppendUint32(b, p.DC.SrcQPN), p.DC.FirstPSN)
	}
	if l&withDETH != 0 {
		b = be.AppendUint32(be.AppendUint32(b, p.DETH.QKey), p.DETH.SrcQPN)
	}
	if l&withRETH != 0 {
		b = be.AppendUint32(be.AppendUint32(be.AppendUint64(b, p.RETH.VA), p.RETH.RKey), p.RETH.Length)
	}
	if l&(withAtomic|withMasked) != 0 {
		b = be.AppendUint32(be.AppendUint64(b, p.Atomic.VA), p.Atomic.RKey)
		b = be.AppendUint64(be.AppendUint64(b, p.Atomic.Swap), p.Atomic.Compare)
	}
	if l&withMasked != 0 {
		b = be.AppendUint64(be.AppendUint64(b, p.Atomic.SwapMask), p.Atomic.CompareMask)
	}
	if l&withAETH != 0 {
		b = be.AppendUint32(b, uint32(p.AETH.Syndrome)<<24|p.AETH.MSN)
	}
	if l&withAtomicAck != 0 {
		b = be.AppendUint64(b, p.AtomicAck)
	}
	if l&withImm != 0 {
		b = be.AppendUint32(b, p.Imm)
	}
	if l&withInv != 0 {
		b = be.AppendUint32(b, p.InvRKey)
	}
	b = append(b, p.Payload...)
	return append(b, make([]byte, pad)...)
}

// parseTransport parses the output of appendTransport; b ends before the ICRC.
func (p *Packet) parseTransport(b []byte) error {
	be := binary.BigEndian
	if len(b) < sizeBTH {
		return fmt.Errorf("%w: %d bytes are too short for a base header", ErrLength, len(b))
	}
	p.Opcode = Opcode(b[0])
	l, pad := layouts[p.Opcode], int(b[1]>>4&3)
	if l == 0 {
		return fmt.Errorf("%w: %#02x", ErrOpcode, b[0])
	}
	if b[1]&0x0F != 0 {
		return fmt.Errorf("%w: transport version %d", ErrHeader, b[1]&0x0F)
	}
	n := l.size()
	if len(b) < n+pad {
		return fmt.Errorf("%w: %d bytes, %v with its padding has %d", ErrLength, len(b), p.Opcode, n+pad)
	}
	if len(b)%4 != 0 {
		return fmt.Errorf("%w: %d bytes are not a multiple of 4", ErrLength, len(b))
	}
	p.Solicited, p.MigReq = b[1]&0x80 != 0, b[1]&0x40 != 0
	p.PKey = be.Uint16(b[2:])
	p.FECN, p.BECN, p.DestQPN = b[4]&0x80 != 0, b[4]&0x40 != 0, be.Uint32(b[4:])&0xFFFFFF
	p.AckReq, p.PSN = b[8]&0x80 != 0, be.Uint32(b[8:])&0xFFFFFF
	p.parseExtended(l, b[sizeBTH:n])
	if n+pad < len(b) {
		p.Payload = b[n : len(b)-pad]
	} else if pad != 0 {
		return fmt.Errorf("%w: padding without payload", ErrLength)
	}
	return p.check()
}

// parseExtended parses the extended headers; b has their size.
func (p *Packet) parseExtended(l extended, b []byte) {
	be := binary.BigEndian
	take := func(n int) []byte {
		h := b[:n]
		b = b[n:]
		return h
	}
	if l&withXRC != 0 {
		p.XRCSRQ = be.Uint32(take(4)) & 0xFFFFFF
	}
	if l&withDC != 0 {
		p.DC = DCETH{Key: be.Uint64(take(8)), Connection: be.Uint64(take(8)), SrcQPN: be.Uint32(take(4)) & 0xFFFFFF,
			FirstPSN: be.Uint32(take(4)) & 0xFFFFFF}
	}
	if l&withDETH != 0 {
		p.DETH.QKey, p.DETH.SrcQPN = be.Uint32(take(4)), be.Uint32(take(4))&0xFFFFFF
	}
	if l&withRETH != 0 {
		p.RETH = RETH{VA: be.Uint64(take(8)), RKey: be.Uint32(take(4)), Length: be.Uint32(take(4))}
	}
	if l&(withAtomic|withMasked) != 0 {
		p.Atomic = AtomicETH{VA: be.Uint64(take(8)), RKey: be.Uint32(take(4)), Swap: be.Uint64(take(8)),
			Compare: be.Uint64(take(8))}
	}
	if l&withMasked != 0 {
		p.Atomic.SwapMask, p.Atomic.CompareMask = be.Uint64(take(8)), be.Uint64(take(8))
	}
	if l&withAETH != 0 {
		h := be.Uint32(take(4))
		p.AETH = AETH{Syndrome: uint8(h >> 24), MSN: h & 0xFFFFFF}
	}
	if l&withAtomicAck != 0 {
		p.AtomicAck = be.Uint64(take(8))
	}
	if l&withImm != 0 {
		p.Imm = be.Uint32(take(4))
	}
	if l&withInv != 0 {
		p.InvRKey = be.Uint32(take(4))
	}
}

// bit returns a flag at a bit position.
func bit(set bool, at int) byte {
	if set {
		return 1 << at
	}
	return 0
}
