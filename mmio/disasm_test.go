package mmio_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// stubs lists the instructions of each stub in the linked binary: argument
// loads, one store or barrier, return.
var stubs = map[string]map[string][]string{
	"amd64": {
		"ToDevice":    {"RET"},
		"FromDevice":  {"LFENCE", "RET"},
		"FlushWrites": {"SFENCE", "RET"},
		"WCStart":     {"SFENCE", "RET"},
		"Store8":      {"MOVQ 0x8(SP), AX", "MOVZX 0x10(SP), CX", "MOVB CL, 0(AX)", "RET"},
		"Store16":     {"MOVQ 0x8(SP), AX", "MOVZX 0x10(SP), CX", "MOVW CX, 0(AX)", "RET"},
		"Load8":       {"MOVQ 0x8(SP), AX", "MOVZX 0(AX), CX", "MOVB CL, 0x10(SP)", "RET"},
		"Load16":      {"MOVQ 0x8(SP), AX", "MOVZX 0(AX), CX", "MOVW CX, 0x10(SP)", "RET"},
		"Load32":      {"MOVQ 0x8(SP), AX", "MOVL 0(AX), CX", "MOVL CX, 0x10(SP)", "RET"},
		"Load64":      {"MOVQ 0x8(SP), AX", "MOVQ 0(AX), CX", "MOVQ CX, 0x10(SP)", "RET"},
		"Store32":     {"MOVQ 0x8(SP), AX", "MOVL 0x10(SP), CX", "MOVL CX, 0(AX)", "RET"},
		"Store64":     {"MOVQ 0x8(SP), AX", "MOVQ 0x10(SP), CX", "MOVQ CX, 0(AX)", "RET"},
		"Store32BE":   {"MOVQ 0x8(SP), AX", "MOVL 0x10(SP), CX", "BSWAP CX", "MOVL CX, 0(AX)", "RET"},
		"Store64BE":   {"MOVQ 0x8(SP), AX", "MOVQ 0x10(SP), CX", "BSWAP CX", "MOVQ CX, 0(AX)", "RET"},
		"Load32BE":    {"MOVQ 0x8(SP), AX", "MOVL 0(AX), CX", "BSWAP CX", "MOVL CX, 0x10(SP)", "RET"},
		"Copy64": {"MOVQ 0x8(SP), AX", "MOVQ 0x10(SP), CX",
			"MOVUPS 0(CX), X0", "MOVUPS 0x10(CX), X1", "MOVUPS 0x20(CX), X2", "MOVUPS 0x30(CX), X3",
			"MOVUPS X0, 0(AX)", "MOVUPS X1, 0x10(AX)", "MOVUPS X2, 0x20(AX)", "MOVUPS X3, 0x30(AX)", "RET"},
		"Ring": {"MOVQ 0x8(SP), AX", "MOVL 0x10(SP), CX", "MOVQ 0x18(SP), SI", "MOVQ 0x20(SP), DX", "BSWAP CX",
			"MOVQ 0(AX), DI", "MOVL CX, 0(DI)", // the record
			"SFENCE", "MOVQ 0x8(AX), DI", "ADDQ 0x10(AX), DI", "TESTQ DX, DX", "JNE",
			"MOVQ 0(SI), R8", "MOVQ R8, 0(DI)", // the register, by one store
			"SFENCE", "MOVQ 0x18(AX), R8", "XORQ R8, 0x10(AX)", "RET",
			"MOVUPS 0(SI), X0", "MOVUPS 0x10(SI), X1", "MOVUPS 0x20(SI), X2", "MOVUPS 0x30(SI), X3",
			"MOVUPS X0, 0(DI)", "MOVUPS X1, 0x10(DI)", "MOVUPS X2, 0x20(DI)", "MOVUPS X3, 0x30(DI)", // or by blocks
			"DECQ DX", "JE", "ADDQ $0x40, DI", "ADDQ $0x40, SI", "CMPQ SI, 0x28(AX)", "JNE", "MOVQ 0x20(AX), SI", "JMP"},
	},
	"arm64": {
		"ToDevice":    {"DMB $2", "RET"},
		"FromDevice":  {"DMB $1", "RET"},
		"FlushWrites": {"DSB $14", "RET"},
		"WCStart":     {"DSB $14", "RET"},
		"Store8":      {"MOVD 8(RSP), R0", "MOVBU 16(RSP), R1", "MOVB R1, (R0)", "RET"},
		"Store16":     {"MOVD 8(RSP), R0", "MOVHU 16(RSP), R1", "MOVH R1, (R0)", "RET"},
		"Load8":       {"MOVD 8(RSP), R0", "MOVBU (R0), R1", "DMB $1", "MOVB R1, 16(RSP)", "RET"},
		"Load16":      {"MOVD 8(RSP), R0", "MOVHU (R0), R1", "DMB $1", "MOVH R1, 16(RSP)", "RET"},
		"Load32":      {"MOVD 8(RSP), R0", "MOVWU (R0), R1", "DMB $1", "MOVW R1, 16(RSP)", "RET"},
		"Load64":      {"MOVD 8(RSP), R0", "MOVD (R0), R1", "DMB $1", "MOVD R1, 16(RSP)", "RET"},
		"Store32":     {"MOVD 8(RSP), R0", "MOVWU 16(RSP), R1", "MOVW R1, (R0)", "RET"},
		"Store64":     {"MOVD 8(RSP), R0", "MOVD 16(RSP), R1", "MOVD R1, (R0)", "RET"},
		"Store32BE":   {"MOVD 8(RSP), R0", "MOVWU 16(RSP), R1", "REVW R1, R1", "MOVW R1, (R0)", "RET"},
		"Store64BE":   {"MOVD 8(RSP), R0", "MOVD 16(RSP), R1", "REV R1, R1", "MOVD R1, (R0)", "RET"},
		"Copy64": {"MOVD 8(RSP), R0", "MOVD 16(RSP), R1",
			"VLD1 (R1), [V0.B16, V1.B16, V2.B16, V3.B16]", "VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R0)", "RET"},
		"Load32BE":    {"MOVD 8(RSP), R0", "MOVWU (R0), R1", "DMB $1", "REVW R1, R1", "MOVW R1, 16(RSP)", "RET"},
		"Acquire64":   {"MOVD 8(RSP), R0", "MOVD (R0), R1", "DMB $1", "MOVD R1, 16(RSP)", "RET"},
		"Publish32BE": {"MOVD 8(RSP), R0", "MOVWU 16(RSP), R1", "REVW R1, R1", "DMB $3", "MOVW R1, (R0)", "RET"},
		"Ring": {"MOVD 8(RSP), R0", "MOVWU 16(RSP), R1", "MOVD 24(RSP), R2", "MOVD 32(RSP), R3", "REVW R1, R1",
			"MOVD (R0), R4", "DMB $2", "MOVW R1, (R4)", // the record
			"DSB $14", "MOVD 8(R0), R4", "MOVD 16(R0), R5", "ADD R5, R4, R4", "CBNZ R3, 8(PC)",
			"MOVD (R2), R6", "MOVD R6, (R4)", // the register, by one store
			"DSB $14", "MOVD 24(R0), R6", "EOR R6, R5, R5", "MOVD R5, 16(R0)", "RET",
			"VLD1 (R2), [V0.B16, V1.B16, V2.B16, V3.B16]", "VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R4)", // or by blocks
			"SUBS $1, R3, R3", "BEQ -8(PC)", "ADD $64, R4, R4", "ADD $64, R2, R2", "MOVD 40(R0), R6", "CMP R6, R2", "BNE -8(PC)",
			"MOVD 32(R0), R2", "JMP -10(PC)"},
	},
}

func TestInstructions(t *testing.T) {
	for arch, want := range stubs {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			got := disassembly(t, arch, `/mmio\.[A-Z]`)
			for name, code := range want {
				if g, w := strings.Join(got[name], "; "), strings.Join(code, "; "); g != w {
					t.Errorf("%s is\n\t%s\nwant\n\t%s", name, g, w)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d stubs in the binary, %d in the table", len(got), len(want))
			}
		})
	}
}

var (
	textLine = regexp.MustCompile(`^TEXT \S*/mmio(?:_test)?\.(\w+)(\.abi0)?\(SB\)`)
	target   = regexp.MustCompile(`^(J\w+) 0x[0-9a-f]+$`) // jump targets differ between builds
	codeLine = regexp.MustCompile(`^\s+(?:(?:mmio|doorbell|order)_\w+\.s|order_amd64(?:_test)?\.go|types?\.go)` +
		`:\d+\s+0x[0-9a-f]+\s+[0-9a-f]+\s+(.*?)\s*$`)
)

// disassembly builds this test for arch and returns the instructions of each
// function whose name matches names.
func disassembly(t *testing.T, arch, names string) map[string][]string {
	bin := filepath.Join(t.TempDir(), "mmio.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", bin, ".")
	build.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARCH="+arch)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building for %s: %v\n%s", arch, err, out)
	}
	out, err := exec.Command("go", "tool", "objdump", "-s", names, bin).Output()
	if err != nil {
		t.Fatalf("objdump: %v", err)
	}
	code := make(map[string][]string)
	var name string
	for line := range strings.Lines(string(out)) {
		if m := textLine.FindStringSubmatch(line); m != nil {
			name = m[1]
		} else if m := codeLine.FindStringSubmatch(line); m != nil && !padding(m[1]) {
			code[name] = append(code[name], target.ReplaceAllString(m[1], "$1"))
		}
	}
	return code
}

// padding reports whether ins is filler between functions, which the
// disassembler shows as a breakpoint or as an unknown instruction.
func padding(ins string) bool {
	return ins == "INT $0x3" || ins == "?" || strings.HasPrefix(ins, "UNDEF")
}
