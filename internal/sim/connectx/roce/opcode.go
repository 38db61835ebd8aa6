package roce

import "fmt"

// An Opcode is the operation of a packet: the service in its upper three bits,
// the packet's place and purpose in the lower five.
type Opcode uint8

// Services: the upper three bits of an Opcode.
const (
	RC  Opcode = 0x00
	UC  Opcode = 0x20
	UD  Opcode = 0x60
	XRC Opcode = 0xA0
	// DC is dynamically connected transport. Its packets have no standard format: the opcodes are from the range
	// reserved for manufacturers, and known only to these devices.
	DC Opcode = 0xE0
)

// Operations: the lower five bits of an Opcode.
const (
	SendFirst         Opcode = 0x00
	SendMiddle        Opcode = 0x01
	SendLast          Opcode = 0x02
	SendLastImm       Opcode = 0x03
	SendOnly          Opcode = 0x04
	SendOnlyImm       Opcode = 0x05
	WriteFirst        Opcode = 0x06
	WriteMiddle       Opcode = 0x07
	WriteLast         Opcode = 0x08
	WriteLastImm      Opcode = 0x09
	WriteOnly         Opcode = 0x0A
	WriteOnlyImm      Opcode = 0x0B
	ReadRequest       Opcode = 0x0C
	ReadResponseFirst Opcode = 0x0D
	ReadResponseMid   Opcode = 0x0E
	ReadResponseLast  Opcode = 0x0F
	ReadResponseOnly  Opcode = 0x10
	Acknowledge       Opcode = 0x11
	AtomicAcknowledge Opcode = 0x12
	CompareSwap       Opcode = 0x13
	FetchAdd          Opcode = 0x14
	SendLastInv       Opcode = 0x16
	SendOnlyInv       Opcode = 0x17
)

// Masked atomics have no standard opcodes. These are from the range reserved
// for manufacturers, and known only to these devices.
const (
	RCMaskedCompareSwap  Opcode = 0xC0
	RCMaskedFetchAdd     Opcode = 0xC1
	XRCMaskedCompareSwap Opcode = 0xD0
	XRCMaskedFetchAdd    Opcode = 0xD1
)

// Operations of masked atomics as Op returns them: outside of the five bits.
const (
	MaskedCompareSwap = RCMaskedCompareSwap
	MaskedFetchAdd    = RCMaskedFetchAdd
)

// Service returns the opcode's service: RC, UC, UD, XRC or DC.
func (o Opcode) Service() Opcode {
	switch o {
	case RCMaskedCompareSwap, RCMaskedFetchAdd:
		return RC
	case XRCMaskedCompareSwap, XRCMaskedFetchAdd:
		return XRC
	}
	return o & 0xE0
}

// Op returns the opcode without its service.
func (o Opcode) Op() Opcode {
	switch o {
	case RCMaskedCompareSwap, XRCMaskedCompareSwap:
		return MaskedCompareSwap
	case RCMaskedFetchAdd, XRCMaskedFetchAdd:
		return MaskedFetchAdd
	}
	return o & 0x1F
}

// Of returns the opcode of an operation of a service.
func (service Opcode) Of(op Opcode) Opcode {
	if op == MaskedCompareSwap || op == MaskedFetchAdd {
		if service == XRC {
			return op + (XRCMaskedCompareSwap - RCMaskedCompareSwap)
		}
		return op
	}
	return service | op
}

var serviceNames = map[Opcode]string{RC: "RC", UC: "UC", UD: "UD", XRC: "XRC", DC: "DC"}

var opNames = map[Opcode]string{
	SendFirst: "SEND_FIRST", SendMiddle: "SEND_MIDDLE", SendLast: "SEND_LAST", SendLastImm: "SEND_LAST_IMM",
	SendOnly: "SEND_ONLY", SendOnlyImm: "SEND_ONLY_IMM",
	WriteFirst: "WRITE_FIRST", WriteMiddle: "WRITE_MIDDLE", WriteLast: "WRITE_LAST", WriteLastImm: "WRITE_LAST_IMM",
	WriteOnly: "WRITE_ONLY", WriteOnlyImm: "WRITE_ONLY_IMM",
	ReadRequest: "READ_REQUEST", ReadResponseFirst: "READ_RESPONSE_FIRST", ReadResponseMid: "READ_RESPONSE_MIDDLE",
	ReadResponseLast: "READ_RESPONSE_LAST", ReadResponseOnly: "READ_RESPONSE_ONLY",
	Acknowledge: "ACK", AtomicAcknowledge: "ATOMIC_ACK", CompareSwap: "COMPARE_SWAP", FetchAdd: "FETCH_ADD",
	SendLastInv: "SEND_LAST_INV", SendOnlyInv: "SEND_ONLY_INV",
	MaskedCompareSwap: "MASKED_COMPARE_SWAP", MaskedFetchAdd: "MASKED_FETCH_ADD",
}

// String returns the opcode's name, such as RC_SEND_ONLY.
func (o Opcode) String() string {
	service, op := serviceNames[o.Service()], opNames[o.Op()]
	if service == "" || op == "" {
		return fmt.Sprintf("opcode(%#02x)", uint8(o))
	}
	return service + "_" + op
}
