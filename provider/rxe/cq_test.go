package rxe

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// newTestCQ returns a CQ for n entries and the kernel's end of it.
func newTestCQ(t testing.TB, n int) (*kernelRing, *cq) {
	t.Helper()
	k, m := newKernelRing(t, n, 64, true)
	r, err := newRing("completion queue", m, cqeSize)
	if err != nil {
		t.Fatal(err)
	}
	return k, newCQ(nil, r)
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields []field
		want   uverbs.WC
	}{
		{"SEND", []field{{0, 8, 0x1122334455667788}, {20, 4, 64}, {28, 4, 17}},
			uverbs.WC{WRID: 0x1122334455667788, ByteLen: 64, QPNum: 17}},
		{"receive with immediate", []field{{0, 8, 1}, {12, 4, 128}, {20, 4, 64}, {24, 4, 0x04030201}, {28, 4, 17},
			{32, 4, 18}, {36, 4, 1 | 2 | 8}, {40, 2, 3}, {42, 2, 4}, {44, 1, 5}, {45, 1, 6}, {46, 1, 1}},
			uverbs.WC{WRID: 1, Opcode: uverbs.WCRecv, ByteLen: 64, Imm: 0x01020304, QPNum: 17, SrcQP: 18,
				Flags: uverbs.WCGRH | uverbs.WCWithImm, PKeyIndex: 3, SLID: 4, SL: 5, PathBits: 6}},
		{"invalidated key", []field{{12, 4, 128}, {24, 4, 0x01020304}, {36, 4, 1 | 4}},
			uverbs.WC{Opcode: uverbs.WCRecv, Imm: 0x01020304, Flags: uverbs.WCGRH | uverbs.WCWithInv}},
		{"error", []field{{0, 8, 2}, {8, 4, 10}, {12, 4, 4}, {16, 4, 0x99}, {20, 4, 1}, {24, 4, 1}, {28, 4, 17}, {36, 4, 3}},
			uverbs.WC{WRID: 2, Status: uverbs.WCRemAccessErr, VendorErr: 0x99, QPNum: 17}},
		{"status that nobody knows", []field{{8, 4, 256}}, uverbs.WC{Status: uverbs.WCGeneralErr}},
	} {
		k, q := newTestCQ(t, 3)
		fill(k.element(0), c.fields)
		k.advance()
		wc := []uverbs.WC{{WRID: ^uint64(0), Timestamp: 1, Imm: 1, PathBits: 1}}
		if n, err := q.Poll(wc); n != 1 || err != nil {
			t.Fatalf("%s: Poll: %d, %v", c.name, n, err)
		}
		if d := cmp.Diff(c.want, wc[0]); d != "" {
			t.Errorf("%s: -want +got\n%s", c.name, d)
		}
	}
}

func TestPollPublishes(t *testing.T) {
	k, q := newTestCQ(t, 7)
	id := uint64(0)
	next := uint64(0)
	for lap := range 30 {
		for range lap % 8 {
			le.PutUint64(k.element(k.own)[0:], id)
			k.advance()
			id++
		}
		if got := q.Ready(); got != (lap%8 > 0) {
			t.Fatalf("lap %d: Ready is %v", lap, got)
		}
		for {
			wcs := make([]uverbs.WC, 3)
			n, err := q.Poll(wcs)
			if err != nil {
				t.Fatal(err)
			}
			for _, wc := range wcs[:n] {
				if wc.WRID != next {
					t.Fatalf("lap %d: completion %d, want %d", lap, wc.WRID, next)
				}
				next++
			}
			if k.count() != int(id-next) {
				t.Fatalf("lap %d: %d entries in the ring, want %d", lap, k.count(), id-next)
			}
			if n < len(wcs) {
				break
			}
		}
	}
	if n, err := q.Poll(nil); n != 0 || err != nil {
		t.Errorf("Poll(nil): %d, %v", n, err)
	}
}

func TestPollBadIndex(t *testing.T) {
	k, q := newTestCQ(t, 7)
	index(k.b, 128).Store(8)
	if !q.Ready() {
		t.Error("not Ready, though Poll has an error to tell")
	}
	if n, err := q.Poll(make([]uverbs.WC, 1)); n != 0 || !errors.Is(err, uverbs.ErrABI) {
		t.Errorf("Poll: %d, %v", n, err)
	}
}

func TestPollAfterRetire(t *testing.T) {
	k, q := newTestCQ(t, 7)
	for range 3 {
		k.advance()
	}
	wcs := make([]uverbs.WC, 2)
	if n, err := q.Poll(wcs); n != 2 || err != nil {
		t.Fatalf("Poll: %d, %v", n, err)
	}
	if err := q.Retire(true); err != nil {
		t.Fatal(err)
	}
	if q.Ready() {
		t.Error("Ready after Retire")
	}
	for range 3 {
		if n, err := q.Poll(wcs); n != 0 || err != nil && !errors.Is(err, uverbs.ErrClosed) {
			t.Errorf("Poll after Retire: %d, %v", n, err)
		}
	}
}

// TestRetireUnderPoll checks that a goroutine that polls during Close never sees an invalid completion.
func TestRetireUnderPoll(t *testing.T) {
	for range 100 {
		k, q := newTestCQ(t, 1023)
		for i := range 1000 {
			e := k.element(uint32(i))
			le.PutUint64(e[0:], uint64(i)+1)
			le.PutUint32(e[28:], qpn)
			k.advance()
		}
		var started, done sync.WaitGroup
		started.Add(1)
		done.Go(func() {
			wcs := make([]uverbs.WC, 4)
			next := uint64(1)
			for first := true; ; first = false {
				n, err := q.Poll(wcs)
				if first {
					started.Done()
				}
				for _, wc := range wcs[:n] {
					if wc.WRID != next || wc.QPNum != qpn {
						t.Errorf("completion %+v, want %d", wc, next)
						return
					}
					next++
				}
				if err != nil || n == 0 {
					return
				}
			}
		})
		started.Wait()
		if err := q.Retire(true); err != nil {
			t.Fatal(err)
		}
		done.Wait()
	}
}

// resizer does what the kernel does for RESIZE_CQ: it copies the unpolled entries
// to a new ring. The memory of the ring is a file that the context can map.
type resizer struct {
	t    *testing.T
	fd   int
	size int
}

func newResizer(t *testing.T) (*resizer, *deviceContext) {
	t.Helper()
	fd, err := unix.MemfdCreate("rings", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	dev := ioctl.New(fd, "memfd", 0)
	t.Cleanup(func() { dev.Close() })
	return &resizer{t: t, fd: fd}, &deviceContext{dev: dev}
}

// ring creates a completion queue for n entries in the file and offers it.
func (z *resizer) ring(n int) (*kernelRing, uapi.Mminfo) {
	z.t.Helper()
	return z.offer(n, 64, true)
}

// offer creates a queue for n elements of size bytes in the file and offers it.
func (z *resizer) offer(n, size int, producer bool) (*kernelRing, uapi.Mminfo) {
	z.t.Helper()
	k, m := newKernelRing(z.t, n, size, producer)
	length := (len(m.Bytes()) + 4095) &^ 4095
	mi := uapi.Mminfo{Offset: uint64(z.size), Size: uint32(length)}
	z.size += length
	if err := unix.Ftruncate(z.fd, int64(z.size)); err != nil {
		z.t.Fatal(err)
	}
	shared, err := unix.Mmap(z.fd, int64(mi.Offset), length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		z.t.Fatal(err)
	}
	z.t.Cleanup(func() { unix.Munmap(shared) })
	copy(shared, m.Bytes()[:384])
	k.b = shared
	return k, mi
}

// command returns the RESIZE_CQ command that replaces old by next. The offer of
// next is mi.
func (z *resizer) command(old, next *kernelRing, mi uapi.Mminfo) driver.ResizeCommand {
	return func(_ int, in, out []byte) (driver.Reply, error) {
		if len(in) != 0 || len(out) != 16 {
			z.t.Errorf("vendor part of %d and %d bytes, want 0 and 16", len(in), len(out))
		}
		for i := old.users().Load(); i != old.own; i = (i + 1) & old.mask {
			copy(next.element(next.own), old.element(i))
			next.advance()
		}
		copy(out, ioctl.BytesOf(&mi))
		return driver.Reply{Entries: int(next.mask)}, nil
	}
}

func TestResize(t *testing.T) {
	z, ctx := newResizer(t)
	k, mi := z.ring(7)
	r, err := ctx.mapRing(new(provider.Mapping), "completion queue", mi, cqeSize)
	if err != nil {
		t.Fatal(err)
	}
	q := newCQ(ctx, r)
	id, next := uint64(0), uint64(0)
	complete := func(n int) {
		for range n {
			le.PutUint64(k.element(k.own)[0:], id)
			k.advance()
			id++
		}
	}
	take := func(n int) {
		t.Helper()
		wcs := make([]uverbs.WC, n)
		if got, err := q.Poll(wcs); got != n || err != nil {
			t.Fatalf("Poll: %d, %v, want %d", got, err, n)
		}
		for _, wc := range wcs {
			if wc.WRID != next {
				t.Fatalf("completion %d, want %d", wc.WRID, next)
			}
			next++
		}
	}
	complete(5)
	take(4)
	for _, size := range []int{31, 7, 15, 1023} {
		complete(6)
		take(3) // the CQ has seen all entries but returned only some; the ring has wrapped
		grown, mi := z.ring(size)
		before := q.ring
		reply, err := q.Resize(size, z.command(k, grown, mi))
		if err != nil || reply.Entries != size {
			t.Fatalf("Resize: %+v, %v", reply, err)
		}
		k = grown
		if before.prod.Load() != 0 || load32(before.mem.Bytes(), offMask) != 0 {
			t.Error("the old ring is still mapped")
		}
		complete(2)
		take(int(id - next - 1))
	}
	take(1)
	if q.Ready() {
		t.Error("completions left over")
	}
	if err := q.Retire(true); err != nil {
		t.Fatal(err)
	}
}

func TestResizeThatCannotBeMapped(t *testing.T) {
	z, ctx := newResizer(t)
	k, mi := z.ring(7)
	r, err := ctx.mapRing(new(provider.Mapping), "completion queue", mi, cqeSize)
	if err != nil {
		t.Fatal(err)
	}
	q := newCQ(ctx, r)
	for range 3 {
		k.advance()
	}
	refused := func(int, []byte, []byte) (driver.Reply, error) { return driver.Reply{}, unix.EINVAL }
	if _, err := q.Resize(1, refused); !errors.Is(err, unix.EINVAL) || !q.Ready() {
		t.Fatalf("refused Resize: %v, Ready %v", err, q.Ready())
	}

	lost, mi := z.ring(15)
	mi.Offset++
	if _, err := q.Resize(15, z.command(k, lost, mi)); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("Resize: %v, want mmap's EINVAL", err)
	}
	wcs := make([]uverbs.WC, 8)
	if n, err := q.Poll(wcs); n != 0 || !errors.Is(err, unix.EINVAL) || !q.Ready() {
		t.Errorf("Poll of the lost ring: %d, %v; Ready %v", n, err, q.Ready())
	}
	found, mi := z.ring(31)
	if _, err := q.Resize(31, z.command(lost, found, mi)); err != nil {
		t.Fatal(err)
	}
	if n, err := q.Poll(wcs); n != 3 || err != nil {
		t.Errorf("Poll after another Resize: %d, %v, want the 3 entries", n, err)
	}
	q.Retire(true)
}

func TestRingHeader(t *testing.T) {
	for _, c := range []struct {
		name        string
		bytes       int
		shift, mask uint32
		ok          bool
	}{
		{"one slot", 384 + 64, 6, 0, true},
		{"eight slots", 384 + 512, 6, 7, true},
		{"eight slots and a page's rest", 4096, 6, 7, true},
		{"no room for the header", 383, 6, 0, false},
		{"slots do not fit", 384 + 511, 6, 7, false},
		{"element too small", 4096, 5, 7, false},
		{"element size absurd", 4096, 32, 0, false},
		{"element size overflows", 4096, 64, 0, false},
		{"mask no power of two less one", 4096, 6, 6, false},
		{"all of the mask", 4096, 6, ^uint32(0), false},
	} {
		m, err := provider.Anon(c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		le.PutUint32(m.Bytes()[0:], c.shift)
		le.PutUint32(m.Bytes()[4:], c.mask)
		if _, err := newRing("test", m, cqeSize); (err == nil) != c.ok || err != nil && !errors.Is(err, uverbs.ErrABI) {
			t.Errorf("%s: %v", c.name, err)
		}
		m.Retire()
	}
}
