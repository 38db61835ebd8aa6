package cshim

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A Script is a running program that executes steps, each a line of its standard input, and prints a line for those
// that observe something.
type Script struct {
	t       testing.TB
	program *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// Script starts a program that [Host.Compile] has compiled. It prints errors to standard error.
func (h *Host) Script(program string, args ...string) *Script {
	h.t.Helper()
	c := h.Run(program, args...)
	in, err := c.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		h.t.Fatal(err)
	}
	return &Script{h.t, c, in, bufio.NewReader(out)}
}

// PID returns the id of the process.
func (s *Script) PID() int { return s.program.Process.Pid }

// End waits until the program has ended.
func (s *Script) End() {
	s.t.Helper()
	if err := s.in.Close(); err != nil {
		s.t.Error(err)
	}
	if err := s.program.Wait(); err != nil {
		s.t.Errorf("C's program: %v", err)
	}
}

// Write writes a step.
func (s *Script) Write(format string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		s.t.Fatal(err)
	}
}

// Do writes a step, and returns what the program prints.
func (s *Script) Do(format string, args ...any) string {
	s.t.Helper()
	s.Write(format, args...)
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
