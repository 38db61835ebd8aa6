package verbstest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/race"
)

// TestOutside runs a test of another module that imports this one. It builds for amd64 and arm64, and
// runs as this test does: without cgo or, under the race detector, with it.
func TestOutside(t *testing.T) {
	dir, root := t.TempDir(), filepath.Dir(must(os.Getwd())(t))
	goMod := strings.Replace(string(must(os.ReadFile("../go.mod"))(t)), "module github.com/goverbs/goverbs\n",
		"module example.com/outside\n", 1)
	goMod += "require github.com/goverbs/goverbs v0.0.0\nreplace github.com/goverbs/goverbs => " + root + "\n"
	check(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(goMod), 0o600))
	for _, name := range []string{"../go.sum", "request_test.go"} {
		data := must(os.ReadFile(name))(t)
		check(t, os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o600))
	}
	run := func(env []string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if race.Enabled {
		run([]string{"CGO_ENABLED=1"}, "test", "-race", "-count=1", ".")
		return
	}
	run(nil, "test", "-count=1", ".")
	others := slices.DeleteFunc([]string{"amd64", "arm64"}, func(arch string) bool { return arch == runtime.GOARCH })
	run([]string{"GOARCH=" + others[0]}, "test", "-c", "-o", os.DevNull, ".")
}
