package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// memoryPackages are the packages of machines in memory.
var memoryPackages = []string{"verbstest", "internal/sim/"}

// TestProgramHasNoTests checks that a program contains no symbol of the packages for tests, and
// that what makes those possible takes no time when the program starts.
func TestProgramHasNoTests(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "rping")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "./cmd/rping")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	symbols, err := exec.Command("go", "tool", "nm", bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(symbols), module+"/uverbs.") {
		t.Fatal("the program has no symbol of package uverbs")
	}
	for _, p := range memoryPackages {
		if strings.Contains(string(symbols), module+"/"+p) {
			t.Errorf("the program has symbols of %s", p)
		}
	}
	start := exec.Command(bin, "-h")
	start.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := start.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "init "+module+"/uverbs ") {
		t.Fatalf("no trace of the initialization:\n%s", out)
	}
	for _, p := range []string{"internal/machine", "internal/race"} {
		if strings.Contains(string(out), "init "+module+"/"+p+" ") {
			t.Errorf("%s is initialized when a program starts", p)
		}
	}
}
