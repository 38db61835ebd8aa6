package mmio_test

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/mmio"
)

func TestStores(t *testing.T) {
	var regs [3]register
	p32, p64 := regs[1].p32(), regs[1].p64()
	p8, p16 := regs[1].p8(), regs[1].p16()
	for _, c := range []struct {
		name  string
		store func()
		want  [8]byte
	}{
		{"Store8", func() { mmio.Store8(p8, 1) }, [8]byte{1, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee}},
		{"Store16", func() { mmio.Store16(p16, 0x0102) }, [8]byte{2, 1, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee}},
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

func TestLoad(t *testing.T) {
	r := register{0x8877665504030201}
	if v := mmio.Load32BE(r.p32()); v != 0x01020304 {
		t.Errorf("Load32BE: %#x", v)
	}
	if a, b, c, d := mmio.Load8(r.p8()), mmio.Load16(r.p16()), mmio.Load32(r.p32()), mmio.Load64(r.p64()); a != 1 ||
		b != 0x0201 || c != 0x04030201 || d != 0x8877665504030201 {
		t.Errorf("loads of 1 to 8 bytes: %#x, %#x, %#x, %#x", a, b, c, d)
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

// ring is a queue of blocks, a register with two halves, and the memory after
// each, which must not change.
type ring struct {
	queue  [4][64]byte
	after  [64]byte
	reg    [2][256]byte
	beyond [64]byte
	record uint32
}

func newRing() (*ring, *mmio.Doorbell) {
	r := new(ring)
	for i := range r.queue {
		for j := range r.queue[i] {
			r.queue[i][j] = byte(64*i + j)
		}
	}
	for i := range r.after {
		r.after[i] = 0xee
	}
	return r, &mmio.Doorbell{Record: &r.record, Reg: word(&r.reg[0]), Toggle: 256, Ring: &r.queue[0], End: &r.after}
}

func TestRing(t *testing.T) {
	for _, c := range []struct {
		from, blocks int
		want         []int // blocks in the register; nil: 8 bytes of the first
	}{
		{0, 0, nil}, {3, 0, nil}, {0, 1, []int{0}}, {2, 2, []int{2, 3}}, {3, 2, []int{3, 0}},
		{1, 4, []int{1, 2, 3, 0}}, {3, 4, []int{3, 0, 1, 2}},
	} {
		r, d := newRing()
		for lap := range 4 {
			r.reg = [2][256]byte{}
			mmio.Ring(d, 0x44332211+uint32(lap), &r.queue[c.from], uint64(c.blocks))
			var want [2][256]byte
			half := want[lap&1][:]
			copy(half, r.queue[c.from][:8])
			for i, b := range c.want {
				copy(half[64*i:], r.queue[b][:])
			}
			if r.reg != want {
				t.Errorf("from %d, %d blocks, lap %d: the register holds %x", c.from, c.blocks, lap, r.reg)
			}
			if got := binary.BigEndian.Uint32(bytes32(&r.record)); got != uint32(0x44332211+lap) {
				t.Errorf("the doorbell record is %#x", got)
			}
		}
		if r.beyond != [64]byte{} || d.Half != 0 {
			t.Errorf("wrote beyond the register, or Half is %d at the end", d.Half)
		}
	}
}

func TestRingOfOnePart(t *testing.T) {
	r, d := newRing()
	d.Toggle = 0
	for range 2 {
		r.reg = [2][256]byte{}
		mmio.Ring(d, 1, &r.queue[1], 0)
		if r.reg[0][0] != 64 || r.reg[1] != [256]byte{} {
			t.Errorf("the register holds %x", r.reg)
		}
	}
}

func TestOrdered(t *testing.T) {
	wide, w := uint64(0x0102030405060708), [3]uint32{7, 0x01020304, 7}
	if v := mmio.Acquire64(&wide); v != 0x0102030405060708 {
		t.Errorf("Acquire64: %#x", v)
	}
	mmio.Release32(&w[1], 0x05060708)
	if w != [3]uint32{7, 0x05060708, 7} {
		t.Errorf("Release32: %#x", w)
	}
	mmio.Publish32BE(&w[1], 0x01020304)
	if w != [3]uint32{7, 0x04030201, 7} {
		t.Errorf("Publish32BE: %#x", w)
	}
}

func BenchmarkRing(b *testing.B) {
	r, d := newRing()
	for name, n := range map[string]uint64{"word": 0, "1block": 1, "2blocks": 2} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				mmio.Ring(d, 1, &r.queue[0], n)
			}
		})
	}
}
