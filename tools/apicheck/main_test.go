package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A tree is a repository with a release of one public package.
type tree struct {
	t        *testing.T
	dir      string
	accepted string // the file of accepted changes
}

func newTree(t *testing.T) *tree {
	w := &tree{t, t.TempDir(), filepath.Join(t.TempDir(), "accepted.txt")}
	w.write("go.mod", "module example.com/m\n\ngo 1.25\n")
	w.write("a/a.go", "package a\n\nfunc F(int) {}\n\ntype T struct{ A int }\n")
	w.write("internal/b/b.go", "package b\n\nfunc F() {}\n")
	w.write("cmd/c/sub/sub.go", "package sub\n\nfunc F() {}\n")
	w.accept("# none")
	w.git("init", "-q")
	w.git("add", ".")
	w.git("commit", "-qm", "first")
	return w
}

func (w *tree) git(args ...string) {
	w.t.Helper()
	args = append([]string{"-C", w.dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)
	if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
		w.t.Fatalf("git %q: %v: %s", args, err, out)
	}
}

func (w *tree) write(name, text string) {
	w.t.Helper()
	name = filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *tree) accept(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.accepted, []byte(text+"\n"), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// check runs the program, and compares its output and its error with the texts that
// they must contain. No text means no error.
func (w *tree) check(output, failure string) {
	w.t.Helper()
	var out strings.Builder
	err := run(&out, []string{w.dir, w.accepted})
	if !strings.Contains(out.String(), output) {
		w.t.Errorf("output %q, want %q", out.String(), output)
	}
	switch {
	case failure == "" && err != nil:
		w.t.Errorf("%v, want no error", err)
	case failure != "" && (err == nil || !strings.Contains(err.Error(), failure)):
		w.t.Errorf("error %v, want %q", err, failure)
	}
}

func TestWithoutRelease(t *testing.T) {
	w := newTree(t)
	w.git("tag", "other")
	w.git("tag", "v0.1.0-rc.1")
	w.check("no release", "")
}

func TestChanges(t *testing.T) {
	w := newTree(t)
	w.git("tag", "v0.1.0")
	w.check("since v0.1.0", "")
	w.write("a/a.go", "package a\n\nfunc F(int) {}\n\nfunc G() {}\n\ntype T struct{ A, B int }\n")
	w.write("internal/b/b.go", "package b\n")
	w.write("cmd/c/sub/sub.go", "package sub\n")
	w.check("compatible: ./a.G: added", "")

	w.write("a/a.go", "package a\n\nfunc F(string) {}\n\ntype T struct{}\n")
	w.check("INCOMPATIBLE: ./a.T.A: removed", "incompatible: ./a.F: changed from func(int) to func(string)")
	w.accept("./a.F: changed from func(int) to func(string)\n./a.T.A: removed")
	w.check("accepted: ./a.F: changed", "")
	w.accept("./a.F: changed from func(int) to func(string)\n./a.T.A: removed\n./a.H: removed")
	w.check("", `there is no change "./a.H: removed"`)
}

func TestRemovedPackage(t *testing.T) {
	w := newTree(t)
	w.write("d/d.go", "package d\n\nfunc F() {}\n")
	w.git("add", ".")
	w.git("commit", "-qm", "second")
	w.git("tag", "v0.1.0")
	if err := os.RemoveAll(filepath.Join(w.dir, "d")); err != nil {
		t.Fatal(err)
	}
	w.check("", "incompatible: package example.com/m/d: removed")
}

// The comparison is with the highest release that the commit contains.
func TestLastRelease(t *testing.T) {
	w := newTree(t)
	for _, tag := range []string{"v0.9.0", "v0.10.0", "v0.2.0", "v0.11.0-rc.1", "vendor"} {
		w.git("tag", tag)
	}
	w.git("checkout", "-qb", "other")
	w.git("commit", "-qm", "later", "--allow-empty")
	w.git("tag", "v0.12.0")
	w.git("checkout", "-q", "-")
	if tag, err := lastRelease(w.dir); tag != "v0.10.0" || err != nil {
		t.Errorf("%q, %v", tag, err)
	}
	if _, err := lastRelease(t.TempDir()); err == nil {
		t.Error("no error outside a repository")
	}
}

func TestBroken(t *testing.T) {
	w := newTree(t)
	w.git("tag", "v0.1.0")
	w.write("a/a.go", "package a\n\nfunc F() int {}\n")
	w.check("", "a.go")
	if err := run(os.Stdout, nil); err == nil {
		t.Error("no error without arguments")
	}
	if err := run(os.Stdout, []string{w.dir, filepath.Join(w.dir, "none.txt")}); err == nil {
		t.Error("no error without the file of accepted changes")
	}
}

func TestStable(t *testing.T) {
	for folder, want := range map[string]bool{"": true, "/uverbs": true, "/provider/mlx5": true, "/cmd/doctor": false,
		"/internal/x": false, "/provider/internal/x": false, "/bench/results": false, "/benchmark": true} {
		if stable(folder) != want {
			t.Errorf("%q: %v", folder, !want)
		}
	}
}
