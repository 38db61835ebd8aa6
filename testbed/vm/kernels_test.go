//go:build vm

package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/internal/tsc"
)

// clean checks that the kernel has logged no bugs.
func clean(t *testing.T, g *Guest) {
	t.Helper()
	if log, err := g.Dmesg(t.Context()); err != nil || !strings.Contains(log, "Linux version") {
		t.Errorf("not a kernel log: %v\n%s", err, log)
	}
	if bad, err := g.Complaints(t.Context()); err != nil || len(bad) > 0 {
		t.Errorf("the kernel complained: %v %q", err, bad)
	}
}

// TestClock checks that the kernel accepts the given frequency of its TSC, and
// that the guest's clock is as fast as the host's.
func TestClock(t *testing.T) {
	g := Start(t, Config{Kernel: "6.12", CPUs: 1})
	log, err := g.Dmesg(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("tsc: Detected %d.%03d MHz", tsc.KHz()/1000, tsc.KHz()%1000)
	if !strings.Contains(log, want) && runtime.GOARCH == "amd64" {
		t.Errorf("%q is not in the kernel's log:\n%s", want, log)
	}
}

func TestMissingModule(t *testing.T) {
	c := Config{Kernel: "6.12", Modules: []string{"no_such_module"}}
	_, err := Boot(t.Context(), theBed(t, c), c)
	if err == nil || !strings.Contains(err.Error(), "no_such_module") {
		t.Errorf("error %v", err)
	}
}

// TestAlternateInGuest compares two programs in one guest round by round. The
// guest's memory is shareable.
func TestAlternateInGuest(t *testing.T) {
	g := Start(t, Config{Kernel: "6.12", SharedMemory: true, CPUs: 1})
	p := probe(t, g)
	count := func(ctx context.Context) *Cmd { return g.CommandContext(ctx, p, "count") }
	parse := func(out string) (ns float64, err error) {
		_, err = fmt.Sscan(out, &ns)
		return ns, err
	}
	r, err := Alternate(t.Context(), CommandProgram("one", count, parse), CommandProgram("other", count, parse), 5)
	if err != nil {
		t.Fatal(err)
	}
	if ratio := r.Ratio(); ratio < 0.2 || ratio > 5 {
		t.Errorf("the same program differs from itself by a factor of %.2f", ratio)
	}
	if err := r.Write(t.Output()); err != nil {
		t.Error(err)
	}
}

// TestCompileC compiles a C program in the guest, with the static inlines of
// verbs.h, and runs it.
func TestCompileC(t *testing.T) {
	g := Start(t, Config{Kernel: "6.12", Root: true, RXE: true})
	started := time.Now()
	program := BuildC(t, g, "testdata/c/inlines.c")
	t.Logf("compiled in %.2f s", time.Since(started).Seconds())
	if got := output(t, g.Command(program, "rxe0", "1")); got != "hello from C" {
		t.Errorf("the program said %q", got)
	}
	bad := filepath.Join(t.TempDir(), "bad.c")
	if err := os.WriteFile(bad, []byte("int main(void) { return ibv_nothing(); }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := g.CompileC(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "ibv_nothing") {
		t.Errorf("a program that does not compile: %v", err)
	}
}
