//go:build vm

package vm

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// theBed opens the bed with what a guest needs.
func theBed(t *testing.T, c Config) *bed.Bed {
	t.Helper()
	parts, err := c.Parts()
	if err != nil {
		t.Fatal(err)
	}
	b, err := bed.Ensure(t.Context(), os.Stderr, parts...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// start boots a guest that ends with the test. Unless the test has it die, its
// end must be in order.
func start(t *testing.T, c Config) *Guest {
	t.Helper()
	started := time.Now()
	g, err := Boot(t.Context(), theBed(t, c), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s booted in %.1f s", g.Release(), time.Since(started).Seconds())
	t.Cleanup(func() {
		if err := g.Close(); err != nil && !t.Failed() && g.Err() != errExpected {
			t.Errorf("closing the guest: %v", err)
		}
	})
	return g
}

// errExpected marks a guest that a test has killed.
var errExpected = errors.New("killed by the test")

// expectDeath lets the clean-up of start accept that the guest is dead.
func (g *Guest) expectDeath() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = errExpected
}

// probe installs the test's static program.
func probe(t *testing.T, g *Guest) string {
	t.Helper()
	path, err := g.Install(BuildProgram(t, "./testdata/probe", "", g.config.Arch))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// output runs a command that has to succeed, for a bounded time.
func output(t *testing.T, c *Cmd) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Minute)
	defer cancel()
	c.ctx = ctx
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(c.Args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// lines feeds each line that is written to it into a channel.
type lines struct {
	rest string
	c    chan string
}

func newLines() *lines { return &lines{c: make(chan string, 1000)} }

func (l *lines) Write(p []byte) (int, error) {
	l.rest += string(p)
	for {
		line, rest, ok := strings.Cut(l.rest, "\n")
		if !ok {
			return len(p), nil
		}
		l.c <- line
		l.rest = rest
	}
}

// await waits for a line that contains text.
func (l *lines) await(t *testing.T, text string) string {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case line := <-l.c:
			if strings.Contains(line, text) {
				return line
			}
		case <-limit:
			t.Fatalf("no line with %q came", text)
		}
	}
}
