package uverbs

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/verbs"
)

// reused allocates n bytes with verbs.AllocReused.
func reused(t *testing.T, pd *PD, n int) *MR {
	t.Helper()
	return good(verbs.AllocReused(pd, n, uint32(LocalWrite)))(t).(*MR)
}

// spareOf returns how much memory of the size for n bytes is available.
func spareOf(n int) int {
	spares.Lock()
	defer spares.Unlock()
	return len(spares.bySize[reusedSize(n)])
}

// TestReused checks that memory is used again after Close and FreeReused, in any order, and that it keeps its contents
// before.
func TestReused(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, the memory is on the Go heap")
	}
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	for i, n := range []int{1, 5000, 300_001, 3<<20 + 1} {
		m := reused(t, pd, n)
		b := m.Bytes()
		if len(b) != n || cap(b) != n || m.Len() != n {
			t.Errorf("%d bytes, capacity %d, Len %d, want %d", len(b), cap(b), m.Len(), n)
		}
		copy(b, bytes.Repeat([]byte{7}, n))
		before := spareOf(n)
		steps := []func(){func() { check(t, m.Close()) }, func() { verbs.FreeReused(m) }}
		steps[i%2]()
		if spareOf(n) != before {
			t.Fatalf("%d bytes: available after one of two steps", n)
		}
		other := reused(t, pd, n)
		if &other.Bytes()[0] == &b[0] || bytes.Count(b, []byte{7}) != n {
			t.Errorf("%d bytes: used again after one of two steps", n)
		}
		steps[1-i%2]()
		for range 2 {
			steps[0]()
			steps[1]()
		}
		again := reused(t, pd, n)
		if &again.Bytes()[0] != &b[0] {
			t.Errorf("%d bytes: not used again", n)
		}
		again.Bytes()[0] = 8
		if b[0] != 8 {
			t.Error("a stale slice is not of the memory")
		}
		check(t, other.Close())
		check(t, again.Close())
	}
	_, err := verbs.AllocReused(pd, 0, 0)
	if err == nil {
		t.Error("nothing was allocated")
	}
}

// TestReusedKept checks that memory is not used again if the kernel may still have its MR, and that it is if the kernel
// refuses to register it.
func TestReusedKept(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, the memory is on the Go heap")
	}
	const n = 1_234_567
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	r.k.Memlock = 1
	before := spareOf(n)
	for range 3 {
		if _, err := verbs.AllocReused(pd, n, 0); err == nil {
			t.Fatal("registered over the limit")
		}
	}
	r.k.Memlock = 0
	if got := spareOf(n); got != max(before, 1) {
		t.Errorf("%d are available, before %d", got, before)
	}
	other := bareRig()
	c := good(other.open(t))(t)
	m := reused(t, good(c.AllocPD())(t), n)
	c.exported.Store(true) // another process may have the kernel's context
	other.k.Refuse = map[string]unix.Errno{"MR.DESTROY": unix.EIO}
	errtest.Is(t, c.Close(), unix.EIO)
	before = spareOf(n)
	verbs.FreeReused(m)
	if spareOf(n) != before {
		t.Error("memory that a device may access is available")
	}
	other.k.Unplug() // the descriptor is closed
	other.k.Close(t)
}

// residentAnon returns how many bytes of private memory the process has.
func residentAnon(t *testing.T) int {
	t.Helper()
	for line := range strings.Lines(string(good(os.ReadFile("/proc/self/status"))(t))) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			return good(strconv.Atoi(f[1]))(t) << 10
		}
	}
	t.Fatal("no RssAnon")
	return 0
}

// TestReusedReturnsPages checks that the kernel gets the pages of memory that is not used, except some, and that stale
// slices can be read then.
func TestReusedReturnsPages(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, the memory is on the Go heap")
	}
	const piece, pieces = 2 << 20, 64
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	var all []*MR
	for range pieces {
		m := reused(t, pd, piece)
		for i := range m.Bytes() {
			m.Bytes()[i] = 1
		}
		all = append(all, m)
	}
	before := residentAnon(t)
	for _, m := range all {
		check(t, m.Close())
		verbs.FreeReused(m)
	}
	if less := before - residentAnon(t); less < piece*pieces-mostResident-piece {
		t.Errorf("%d bytes are resident less, of %d", less, piece*pieces)
	}
	for _, m := range all {
		if b := m.Bytes(); b[0] > 1 || b[piece-1] > 1 {
			t.Error("other data")
		}
	}
}
