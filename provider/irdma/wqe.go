package irdma

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A quantum is the unit of rings. The first one of a request has its first SGE, or the first bytes of its inline data,
// or its immediate data, and then two words of headers. The others have two SGEs, or 31 bytes of inline data.
type quantum [4]uint64

const (
	quantumSize = 32
	maxQuanta   = 8 // of a request
	headerWord  = 3
	inlineStep  = quantumSize - 1 // bytes of inline data in a quantum, but for the first one
	firstInline = 8
	inlineAt    = 8 // in the first quantum
	// maxMessage is what a request can have, all SGEs together. That of one has 31 bits, below a valid bit.
	maxMessage = 1<<31 - 1
	// reservedQuanta is how many quanta a send queue has in addition to those of its requests.
	reservedQuanta = 258
	// gap is how many quanta of a send queue stay free: those that are filled ahead are among them.
	gap = 257
)

// The fields of a request's header, its fourth word, and of the second word of an SGE.
const (
	valid      = 1 << 63
	signaled   = 1 << 62
	fenced     = 1 << 60 // READFENCE
	inlined    = 1 << 57
	inlineLen  = 48
	withImm    = 1 << 47
	fragmentAt = 38
	opcodeAt   = 32
	lengthAt   = 32
	ahMask     = 1<<17 - 1
	qpnAt      = 32 // in the third word of a datagram
)

// The operations of the device.
const (
	hwWrite      = 0x00
	hwRead       = 0x01
	hwSend       = 0x03
	hwSendInv    = 0x04
	hwSendSol    = 0x05
	hwSendSolInv = 0x06
	hwLocalInv   = 0x0a
	hwNOP        = 0x0c
	hwWriteSol   = 0x0d
)

// An operation is what a queue knows of a uverbs.Opcode.
type operation struct {
	there         bool
	traits        driver.OpTraits
	hw, solicited uint64
	completion    uverbs.WCOpcode
}

// operations is a table by opcode.
type operations [driver.Opcodes]operation

// operationsOf returns the operations of a type of QP.
func operationsOf(typ uverbs.QPType) *operations {
	ops := new(operations)
	add := func(op uverbs.Opcode, hw, solicited uint64) {
		if o := driver.OperationOf(op); o.On(uint8(typ)) {
			ops[op] = operation{true, o.Traits, hw << opcodeAt, solicited << opcodeAt, uverbs.WCOpcode(o.Completion)}
		}
	}
	add(uverbs.OpSend, hwSend, hwSendSol)
	add(uverbs.OpSendImm, hwSend, hwSendSol)
	add(uverbs.OpSendInv, hwSendInv, hwSendSolInv)
	add(uverbs.OpWrite, hwWrite, hwWriteSol)
	add(uverbs.OpWriteImm, hwWrite, hwWriteSol)
	add(uverbs.OpRead, hwRead, hwRead)
	add(uverbs.OpLocalInv, hwLocalInv, hwLocalInv)
	return ops
}

// validOf returns the valid bit of a place in a ring of 2^shift quanta or receives, which so many precede. It is set in
// the first round, and changes with each.
func validOf(count, shift uint32) uint64 { return uint64(^count>>shift&1) << 63 }

// setFragment writes an SGE to two words.
func setFragment(to *[2]uint64, s *uverbs.SGE, v uint64) {
	to[0], to[1] = s.Addr, v|uint64(s.Length)<<lengthAt|uint64(s.LKey)
}

// fragment returns the words of an SGE: the first two of a request, or two words of the quanta after it.
func fragment(q []quantum, i int) *[2]uint64 {
	if i == 0 {
		return (*[2]uint64)(q[0][:2])
	}
	at := i%2 ^ 1 // the first half of a quantum has those with odd numbers
	return (*[2]uint64)(q[(i+1)/2][2*at:][:2])
}

// setFragments writes SGEs, beginning with a number. It returns the header's count of further ones: an even number of
// fragments, immediate data among them, has an empty one at the end, since that has the valid bit of the last quantum.
func setFragments(q []quantum, first int, sgl []uverbs.SGE, v uint64) uint64 {
	for i := range sgl {
		setFragment(fragment(q, first+i), &sgl[i], v)
	}
	n := first + len(sgl)
	if n == 0 {
		return 0
	}
	if n%2 == 0 {
		*fragment(q, n) = [2]uint64{0, v}
		n++
	}
	return uint64(n-1) << fragmentAt
}

// quantaFor returns how many quanta a number of fragments needs.
func quantaFor(fragments int) uint32 { return uint32(fragments)/2 + 1 }

// inlineQuanta is quantaFor for bytes of inline data.
func inlineQuanta(n int) uint32 {
	if n <= firstInline {
		return 1
	}
	return 1 + uint32(n-firstInline+inlineStep-1)/inlineStep
}

// setInlineData copies data to a request. In all quanta but the first one, the last byte has the valid bit.
func setInlineData(q []quantum, data []byte, v uint64) {
	b := bytesOf(q)
	data = data[copy(b[inlineAt:][:firstInline], data):]
	for b = b[quantumSize:]; len(data) > 0; b = b[quantumSize:] {
		data = data[copy(b[:inlineStep], data):]
		b[inlineStep] = byte(v >> 56)
	}
}

// shiftOf returns the binary logarithm of the quanta of requests with so many SGEs and so much inline data.
func shiftOf(sges, inline int) uint32 {
	switch {
	case sges <= 1 && inline <= firstInline:
		return 0
	case sges < 4 && inline <= 39:
		return 1
	case sges < 8 && inline <= 101:
		return 2
	}
	return 3
}

// depthOf returns how many quanta a ring has for n requests.
func (c *deviceContext) depthOf(n int, shift, reserved uint32) int {
	depth := 1 << bits.Len32(uint32(n)<<shift+reserved-1)
	return max(depth, int(c.minWQ<<shift))
}
