//go:build device && soak

package devicetest

import (
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceSoakRounds creates, connects, uses and destroys all objects many times, and checks that
// memory, descriptors and kernel objects do not grow.
func TestDeviceSoakRounds(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("GOVERBS_SOAK_ROUNDS"))
	if err != nil {
		t.Fatalf("set GOVERBS_SOAK_ROUNDS to a number: %v", err)
	}
	warm := max(rounds/10, 1)
	for range warm {
		soakRound(t)
	}
	before := usage(t)
	for i := range rounds {
		soakRound(t)
		if (i+1)%1000 == 0 {
			t.Logf("%d rounds: %v", i+1, usage(t))
		}
	}
	after := usage(t)
	t.Logf("before %v, after %d rounds %v", before, rounds, after)
	const slack = 4 << 10 // KiB: normal fluctuation of the heap
	if after.rss > before.rss+slack {
		t.Errorf("resident memory grew from %d to %d KiB", before.rss, after.rss)
	}
	if after.fds != before.fds {
		t.Errorf("%d descriptors are open, %d before", after.fds, before.fds)
	}
	if after.objects != before.objects {
		t.Errorf("kernel objects: %s, before %s", after.objects, before.objects)
	}
}

func soakRound(t *testing.T) {
	s := &scope{TB: t}
	defer s.end()
	l := newLoop(s, nil)
	l.a.fill(byte(l.a.qp.QPN()))
	receive(s, l.b.qp, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{l.b.mr.SGE(0, 4096)}})
	post(s, l.a.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{l.a.mr.SGE(0, 4096)}})
	l.success(s, l.a, 2, uverbs.WCSend)
	l.success(s, l.b, 1, uverbs.WCRecv)
	same(s, l.b.mr.Bytes()[:4096], l.a.mr.Bytes()[:4096])
}

// A scope is a test within a test, without the record that a subtest leaves.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

type used struct {
	rss     int // KiB
	fds     int
	objects string // of the device, as counted by the kernel
}

func usage(t *testing.T) used {
	t.Helper()
	debug.FreeOSMemory()
	status := string(must(os.ReadFile("/proc/self/status"))(t))
	_, rest, _ := strings.Cut(status, "VmRSS:")
	rss := must(strconv.Atoi(strings.Fields(rest)[0]))(t)
	fds := must(os.ReadDir("/proc/self/fd"))(t)
	res := must(nldev.Resources(deviceName(t)))(t)
	var objects []string
	for _, kind := range []string{"pd", "cq", "qp", "mr", "ctx"} {
		objects = append(objects, kind+" "+strconv.FormatUint(res[kind], 10))
	}
	return used{rss, len(fds), strings.Join(objects, ", ")}
}
