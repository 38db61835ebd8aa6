package siw

import (
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func bytesAsWords(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), len(b)/8)
}

// TestLayout compares the places of fields with the kernel's structs, and both with numbers.
func TestLayout(t *testing.T) {
	var (
		s uapi.SiwSqe
		r uapi.SiwRqe
		g uverbs.SGE
	)
	for _, c := range []struct {
		name            string
		got, abi, plain uintptr
	}{
		{"SQE", 8 * sqeWords, unsafe.Sizeof(s), 120},
		{"SQE flags", 8, unsafe.Offsetof(s.Flags), 8},
		{"SQE num_sge", 8 + countAt/8, unsafe.Offsetof(s.NumSge), 10},
		{"SQE opcode", 8 + opAt/8, unsafe.Offsetof(s.Opcode), 11},
		{"SQE rkey", 8 + rkeyAt/8, unsafe.Offsetof(s.Rkey), 12},
		{"SQE raddr", 16, unsafe.Offsetof(s.Raddr), 16},
		{"SQE sge", 24, unsafe.Offsetof(s.Sge), 24},
		{"inline data", 40, unsafe.Offsetof(s.Sge) + unsafe.Sizeof(s.Sge[0]), 40},
		{"RQE", 8 * rqeWords, unsafe.Sizeof(r), 112},
		{"RQE flags", 8, unsafe.Offsetof(r.Flags), 8},
		{"RQE num_sge", 8 + countAt/8, unsafe.Offsetof(r.NumSge), 10},
		{"RQE sge", 16, unsafe.Offsetof(r.Sge), 16},
		{"SGE", unsafe.Sizeof(g), unsafe.Sizeof(s.Sge[0]), 16},
		{"SGE length", unsafe.Offsetof(g.Length), unsafe.Offsetof(s.Sge[0].Length), 8},
		{"SGE lkey", unsafe.Offsetof(g.LKey), unsafe.Offsetof(s.Sge[0].Lkey), 12},
		{"control", 8 * controlWords, unsafe.Sizeof(uapi.SiwCqCtrl{}), 8},
	} {
		if c.got != c.abi || c.got != c.plain {
			t.Errorf("%s: %d, in the ABI %d, expected %d", c.name, c.got, c.abi, c.plain)
		}
	}
}
