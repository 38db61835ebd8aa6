package uverbs

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/race"
)

// TestAlloc checks that Alloc returns zeroed memory on separate pages, aligned to a huge page if it
// is large enough, and that the memory is not accessible after Close.
func TestAlloc(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	for _, n := range []int{1, 4095, 4096, 4097, hugePage - 1, hugePage, hugePage + 1, 5 * hugePage} {
		m := good(pd.Alloc(n, LocalWrite))(t)
		b := m.Bytes()
		align := uint64(4096)
		if n >= hugePage {
			align = hugePage
		}
		if len(b) != n || cap(b) != n || m.Len() != n || m.Addr()%align != 0 {
			t.Errorf("Alloc(%d): %d bytes, capacity %d, at %#x", n, len(b), cap(b), m.Addr())
		}
		if bytes.Count(b, []byte{0}) != n {
			t.Errorf("Alloc(%d) is not zero", n)
		}
		for i := range b {
			b[i] = 0xff
		}
		check(t, m.Close())
		for _, at := range []uint64{m.Addr(), m.Addr() + uint64(n) - 1} {
			if p := protection(t, at); p != closedMemory {
				t.Errorf("Alloc(%d): %#x is %q after Close", n, at, p)
			}
		}
		runtime.KeepAlive(m)
	}
}

// TestAllocGivenBack checks that the memory of a closed MR is unmapped when the MR is unreachable,
// and the memory of a dropped MR when its Context is closed as well.
func TestAllocGivenBack(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, the memory is on the Go heap")
	}
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	make1 := func(close bool) uint64 {
		m := good(pd.Alloc(8<<20, LocalWrite))(t)
		if close {
			check(t, m.Close())
		}
		return m.Addr()
	}
	dropped, closed := make1(false), make1(true) // in the other order the second could reuse the first one's address
	gone := func(addr uint64) func() bool {
		return func() bool {
			runtime.GC()
			return protection(t, addr) == ""
		}
	}
	until(gone(closed))
	if p := protection(t, dropped); p != "rw-p" {
		t.Errorf("the memory of a dropped MR is %q while the device may use it", p)
	}
	check(t, r.c.Close())
	until(gone(dropped))
}

// TestAllocRefused checks that memory is unmapped if the kernel refuses to register it.
func TestAllocRefused(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, the memory is on the Go heap")
	}
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	var addr uint64
	m := good(pd.Alloc(64<<20, 0))(t)
	addr = m.Addr()
	check(t, m.Close())
	m = nil
	until(func() bool { runtime.GC(); return protection(t, addr) == "" })
	r.k.Memlock = 1
	before := len(mapsLines(t))
	for range 100 {
		if _, err := pd.Alloc(64<<20, 0); err == nil {
			t.Fatal("registered over the limit")
		}
	}
	if after := len(mapsLines(t)); after > before+50 {
		t.Errorf("%d mappings before, %d after 100 refusals", before, after)
	}
}

// TestDroppedIsReported checks that with GOVERBS_LEAKS=1 an MR that is dropped without Close is
// reported, with the stack that created it.
func TestDroppedIsReported(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestDroppedMemoryStays$")
	cmd.Env = append(os.Environ(), "GOVERBS_LEAKS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, want := range []string{"uverbs: MR of 65536 bytes dropped without Close", "fake0 MR, created at",
		"uverbs.TestDroppedMemoryStays"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
}
