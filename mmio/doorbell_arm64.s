//go:build linux

#include "textflag.h"
#include "go_asm.h"

#define OSHST $2
#define ST $14

// func Ring(d *Doorbell, count uint32, wqe *[64]byte, blocks uint64)
TEXT ·Ring(SB), NOSPLIT, $0-32
	MOVD  d+0(FP), R0
	MOVWU count+8(FP), R1
	MOVD  wqe+16(FP), R2
	MOVD  blocks+24(FP), R3
	REVW  R1, R1
	MOVD  Doorbell_Record(R0), R4
	DMB   OSHST
	MOVW  R1, (R4)
	DSB   ST
	MOVD  Doorbell_Reg(R0), R4
	MOVD  Doorbell_Half(R0), R5
	ADD   R5, R4
	CBNZ  R3, copy
	MOVD  (R2), R6
	MOVD  R6, (R4)

done:
	DSB  ST
	MOVD Doorbell_Toggle(R0), R6
	EOR  R6, R5
	MOVD R5, Doorbell_Half(R0)
	RET

copy:
	VLD1 (R2), [V0.B16, V1.B16, V2.B16, V3.B16]
	VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R4)
	SUBS $1, R3
	BEQ  done
	ADD  $64, R4
	ADD  $64, R2
	MOVD Doorbell_End(R0), R6
	CMP  R6, R2
	BNE  copy
	MOVD Doorbell_Ring(R0), R2
	B    copy
