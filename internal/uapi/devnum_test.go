package uapi

import "testing"

func TestHugeDecodeDev(t *testing.T) {
	for _, c := range []struct {
		v            uint64
		major, minor uint32
	}{
		{0, 0, 0},
		{0xe7c0, 231, 192},           // uverbs0 of the fixed range
		{0xfff00, 0xfff, 0},          // largest major
		{0x10e7c0, 231, 0x1c0},       // bits 20.. are the rest of the minor
		{0xffffffff, 0xfff, 0xfffff}, // all of both
		{0x1_0000_0ac3, 0x0a, 0xc3},  // bits above 32 mean nothing
	} {
		if major, minor := HugeDecodeDev(c.v); major != c.major || minor != c.minor {
			t.Errorf("HugeDecodeDev(%#x) = %d, %d; want %d, %d", c.v, major, minor, c.major, c.minor)
		}
	}
}
