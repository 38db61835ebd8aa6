//go:build vm

package cshim_test

import (
	"bytes"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/testbed/cshim"
)

func TestMain(m *testing.M) {
	cshim.Prepare()
	leaktest.Main(m)
}

// freePort returns a TCP port of the host that is free.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// output runs a program and returns what it prints.
func output(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.Output()
	if err != nil {
		var text string
		if e, ok := err.(*exec.ExitError); ok {
			text = string(e.Stderr)
		}
		t.Fatalf("%v: %v\n%s%s", c.Args, err, out, text)
	}
	return string(out)
}

// A running is a program that runs in the background.
type running struct {
	*exec.Cmd
	out   bytes.Buffer // may be read when it has ended
	ended bool
}

func start(t *testing.T, c *exec.Cmd) *running {
	t.Helper()
	r := &running{Cmd: c}
	c.Stdout, c.Stderr = &r.out, &r.out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of a test that has failed
		if !r.ended {
			_ = r.Process.Kill() // Wait reports what happened
			t.Logf("%v: %v\n%s", r.Args, r.end(), r.out.String())
		}
	})
	return r
}

// end waits until the program has ended.
func (r *running) end() error {
	r.ended = true
	return r.Wait()
}

// finish waits for the program, which must succeed, and returns what it has printed.
func (r *running) finish(t *testing.T) string {
	t.Helper()
	if err := r.end(); err != nil {
		t.Fatalf("%v: %v\n%s", r.Args, err, r.out.String())
	}
	return r.out.String()
}

// retry runs a client until its server, which has just been started, accepts connections, and returns what it prints.
func retry(t *testing.T, server *running, client func() *exec.Cmd, refused string) string {
	t.Helper()
	for {
		c := client()
		out, err := c.CombinedOutput()
		switch {
		case err == nil:
			return string(out)
		case !strings.Contains(string(out), refused):
			t.Fatalf("%v: %v\n%s", c.Args, err, out)
		}
	}
}
