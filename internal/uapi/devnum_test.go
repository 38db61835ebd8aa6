package uapi

import "testing"

func TestHugeDecodeDev(t *testing.T) {
	for _, c := range []struct {
		v            uint64
		major, minor uint32
	}{
		{0, 0, 0},
		{0xe7c0, 231, 192},           // uverbs0 in the static range
		{0xfff00, 0xfff, 0},          // largest major
		{0x10e7c0, 231, 0x1c0},       // bits from 20 on belong to the minor
		{0xffffffff, 0xfff, 0xfffff}, // largest major and minor
		{0x1_0000_0ac3, 0x0a, 0xc3},  // bits from 32 on are ignored
	} {
		if major, minor := HugeDecodeDev(c.v); major != c.major || minor != c.minor {
			t.Errorf("HugeDecodeDev(%#x) = %d, %d; want %d, %d", c.v, major, minor, c.major, c.minor)
		}
	}
}
