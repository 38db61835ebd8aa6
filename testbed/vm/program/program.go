// Package program runs programs in guests for tests that talk to them: what a
// program prints can be waited for, and every run is bounded.
package program

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// Limit bounds one run of a program. It leaves room for a busy machine: on an
// idle one a run takes seconds.
const Limit = 5 * time.Minute

// A Process is a program that runs in a guest, for a bounded time.
type Process struct {
	Cmd    *vm.Cmd
	Stdout Output
	Stderr Output
	Ended  chan struct{} // closed when the program has ended
	began  time.Time
	err    error
	cancel context.CancelFunc
}

// Start runs a program. It is killed at the end of the test, if not before.
func Start(t testing.TB, g *vm.Guest, name string, args ...string) *Process {
	t.Helper()
	return start(t, Limit, g, nil, name, args...)
}

// StartFor runs a program that may take longer, or less long, than Limit.
func StartFor(t testing.TB, limit time.Duration, g *vm.Guest, name string, args ...string) *Process {
	t.Helper()
	return start(t, limit, g, nil, name, args...)
}

// Terminal is one that no line of a program is too long for.
var Terminal = vm.WindowSize{Rows: 24, Cols: 200}

// StartOn runs a program on a terminal, where its output comes line by line.
func StartOn(t testing.TB, g *vm.Guest, tty *vm.WindowSize, name string, args ...string) *Process {
	t.Helper()
	return start(t, Limit, g, tty, name, args...)
}

func start(t testing.TB, limit time.Duration, g *vm.Guest, tty *vm.WindowSize, name string, args ...string) *Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	p := &Process{Cmd: g.CommandContext(ctx, name, args...), Ended: make(chan struct{}), began: time.Now(), cancel: cancel}
	p.Cmd.Stdout, p.Cmd.Stderr, p.Cmd.TTY = &p.Stdout, &p.Stderr, tty
	if err := p.Cmd.Start(); err != nil {
		cancel()
		t.Fatalf("%v: %v", p, err)
	}
	go func() {
		defer cancel()
		p.err = p.Cmd.Wait()
		p.Stdout.end()
		p.Stderr.end()
		close(p.Ended)
	}()
	return p
}

// Run runs a command that has to succeed, and returns what it printed.
func Run(t testing.TB, g *vm.Guest, name string, args ...string) string {
	t.Helper()
	p := Start(t, g, name, args...)
	if err := p.Wait(); err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	return p.Stdout.String()
}

// Wait returns how the program has ended.
func (p *Process) Wait() error {
	<-p.Ended
	return p.err
}

// Kill ends the program.
func (p *Process) Kill() { p.cancel() }

// Running is whether it has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.Ended:
		return false
	default:
		return true
	}
}

// Status is the exit status of a program that has ended, or -1.
func (p *Process) Status() int {
	if p.Cmd.ProcessState == nil {
		return -1
	}
	return p.Cmd.ProcessState.ExitCode()
}

// String is the command line with what the program said.
func (p *Process) String() string {
	return "$ " + strings.Join(p.Cmd.Args, " ") + "\n" + p.Stdout.String() + p.Stderr.String()
}

// patience is for how long an end may run on when the other has ended, or as
// long as that one took: where that was long, the machine is busy. C programs
// whose peer has failed wait for ever.
const patience = 30 * time.Second

// Finish waits until both ends of a pair have ended.
func Finish(s, c *Process) (serverErr, clientErr error) {
	other := s
	select {
	case <-s.Ended:
		other = c
	case <-c.Ended:
	}
	select {
	case <-other.Ended:
	case <-time.After(max(patience, time.Since(s.began))):
		other.Kill()
	}
	return s.Wait(), c.Wait()
}

// An Output is what a program has printed, in which a text can be waited for.
type Output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	ended bool
	fresh chan struct{} // closed when there is more, or the end
}

// Write adds to what was printed.
func (w *Output) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake()
	return w.buf.Write(b)
}

func (w *Output) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.wake()
}

func (w *Output) wake() {
	if w.fresh != nil {
		close(w.fresh)
		w.fresh = nil
	}
}

// String is what was printed until now.
func (w *Output) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return plain(w.buf.String())
}

// Await returns when text was written, or the program has ended, which its
// time limit sees to.
func (w *Output) Await(text string) bool { return w.AwaitTimes(text, 1) }

// AwaitTimes awaits a text that comes n times.
func (w *Output) AwaitTimes(text string, n int) bool {
	for {
		w.mu.Lock()
		found, ended := strings.Count(plain(w.buf.String()), text) >= n, w.ended
		if w.fresh == nil {
			w.fresh = make(chan struct{})
		}
		fresh := w.fresh
		w.mu.Unlock()
		if found || ended {
			return found
		}
		<-fresh
	}
}

// plain makes a terminal's lines plain.
func plain(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
