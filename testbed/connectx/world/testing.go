package world

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
)

// StartTest starts a world for the duration of the test, in a temporary
// directory. Reports and violations fail the test, unless the Config has
// functions for them.
func StartTest(t testing.TB, c Config) *World {
	t.Helper()
	dir, err := os.MkdirTemp("", "world") // a test's directory may be too long for sockets
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

// AwaitTest waits at most limit until holds, called in the loop, returns true.
// It reports whether it did.
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
