package vm

import (
	"os"
	"testing"
)

// EnvTest is the variable that requests further tests: "all", as in make test-all, or nothing.
const EnvTest = "GOVERBS_TEST"

// SkipRepeat skips a test that repeats another one on a further kernel or link
// layer, unless the environment has [EnvTest]=all. other names the test that
// runs in any case.
func SkipRepeat(t testing.TB, other string) {
	t.Helper()
	switch which := os.Getenv(EnvTest); which {
	case "all":
	case "":
		t.Skipf("make test-all runs it: it repeats %s", other)
	default:
		t.Fatalf("%s=%s: the only value is all", EnvTest, which)
	}
}
