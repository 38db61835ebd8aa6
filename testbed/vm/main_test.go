//go:build vm

package vm

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// theBed opens the bed with the parts for a guest.
func theBed(t *testing.T, c Config) *bed.Bed {
	t.Helper()
	b, err := c.bed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return b
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

// output runs a command that must succeed, for a bounded time.
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

// lines sends each line written to it to a channel.
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
