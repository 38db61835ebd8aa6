//go:build linux

#include "textflag.h"

// The operand of DMB and DSB is the CRm field of the instruction. The DMBs are
// outer shareable, because a device is not in the inner shareable domain.
#define OSHLD $1
#define OSHST $2
#define ST $14

// func ToDevice()
TEXT ·ToDevice(SB), NOSPLIT, $0-0
	DMB OSHST
	RET

// func FromDevice()
TEXT ·FromDevice(SB), NOSPLIT, $0-0
	DMB OSHLD
	RET

// A DSB also waits for the stores to complete, which drains the gathering buffer
// of Normal-NC and Device-GRE memory.

// func FlushWrites()
TEXT ·FlushWrites(SB), NOSPLIT, $0-0
	DSB ST
	RET

// func WCStart()
TEXT ·WCStart(SB), NOSPLIT, $0-0
	DSB ST
	RET

// func Store8(reg *uint8, v uint8)
TEXT ·Store8(SB), NOSPLIT, $0-9
	MOVD reg+0(FP), R0
	MOVBU v+8(FP), R1
	MOVB R1, (R0)
	RET

// func Store16(reg *uint16, v uint16)
TEXT ·Store16(SB), NOSPLIT, $0-10
	MOVD reg+0(FP), R0
	MOVHU v+8(FP), R1
	MOVH R1, (R0)
	RET

// func Store32(reg *uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVD reg+0(FP), R0
	MOVWU v+8(FP), R1
	MOVW R1, (R0)
	RET

// func Store64(reg *uint64, v uint64)
TEXT ·Store64(SB), NOSPLIT, $0-16
	MOVD reg+0(FP), R0
	MOVD v+8(FP), R1
	MOVD R1, (R0)
	RET

// func Store32BE(reg *uint32, v uint32)
TEXT ·Store32BE(SB), NOSPLIT, $0-12
	MOVD reg+0(FP), R0
	MOVWU v+8(FP), R1
	REVW R1, R1
	MOVW R1, (R0)
	RET

// func Store64BE(reg *uint64, v uint64)
TEXT ·Store64BE(SB), NOSPLIT, $0-16
	MOVD reg+0(FP), R0
	MOVD v+8(FP), R1
	REV R1, R1
	MOVD R1, (R0)
	RET

// func Load8(reg *uint8) uint8
TEXT ·Load8(SB), NOSPLIT, $0-9
	MOVD reg+0(FP), R0
	MOVBU (R0), R1
	DMB OSHLD
	MOVB R1, ret+8(FP)
	RET

// func Load16(reg *uint16) uint16
TEXT ·Load16(SB), NOSPLIT, $0-10
	MOVD reg+0(FP), R0
	MOVHU (R0), R1
	DMB OSHLD
	MOVH R1, ret+8(FP)
	RET

// func Load32(reg *uint32) uint32
TEXT ·Load32(SB), NOSPLIT, $0-12
	MOVD reg+0(FP), R0
	MOVWU (R0), R1
	DMB OSHLD
	MOVW R1, ret+8(FP)
	RET

// func Load64(reg *uint64) uint64
TEXT ·Load64(SB), NOSPLIT, $0-16
	MOVD reg+0(FP), R0
	MOVD (R0), R1
	DMB OSHLD
	MOVD R1, ret+8(FP)
	RET

// func Load32BE(reg *uint32) uint32
TEXT ·Load32BE(SB), NOSPLIT, $0-12
	MOVD reg+0(FP), R0
	MOVWU (R0), R1
	DMB OSHLD
	REVW R1, R1
	MOVW R1, ret+8(FP)
	RET

// func Copy64(dst, src *[64]byte)
TEXT ·Copy64(SB), NOSPLIT, $0-16
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	VLD1 (R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R0)
	RET
