package ioctltest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files in testdata afresh")

// Golden compares got with testdata/name.golden.
func Golden(t testing.TB, name, got string) {
	t.Helper()
	GoldenFile(t, filepath.Join("testdata", name+".golden"), got)
}

// GoldenFile compares got with a file, for files that are also used elsewhere.
func GoldenFile(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: make it by go test -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test -update takes what is got):\n%s", path, diff)
	}
}
