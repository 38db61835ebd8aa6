package mmio_test

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/mmio"
)

func TestStores(t *testing.T) {
	var regs [3]register
	p32, p64 := regs[1].p32(), regs[1].p64()
	for _, c := range []struct {
		name  string
		store func()
		want  [8]byte
	}{
		{"Store32", func() { mmio.Store32(p32, 0x01020304) }, [8]byte{4, 3, 2, 1, 0xee, 0xee, 0xee, 0xee}},
		{"Store32BE", func() { mmio.Store32BE(p32, 0x01020304) }, [8]byte{1, 2, 3, 4, 0xee, 0xee, 0xee, 0xee}},
		{"Store64", func() { mmio.Store64(p64, 0x0102030405060708) }, [8]byte{8, 7, 6, 5, 4, 3, 2, 1}},
		{"Store64BE", func() { mmio.Store64BE(p64, 0x0102030405060708) }, [8]byte{1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		regs = [3]register{{7}, {0xeeeeeeeeeeeeeeee}, {7}}
		c.store()
		if got := *regs[1].bytes(); got != c.want {
			t.Errorf("%s stored % x, want % x", c.name, got, c.want)
		}
		if regs[0].word != 7 || regs[2].word != 7 {
			t.Errorf("%s wrote beyond the register", c.name)
		}
	}
}

func TestCopy64(t *testing.T) {
	var src [64]byte
	var dst [3][64]byte
	for i := range 8 {
		binary.LittleEndian.PutUint64(src[8*i:], 0x0101010101010101*uint64(i+1))
	}
	mmio.WCStart()
	mmio.Copy64(&dst[1], &src)
	mmio.FlushWrites()
	if dst[1] != src {
		t.Errorf("copied %x, want %x", dst[1], src)
	}
	if dst[0] != [64]byte{} || dst[2] != [64]byte{} {
		t.Error("Copy64 wrote beyond its 64 bytes")
	}
}

func BenchmarkStore64(b *testing.B) {
	reg := new(uint64)
	for b.Loop() {
		mmio.ToDevice()
		mmio.Store64(reg, 1)
	}
}

func BenchmarkCopy64(b *testing.B) {
	dst, src := new([64]byte), new([64]byte)
	for b.Loop() {
		mmio.WCStart()
		mmio.Copy64(dst, src)
		mmio.FlushWrites()
	}
}

func BenchmarkFromDevice(b *testing.B) {
	for b.Loop() {
		mmio.FromDevice()
	}
}
