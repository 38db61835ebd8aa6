//go:build linux && !race

#include "textflag.h"

#define OSHLD $1
#define OSH $3

// func Acquire64(p *uint64) uint64
TEXT ·Acquire64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD (R0), R1
	DMB  OSHLD
	MOVD R1, ret+8(FP)
	RET

// The barrier also orders earlier loads, because the device may overwrite the
// entries that they read. A store barrier alone would not.

// func Publish32BE(p *uint32, v uint32)
TEXT ·Publish32BE(SB), NOSPLIT, $0-12
	MOVD  p+0(FP), R0
	MOVWU v+8(FP), R1
	REVW  R1, R1
	DMB   OSH
	MOVW  R1, (R0)
	RET
