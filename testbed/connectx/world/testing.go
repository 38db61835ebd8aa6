package world

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/engine"
)

// StartTest starts a world that lives as long as the test, in a directory of its
// own. What is reported, and each violation, fails the test, unless the Config
// says what else is to happen.
func StartTest(t testing.TB, c Config) *World {
	t.Helper()
	dir, err := os.MkdirTemp("", "world") // a test's own may be too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	c.Dir = dir
	if c.Report == nil {
		c.Report = func(err error) { t.Errorf("world: %v", err) }
	}
	if c.Violation == nil {
		c.Violation = func(device string, v engine.Violation) { t.Errorf("%s: %s", device, Describe(v)) }
	}
	w, err := Start(c)
	if err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(dir)))
	}
	t.Cleanup(func() {
		if err := errors.Join(w.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return w
}

// AwaitTest waits until something holds, which it asks on the loop, for no longer
// than limit, and returns whether it does.
func (w *World) AwaitTest(t testing.TB, limit time.Duration, holds func() bool) (held bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if w.Loop.Run(func() { held = holds() }); held {
			return true
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
}
