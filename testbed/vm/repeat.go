package vm

import (
	"os"
	"testing"
)

// SkipRepeat skips a test that repeats another one on a further kernel or link
// layer, unless the environment has GOVERBS_TEST=all, as in make test-all. other
// names the test that runs in any case.
func SkipRepeat(t testing.TB, other string) {
	t.Helper()
	switch which := os.Getenv("GOVERBS_TEST"); which {
	case "all":
	case "":
		t.Skipf("make test-all runs it: it repeats %s", other)
	default:
		t.Fatalf("GOVERBS_TEST=%s: the only value is all", which)
	}
}
