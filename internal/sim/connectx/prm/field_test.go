package prm

import (
	"bytes"
	"strings"
	"testing"
)

// TestField reads and writes fields of all positions, and checks that the bits
// around them are unchanged.
func TestField(t *testing.T) {
	tests := []struct {
		f    Field
		want uint64
	}{
		{Field{"nibble", 0, 4}, 0x0},
		{Field{"low nibble", 4, 4}, 0x1},
		{Field{"byte", 8, 8}, 0x23},
		{Field{"24 bits", 8, 24}, 0x234567},
		{Field{"across bytes", 12, 12}, 0x345},
		{Field{"one bit", 7, 1}, 1},
		{Field{"other bit", 6, 1}, 0},
		{Field{"word", 32, 32}, 0x89abcdef},
		{Field{"quad", 0, 64}, 0x0123456789abcdef},
		{Field{"quad later", 64, 64}, 0xfedcba9876543210},
	}
	sample := []byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10}
	for _, tt := range tests {
		b := bytes.Clone(sample)
		if got := tt.f.Get(b); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.f.Name, got, tt.want)
		}
		tt.f.Set(b, ^tt.want)
		if got := tt.f.Get(b); got != ^tt.want&tt.f.mask() {
			t.Errorf("%s: %#x after a store of %#x", tt.f.Name, got, ^tt.want)
		}
		tt.f.Set(b, tt.want)
		if !bytes.Equal(b, sample) {
			t.Errorf("%s: a store changed bits around the field: % x", tt.f.Name, b)
		}
	}
}

// TestFieldParts checks arrays and byte strings.
func TestFieldParts(t *testing.T) {
	b := []byte{0, 1, 2, 3, 4, 5, 6, 7}
	f := Field{"f", 16, 16}
	if got := f.At(2).Get(b); got != 0x0607 {
		t.Errorf("the third element is %#x", got)
	}
	if got := f.Bytes(b); !bytes.Equal(got, b[2:4]) || cap(got) != 2 {
		t.Errorf("bytes % x, capacity %d", got, cap(got))
	}
	if got := f.Rest(b); !bytes.Equal(got, b[2:]) {
		t.Errorf("rest % x", got)
	}
	f.SetBool(b, true)
	if !f.Is(b) || f.Get(b) != 1 {
		t.Errorf("true is %#x", f.Get(b))
	}
	f.SetBool(b, false)
	if f.Is(b) {
		t.Errorf("false is %#x", f.Get(b))
	}
}

// TestLayoutFields checks that fields of nested layouts have their path and
// offset.
func TestLayoutFields(t *testing.T) {
	inner := layout("inner", 4)
	inner.field("a", 0, 8, 8)
	outer := layout("outer", 12)
	outer.field("b", 0, 0, 32)
	outer.nest("inner", 8, inner)
	var got []string
	outer.Fields(func(f Field) bool {
		got = append(got, f.Name)
		if f.Name == "inner.a" && f.Offset != 72 {
			t.Errorf("inner.a is at bit %d", f.Offset)
		}
		return true
	})
	if s := strings.Join(got, " "); s != "b inner.a" {
		t.Errorf("fields %s", s)
	}
	n := 0
	outer.Fields(func(Field) bool { n++; return false })
	if n != 1 {
		t.Errorf("%d fields after a stop at the first", n)
	}
}
