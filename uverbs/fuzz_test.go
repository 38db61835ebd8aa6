package uverbs

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// FuzzSGE checks that for any range MR.SGE returns an SGE inside the MR, or one that every post
// refuses.
func FuzzSGE(f *testing.F) {
	for _, off := range []int64{0, 1, 4095, 4096, 4097, -1, 1 << 31, 1<<63 - 1, -1 << 63} {
		for _, n := range []int64{0, 1, 4096, -1, 1<<31 + 1, 1<<63 - 1, -1 << 63} {
			f.Add(off, n, 4096)
		}
	}
	f.Fuzz(func(t *testing.T, off, n int64, size int) {
		m := new(MR)
		m.view.Store(&mrView{addr: 1 << 40, lkey: 5, room: int64(size)})
		s := m.SGE(int(off), int(n))
		if s.Length == badLength {
			if s.Addr != 0 || s.LKey != 0 {
				t.Errorf("a refused range names memory: %+v", s)
			}
			if off >= 0 && n >= 0 && off <= int64(size) && n <= int64(size)-off && n <= MaxMessage {
				t.Errorf("[%d:+%d] of %d is refused", off, n, size)
			}
			return
		}
		if off < 0 || n < 0 || n > MaxMessage || off > int64(size) || n > int64(size)-off {
			t.Errorf("[%d:+%d] of %d is taken: %+v", off, n, size, s)
		}
		if s.Addr != 1<<40+uint64(off) || s.Length != uint32(n) || s.LKey != 5 {
			t.Errorf("[%d:+%d] is %+v", off, n, s)
		}
	})
}

func TestSGERefused(t *testing.T) {
	var none *MR
	if s := none.SGE(0, 0); s.Length != badLength {
		t.Errorf("nil MR: %+v", s)
	}
	r := newRig(t)
	b := r.bundle(t, false)
	bad := b.mr.SGE(4000, 97)
	if s := b.mr.SGE(4000, 96); s.Length != 96 || s.Addr != b.mr.Addr()+4000 || s.LKey != b.mr.LKey() {
		t.Errorf("the last bytes: %+v", s)
	}
	check(t, b.mr.Close())
	closed := b.mr.SGE(0, 0)
	for name, s := range map[string]SGE{"outside": bad, "closed": closed} {
		if n, err := b.qp.PostSend(SendWR{Opcode: OpSend}, SendWR{Opcode: OpSend, SGL: []SGE{s}}); n != 1 || err != ErrRange {
			t.Errorf("%s: PostSend: %d, %v", name, n, err)
		}
		if n, err := b.qp.PostRecv(RecvWR{SGL: []SGE{s}}); n != 0 || err != ErrRange {
			t.Errorf("%s: PostRecv: %d, %v", name, n, err)
		}
		batch := b.qp.StartSend()
		batch.Send(1, 0)
		batch.SGE(s)
		if err := batch.Submit(); err != ErrRange {
			t.Errorf("%s: Submit: %v", name, err)
		}
	}
}

func FuzzEndpoint(f *testing.F) {
	seed := Endpoint{QPN: 0x11, PSN: 0xabcdef, LID: 7, GID: GIDFromAddr(netip.MustParseAddr("192.0.2.1")), MTU: MTU1024,
		RdAtomic: 16}
	f.Add([]byte(seed.String()))
	for _, s := range []string{"", ":::::", seed.String() + " ", seed.String() + "0", " " + seed.String(),
		strings.ToUpper(seed.String()), strings.Replace(seed.String(), ":3:", ":9:", 1),
		strings.Replace(seed.String(), ":16", ":+16", 1), "0007:1:1:" + strings.Repeat("0", 32) + ":3:1", seed.String() + ":",
		seed.String() + ":grh:ece=15b3.10000001", seed.String() + ":ece=x", seed.String() + ":ece=1.2 ",
		seed.String() + ":later=7"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		was := Endpoint{QPN: 99}
		e := was
		if err := e.UnmarshalText(text); err != nil {
			if e != was {
				t.Errorf("%q is refused and changes the value", text)
			}
			return
		}
		again, err := e.MarshalText()
		check(t, err)
		// Attributes of a later version are not written back.
		if fields := bytes.Count(text, []byte(":")) + 1; fields == endpointFields && !bytes.EqualFold(again, text) {
			t.Errorf("%q is read, and written as %q", text, again)
		}
		var back Endpoint
		if err := back.UnmarshalText(again); err != nil || back != e {
			t.Errorf("%q is read as %+v, and again as %+v, %v", text, e, back, err)
		}
		if e.MTU.Bytes() == 0 || e.QPN > 0xffffff || e.PSN > 0xffffff {
			t.Errorf("%q is %+v", text, e)
		}
	})
}

func FuzzGID(f *testing.F) {
	f.Add([]byte("fe80000000000000020304fffe050607"))
	f.Add([]byte("fe80000000000000020304fffe0506070"))
	f.Add([]byte("fe80000000000000020304fffe05060x"))
	f.Add([]byte("fe80::1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		was := GID{1}
		g := was
		if err := g.UnmarshalText(text); err != nil {
			if g != was {
				t.Errorf("%q is refused and changes the value", text)
			}
			return
		}
		again, err := g.MarshalText()
		check(t, err)
		if !bytes.EqualFold(again, text) {
			t.Errorf("%q is read, and written as %q", text, again)
		}
		if back := GIDFromAddr(g.Addr()); back != g {
			t.Errorf("%v by way of its address is %v", g, back)
		}
	})
}

func FuzzEndpointRoundTrip(f *testing.F) {
	f.Add(uint32(1), uint32(2), uint16(3), []byte("0123456789abcdef"), uint8(3), uint8(255), true, uint32(0x15b3),
		uint32(7))
	f.Fuzz(func(t *testing.T, qpn, psn uint32, lid uint16, gid []byte, mtu, rd uint8, grh bool, vendor, options uint32) {
		e := Endpoint{QPN: qpn & 0xffffff, PSN: psn & 0xffffff, LID: lid, MTU: MTU(mtu%5 + 1), RdAtomic: rd, GRHRequired: grh}
		if options != 0 {
			e.ECE = ECE{VendorID: vendor, Options: options}
		}
		copy(e.GID[:], gid)
		var back Endpoint
		if err := back.UnmarshalText([]byte(e.String())); err != nil || back != e {
			t.Errorf("%+v comes back as %+v, %v", e, back, err)
		}
	})
}

// FuzzEvents checks that records are decoded according to the kernel's structs, and that records of
// any other size are refused.
func FuzzEvents(f *testing.F) {
	for n := range 20 {
		f.Add(bytes.Repeat([]byte{byte(n + 1)}, n))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		id, ok := parseCompEvent(b)
		if ok != (len(b) == 8) {
			t.Errorf("%d bytes as a completion event: %v", len(b), ok)
		}
		e, async := parseAsyncEvent(b)
		if async != (len(b) == 16) {
			t.Errorf("%d bytes as an asynchronous event: %v", len(b), async)
		}
		if ok && id != ioctl.SliceOf[uapi.IbUverbsCompEventDesc](aligned(b))[0].CqHandle {
			t.Errorf("%x names queue %#x", b, id)
		}
		if async {
			want := ioctl.SliceOf[uapi.IbUverbsAsyncEventDesc](aligned(b))[0]
			if e.element != want.Element || uint32(e.typ) != want.EventType {
				t.Errorf("%x: element %#x, type %d; want %+v", b, e.element, e.typ, want)
			}
		}
	})
}

// aligned copies b to memory with the alignment of a kernel struct.
func aligned(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(make([]byte, 0, 64), 0)[:0], b...)
}
