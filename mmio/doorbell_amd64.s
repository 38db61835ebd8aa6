//go:build linux

#include "textflag.h"
#include "go_asm.h"

// func Ring(d *Doorbell, count uint32, wqe *[64]byte, blocks uint64)
TEXT ·Ring(SB), NOSPLIT, $0-32
	MOVQ   d+0(FP), AX
	MOVL   count+8(FP), CX
	MOVQ   wqe+16(FP), SI
	MOVQ   blocks+24(FP), DX
	BSWAPL CX
	MOVQ   Doorbell_Record(AX), DI
	MOVL   CX, (DI)
	SFENCE
	MOVQ   Doorbell_Reg(AX), DI
	ADDQ   Doorbell_Half(AX), DI
	TESTQ  DX, DX
	JNE    copy
	MOVQ   (SI), R8
	MOVQ   R8, (DI)

done:
	SFENCE
	MOVQ Doorbell_Toggle(AX), R8
	XORQ R8, Doorbell_Half(AX)
	RET

copy:
	MOVUPS 0(SI), X0
	MOVUPS 16(SI), X1
	MOVUPS 32(SI), X2
	MOVUPS 48(SI), X3
	MOVUPS X0, 0(DI)
	MOVUPS X1, 16(DI)
	MOVUPS X2, 32(DI)
	MOVUPS X3, 48(DI)
	DECQ   DX
	JEQ    done
	ADDQ   $64, DI
	ADDQ   $64, SI
	CMPQ   SI, Doorbell_End(AX)
	JNE    copy
	MOVQ   Doorbell_Ring(AX), SI
	JMP    copy
