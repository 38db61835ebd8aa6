package pci_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/pci"
)

var le = binary.LittleEndian

var id = pci.ID{Vendor: 0x15b3, Device: 0x1017, SubsystemVendor: 0x15b3, Subsystem: 0x0020, Class: 0x020700,
	Revision: 3}

// full returns a device with all capabilities.
func full(t *testing.T) *pci.Space {
	t.Helper()
	s := pci.New(id)
	for _, err := range []error{
		s.AddBAR(0, pci.BAR{Size: 32 << 20, Wide: true, Prefetchable: true}),
		s.AddBAR(2, pci.BAR{Size: 4096}),
		s.AddExpress(pci.Link{Speed: pci.Speed16GT, Width: 8}),
		s.AddMSIX(pci.MSIX{Vectors: 16, TableBAR: 0, TableOffset: 0x2000, PendingBAR: 2, PendingOffset: 0x800}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func read(s *pci.Space, at uint64, n int) []byte {
	b := make([]byte, n)
	s.Read(at, b)
	return b
}

func read16(s *pci.Space, at uint64) uint16 { return le.Uint16(read(s, at, 2)) }
func read32(s *pci.Space, at uint64) uint32 { return le.Uint32(read(s, at, 4)) }

func write32(s *pci.Space, at uint64, v uint32) { s.Write(at, le.AppendUint32(nil, v)) }

// find returns the offset of a capability in the chain.
func find(t *testing.T, s *pci.Space, id byte) uint64 {
	t.Helper()
	seen := 0
	for at := uint64(read(s, 0x34, 1)[0]); at != 0; at = uint64(read(s, at+1, 1)[0]) {
		if at < 0x40 || at%4 != 0 || seen > 48 {
			t.Fatalf("a capability at %#x", at)
		}
		seen++
		if read(s, at, 1)[0] == id {
			return at
		}
	}
	t.Fatalf("no capability %#x", id)
	return 0
}

// TestHeader checks the bytes of a new space against the offsets of pci_regs.h.
func TestHeader(t *testing.T) {
	want := make([]byte, 64)
	copy(want, []byte{0xb3, 0x15, 0x17, 0x10, 0, 0, 0, 0, 3, 0x00, 0x07, 0x02})
	copy(want[0x2c:], []byte{0xb3, 0x15, 0x20, 0x00})
	s := pci.New(id)
	if got := read(s, 0, 64); !bytes.Equal(got, want) {
		t.Errorf("header % x, want % x", got, want)
	}
	if rest := read(s, 64, pci.Size-64); !bytes.Equal(rest, make([]byte, len(rest))) {
		t.Error("bytes after the header are not zero")
	}
	s = full(t)
	if status := read16(s, 0x06); status != 0x10 {
		t.Errorf("status %#x: no capabilities", status)
	}
	if bars := []uint32{read32(s, 0x10), read32(s, 0x14), read32(s, 0x18), read32(s, 0x1c)}; bars[0] != 0xc ||
		bars[1] != 0 || bars[2] != 0 {
		t.Errorf("BARs %#x", bars)
	}
}

// TestSizing checks that a guest finds the size of a BAR by writing ones, and
// can restore its address.
func TestSizing(t *testing.T) {
	s := full(t)
	for _, at := range []uint64{0x10, 0x14, 0x18, 0x1c, 0x20, 0x24, 0x30} {
		write32(s, at, 0xffffffff)
	}
	for at, want := range map[uint64]uint32{0x10: 0xfe00000c, 0x14: 0xffffffff, 0x18: 0xfffff000, 0x1c: 0, 0x20: 0,
		0x24: 0, 0x30: 0} {
		if got := read32(s, at); got != want {
			t.Errorf("ones at %#x read as %#x, want %#x", at, got, want)
		}
	}
	write32(s, 0x10, 0x12345678)
	write32(s, 0x14, 0xff)
	if low, high := read32(s, 0x10), read32(s, 0x14); low != 0x1200000c || high != 0xff {
		t.Errorf("BAR0 is at %#x %#x", high, low)
	}
}

// TestWritable checks that stores of all sizes change only writable bits, and
// that a reset undoes them.
func TestWritable(t *testing.T) {
	s := full(t)
	before := read(s, 0, pci.Size)
	for at := range uint64(pci.Size) {
		s.Write(at, []byte{0xff})
	}
	ones := read(s, 0, pci.Size)
	express, msix := find(t, s, 0x10), find(t, s, 0x11)
	may := map[uint64]byte{
		0x04: 0x46, 0x05: 0x05, 0x0c: 0xff, 0x3c: 0xff, // command, cache line, interrupt line
		express + 0x08: 0xff, express + 0x09: 0x7f, // device control, without reset
		express + 0x10: 0x43, express + 0x28: 0x1f, express + 0x30: 0x0f,
		msix + 3: 0xc0, // enable, mask
	}
	for at := range ones {
		if at >= 0x10 && at < 0x28 {
			continue // BARs: TestSizing
		}
		if changed := (before[at] ^ ones[at]) &^ may[uint64(at)]; changed != 0 {
			t.Errorf("the bits %#x at %#x can be written", changed, at)
		}
		if ones[at]&may[uint64(at)] != may[uint64(at)] {
			t.Errorf("of the bits %#x at %#x, only %#x can be written", may[uint64(at)], at, ones[at])
		}
	}
	if s.Command() != 0x0546 {
		t.Errorf("command %#x", s.Command())
	}
	s.Reset()
	if after := read(s, 0, pci.Size); !bytes.Equal(after, before) {
		t.Error("a reset does not undo stores")
	}
	s.Write(4, []byte{0x06, 0x04}) // two bytes
	if s.Command() != pci.CommandMemory|pci.CommandMaster|pci.CommandNoINTx {
		t.Errorf("command %#x", s.Command())
	}
	write32(s, 4, 0xffff0000) // four, of the command and the status
	if s.Command() != 0 || read16(s, 6) != 0x10 {
		t.Errorf("command %#x, status %#x", s.Command(), read16(s, 6))
	}
}

// TestBounds checks accesses across and beyond the end.
func TestBounds(t *testing.T) {
	s := full(t)
	for _, at := range []uint64{pci.Size - 1, pci.Size, 1<<64 - 1, 1 << 63} {
		s.Write(at, []byte{0xff, 0xff, 0xff, 0xff})
		b := read(s, at, 4)
		want := []byte{0xff, 0xff, 0xff, 0xff}
		if at == pci.Size-1 {
			want[0] = 0
		}
		if !bytes.Equal(b, want) {
			t.Errorf("at %#x: % x", at, b)
		}
	}
	if read16(s, 0) != 0x15b3 {
		t.Error("a store beyond the end wrapped around")
	}
}

func TestExpress(t *testing.T) {
	s := full(t)
	at := find(t, s, 0x10)
	for off, want := range map[uint64]uint16{
		0x02: 0x0002, // version 2 of an endpoint
		0x08: 0x2810, // device control: relaxed ordering, no snoop, 512-byte reads
		0x12: 0x0084, // link status: x8, 16 GT/s
		0x30: 0x0004, // target speed
	} {
		if got := read16(s, at+off); got != want {
			t.Errorf("%#x: %#x, want %#x", off, got, want)
		}
	}
	if got := read32(s, at+0x0c); got&0x3ff != 0x084 {
		t.Errorf("link capabilities %#x", got)
	}
	if got := read32(s, at+0x2c); got != 0x1e {
		t.Errorf("speeds %#x, want those up to 16 GT/s", got)
	}
	if got := read32(s, at+0x04); got&(1<<28) != 0 {
		t.Errorf("device capabilities %#x: function-level reset is claimed", got)
	}
}

func TestMSIX(t *testing.T) {
	s := full(t)
	at := find(t, s, 0x11)
	if n, table, pending := read16(s, at+2), read32(s, at+4), read32(s, at+8); n != 15 || table != 0x2000 ||
		pending != 0x802 {
		t.Errorf("%d, table %#x, pending bits %#x", n, table, pending)
	}
}

// TestRefused checks the errors of invalid configurations.
func TestRefused(t *testing.T) {
	for name, x := range map[string]struct {
		do   func(s *pci.Space) error
		want string
	}{
		"BAR6":            {func(s *pci.Space) error { return s.AddBAR(6, pci.BAR{Size: 16}) }, "not free"},
		"BAR-1":           {func(s *pci.Space) error { return s.AddBAR(-1, pci.BAR{Size: 16}) }, "not free"},
		"wide BAR5":       {func(s *pci.Space) error { return s.AddBAR(5, pci.BAR{Size: 16, Wide: true}) }, "not free"},
		"BAR0 twice":      {func(s *pci.Space) error { return s.AddBAR(0, pci.BAR{Size: 16}) }, "not free"},
		"half of BAR0":    {func(s *pci.Space) error { return s.AddBAR(1, pci.BAR{Size: 16}) }, "not free"},
		"3000 bytes":      {func(s *pci.Space) error { return s.AddBAR(3, pci.BAR{Size: 3000}) }, "power of two"},
		"8 bytes":         {func(s *pci.Space) error { return s.AddBAR(3, pci.BAR{Size: 8}) }, "power of two"},
		"none":            {func(s *pci.Space) error { return s.AddBAR(3, pci.BAR{}) }, "power of two"},
		"4 GiB, narrow":   {func(s *pci.Space) error { return s.AddBAR(3, pci.BAR{Size: 1 << 32}) }, "2 GiB"},
		"no vectors":      {func(s *pci.Space) error { return s.AddMSIX(pci.MSIX{}) }, "0 vectors"},
		"2049 vectors":    {func(s *pci.Space) error { return s.AddMSIX(pci.MSIX{Vectors: 2049}) }, "2049 vectors"},
		"table nowhere":   {func(s *pci.Space) error { return s.AddMSIX(pci.MSIX{Vectors: 1, TableBAR: 4}) }, "BAR4"},
		"pending nowhere": {func(s *pci.Space) error { return s.AddMSIX(pci.MSIX{Vectors: 1, PendingBAR: 7}) }, "BAR7"},
		"odd table":       {func(s *pci.Space) error { return s.AddMSIX(pci.MSIX{Vectors: 1, TableOffset: 4}) }, "0x4"},
		"no lanes":        {func(s *pci.Space) error { return s.AddExpress(pci.Link{Speed: 1}) }, "0 lanes"},
		"no speed":        {func(s *pci.Space) error { return s.AddExpress(pci.Link{Width: 1}) }, "speed 0"},
		"too large": {func(s *pci.Space) error {
			_, err := s.Capability(9, make([]byte, 200), nil)
			return err
		}, "no room"},
		"short mask": {func(s *pci.Space) error {
			_, err := s.Capability(9, make([]byte, 4), make([]byte, 3))
			return err
		}, "mask 3"},
	} {
		s := full(t)
		before := read(s, 0, pci.Size)
		if err := x.do(s); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
		if !bytes.Equal(before, read(s, 0, pci.Size)) {
			t.Errorf("%s: refused, but partly done", name)
		}
	}
}

// TestOwnCapability checks that a custom capability is in the chain, and that
// its mask applies.
func TestOwnCapability(t *testing.T) {
	s := full(t)
	at, err := s.Capability(0x09, []byte{4, 0xaa}, []byte{0, 0x0f})
	if err != nil || uint64(at) != find(t, s, 0x09) {
		t.Fatalf("at %#x, %v", at, err)
	}
	s.Write(uint64(at), []byte{0, 0, 0, 0x55})
	if got := read(s, uint64(at), 4); !bytes.Equal(got, []byte{9, 0, 4, 0xa5}) {
		t.Errorf("% x", got)
	}
	s.Reset()
	if got := read(s, uint64(at), 4); !bytes.Equal(got, []byte{9, 0, 4, 0xaa}) {
		t.Errorf("after a reset % x", got)
	}
}
