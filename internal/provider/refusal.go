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
	o := driver.OperationOf(op)
	switch {
	case f&^allFlags != 0 || o == nil:
		return uverbs.ErrOpcode
	case f&driver.SendIPCsum != 0 && typ != uverbs.RawPacket || !o.On(uint8(typ)):
		return uverbs.ErrQPType
	}
	return uverbs.ErrOpNotSupported
}

const allFlags = uverbs.Fence | uverbs.Signaled | uverbs.Solicited | driver.SendIPCsum
