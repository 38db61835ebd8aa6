package provider

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// Refusal returns the error for a request with an operation or a flag that a device does not
// support on QPs of a type: [uverbs.ErrOpcode] if the opcode or a flag is unknown,
// [uverbs.ErrQPType] if no device supports it on QPs of this type, and otherwise
// [uverbs.ErrOpNotSupported].
func Refusal(typ uverbs.QPType, op uverbs.Opcode, f uverbs.SendFlags) error {
	switch {
	case f&^allFlags != 0 || !everyOp.has(op):
		return uverbs.ErrOpcode
	case f&driver.SendIPCsum != 0 && typ != uverbs.RawPacket || !opsOf(typ).has(op):
		return uverbs.ErrQPType
	}
	return uverbs.ErrOpNotSupported
}

const allFlags = uverbs.Fence | uverbs.Signaled | uverbs.Solicited | driver.SendIPCsum

// An opSet is a set of operations: bit n stands for opcode n.
type opSet uint32

func setOf(ops ...uverbs.Opcode) (s opSet) {
	for _, op := range ops {
		s |= 1 << op
	}
	return s
}

func (s opSet) has(op uverbs.Opcode) bool { return op < 32 && s>>op&1 != 0 }

// The operations of ibv_post_send(3) on each type of QP.
var (
	rawOps  = setOf(uverbs.OpSend)
	udOps   = rawOps | setOf(uverbs.OpSendImm)
	ucOps   = udOps | setOf(uverbs.OpWrite, uverbs.OpWriteImm, uverbs.OpBindMW, uverbs.OpLocalInv)
	everyOp = ucOps | setOf(uverbs.OpRead, uverbs.OpCompareSwap, uverbs.OpFetchAdd, uverbs.OpSendInv,
		uverbs.OpFlush, uverbs.OpAtomicWrite)
)

func opsOf(typ uverbs.QPType) opSet {
	switch typ {
	case uverbs.RawPacket:
		return rawOps
	case uverbs.UD:
		return udOps
	case uverbs.UC:
		return ucOps
	}
	return everyOp
}
