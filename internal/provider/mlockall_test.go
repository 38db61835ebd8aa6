package provider_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/provider"
)

const lockedChild = "GOVERBS_TEST_MLOCKALL"

// In a process whose memory is locked, retired mappings use no resident or locked
// memory, even while they are reachable.
func TestRetireUnderMlockall(t *testing.T) {
	if os.Getenv(lockedChild) == "" {
		again := exec.CommandContext(t.Context(), "/proc/self/exe",
			"-test.run=^TestRetireUnderMlockall$", "-test.v", "-test.timeout=5m")
		again.Env = append(os.Environ(), lockedChild+"=1")
		out, err := again.CombinedOutput()
		if err != nil {
			t.Errorf("with locked memory: %v\n%s", err, out)
		}
		if strings.Contains(string(out), "--- SKIP") {
			t.Skip("the process may not lock its memory: it needs CAP_IPC_LOCK, or a higher RLIMIT_MEMLOCK")
		}
		return
	}
	trial, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mlock(trial); err != nil {
		t.Skip(err) // the Go runtime would crash at the limit
	}
	if err := unix.Munmap(trial); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mlockall(unix.MCL_FUTURE); err != nil {
		t.Fatal(err)
	}
	// The Go runtime may reserve another 64 MiB for its heap meanwhile, which is locked
	// too: the mappings are many times that.
	const mappings = 4000
	dev, _ := fileDevice(t)
	held := make([]*provider.Mapping, 0, mappings)
	resident, locked := memory(t, "VmRSS"), memory(t, "VmLck")
	for range mappings {
		m, err := provider.Map(dev, 0, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Retire(); err != nil {
			t.Fatal(err)
		}
		m.Bytes()[0] = 1 // as a goroutine that has not noticed Retire would
		held = append(held, m)
	}
	const total = mappings * size >> 10
	if r, l := memory(t, "VmRSS")-resident, memory(t, "VmLck")-locked; r > total/2 || l > total/2 {
		t.Errorf("%d KiB more are resident and %d KiB locked, after %d KiB of mappings were retired", r, l, total)
	}
	runtime.KeepAlive(held)
}

// memory returns a field of /proc/self/status, in KiB.
func memory(t *testing.T, key string) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no line ", key)
	return 0
}
