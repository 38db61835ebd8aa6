// Package polltest lets the tests of a package run with waits that poll, or that sleep at once.
package polltest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/verbs"
)

// Force makes waits poll for the time that GOVERBS_POLLING says where the program leaves that to the library. It is
// called before the tests run.
func Force() {
	s := os.Getenv("GOVERBS_POLLING")
	if s == "" {
		return
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "GOVERBS_POLLING:", err)
		os.Exit(2)
	}
	verbs.Polling = d
}

// Choose leaves to the library what GOVERBS_POLLING says, in one test.
func Choose(t testing.TB) {
	forced := verbs.Polling
	verbs.Polling = 0
	t.Cleanup(func() { verbs.Polling = forced })
}
