package bnxt_re

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A slotWords is a slot of a ring. A request has two slots of headers: struct bnxt_re_bsqe, or bnxt_re_brqe for a
// receive, and one that depends on the operation. Then follow its SGEs, each in a slot, or its inline data.
type slotWords [2]uint64

const (
	slotSize   = 16
	headSlots  = 2
	fixedSGEs  = 6 // of a request with a fixed size
	fixedSlots = headSlots + fixedSGEs
	maxInline  = fixedSGEs * slotSize
	// reserved is how many requests a send queue has in addition to those that are posted.
	reserved = 128
)

// The fields of the first word of a request.
const (
	signaled  = 1 << 8
	fenced    = 1 << 10 // UC_FENCE
	solicited = 1 << 11
	inlined   = 1 << 12
	slotsAt   = 16
	immAt     = 32
	receive   = 0x80
)

// The operations of the device: enum bnxt_re_wr_opcode.
const (
	hwSend     = 0x00
	hwSendImm  = 0x01
	hwWrite    = 0x04
	hwWriteImm = 0x05
	hwRead     = 0x06
	hwCompare  = 0x08
	hwFetchAdd = 0x0b
)

// An operation is what a queue knows of a uverbs.Opcode.
type operation struct {
	there      bool
	traits     driver.OpTraits
	hw         uint64
	completion uverbs.WCOpcode
}

// operations is a table by opcode.
type operations [driver.Opcodes]operation

// operationsOf returns the operations of a type of QP.
func (c *deviceContext) operationsOf(typ uverbs.QPType) *operations {
	ops := new(operations)
	add := func(op uverbs.Opcode, hw uint64) {
		if o := driver.OperationOf(op); o.On(uint8(typ)) {
			ops[op] = operation{true, o.Traits, hw, uverbs.WCOpcode(o.Completion)}
		}
	}
	add(uverbs.OpSend, hwSend)
	add(uverbs.OpSendImm, hwSendImm)
	add(uverbs.OpWrite, hwWrite)
	add(uverbs.OpWriteImm, hwWriteImm)
	add(uverbs.OpRead, hwRead)
	if c.attr.AtomicCap != 0 {
		add(uverbs.OpCompareSwap, hwCompare)
		add(uverbs.OpFetchAdd, hwFetchAdd)
	}
	return ops
}

// flagsOf returns the flags of a request as the device has them.
func flagsOf(f uverbs.SendFlags) (v uint64) {
	if f&uverbs.Signaled != 0 {
		v |= signaled
	}
	if f&uverbs.Fence != 0 {
		v |= fenced
	}
	if f&uverbs.Solicited != 0 {
		v |= solicited
	}
	return v
}

// setSGE writes an SGE to a slot.
func (s *slotWords) setSGE(x *uverbs.SGE) { s[0], s[1] = x.Addr, uint64(x.LKey)|uint64(x.Length)<<32 }
