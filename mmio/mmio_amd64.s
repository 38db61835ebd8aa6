//go:build linux

#include "textflag.h"

// A CPU's stores to write-back memory and to uncached registers become visible
// in program order. ToDevice only needs a compiler barrier, which the call is.

// func ToDevice()
TEXT ·ToDevice(SB), NOSPLIT, $0-0
	RET

// func FromDevice()
TEXT ·FromDevice(SB), NOSPLIT, $0-0
	LFENCE
	RET

// func FlushWrites()
TEXT ·FlushWrites(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func WCStart()
TEXT ·WCStart(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func Store8(reg *uint8, v uint8)
TEXT ·Store8(SB), NOSPLIT, $0-9
	MOVQ reg+0(FP), AX
	MOVBLZX v+8(FP), CX
	MOVB CX, (AX)
	RET

// func Store16(reg *uint16, v uint16)
TEXT ·Store16(SB), NOSPLIT, $0-10
	MOVQ reg+0(FP), AX
	MOVWLZX v+8(FP), CX
	MOVW CX, (AX)
	RET

// func Store32(reg *uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVQ reg+0(FP), AX
	MOVL v+8(FP), CX
	MOVL CX, (AX)
	RET

// func Store64(reg *uint64, v uint64)
TEXT ·Store64(SB), NOSPLIT, $0-16
	MOVQ reg+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET

// func Store32BE(reg *uint32, v uint32)
TEXT ·Store32BE(SB), NOSPLIT, $0-12
	MOVQ reg+0(FP), AX
	MOVL v+8(FP), CX
	BSWAPL CX
	MOVL CX, (AX)
	RET

// func Store64BE(reg *uint64, v uint64)
TEXT ·Store64BE(SB), NOSPLIT, $0-16
	MOVQ reg+0(FP), AX
	MOVQ v+8(FP), CX
	BSWAPQ CX
	MOVQ CX, (AX)
	RET

// func Load8(reg *uint8) uint8
TEXT ·Load8(SB), NOSPLIT, $0-9
	MOVQ reg+0(FP), AX
	MOVBLZX (AX), CX
	MOVB CX, ret+8(FP)
	RET

// func Load16(reg *uint16) uint16
TEXT ·Load16(SB), NOSPLIT, $0-10
	MOVQ reg+0(FP), AX
	MOVWLZX (AX), CX
	MOVW CX, ret+8(FP)
	RET

// func Load32(reg *uint32) uint32
TEXT ·Load32(SB), NOSPLIT, $0-12
	MOVQ reg+0(FP), AX
	MOVL (AX), CX
	MOVL CX, ret+8(FP)
	RET

// func Load64(reg *uint64) uint64
TEXT ·Load64(SB), NOSPLIT, $0-16
	MOVQ reg+0(FP), AX
	MOVQ (AX), CX
	MOVQ CX, ret+8(FP)
	RET

// func Load32BE(reg *uint32) uint32
TEXT ·Load32BE(SB), NOSPLIT, $0-12
	MOVQ reg+0(FP), AX
	MOVL (AX), CX
	BSWAPL CX
	MOVL CX, ret+8(FP)
	RET

// func Copy64(dst, src *[64]byte)
TEXT ·Copy64(SB), NOSPLIT, $0-16
	MOVQ dst+0(FP), AX
	MOVQ src+8(FP), CX
	MOVUPS 0(CX), X0
	MOVUPS 16(CX), X1
	MOVUPS 32(CX), X2
	MOVUPS 48(CX), X3
	MOVUPS X0, 0(AX)
	MOVUPS X1, 16(AX)
	MOVUPS X2, 32(AX)
	MOVUPS X3, 48(AX)
	RET
