// Package program runs programs in guests: tests can wait for their output, and
// every run has a time limit.
package program

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// Limit bounds one run of a program. It has reserves for a busy machine: on an
// idle one a run takes seconds.
const Limit = 5 * time.Minute

// A Process is a program that runs in a guest, for a bounded time.
type Process struct {
	Cmd     *vm.Cmd
	Stdout  Output
	Stderr  Output
	Ended   chan struct{} // closed when the program has exited
	guest   *vm.Guest
	started time.Time
	err     error
	cancel  context.CancelCauseFunc
	show    sync.Once // of the threads
	threads Output    // where they waited when the time limit had passed, or Finish gave up
}

// Start starts a program. It is killed at the end of the test, or after Limit; String then has what its threads waited
// for.
func Start(t testing.TB, g *vm.Guest, name string, args ...string) *Process {
	t.Helper()
	return start(t, Limit, g, nil, name, args...)
}

// StartFor is like Start with another time limit.
func StartFor(t testing.TB, limit time.Duration, g *vm.Guest, name string, args ...string) *Process {
	t.Helper()
	return start(t, limit, g, nil, name, args...)
}

// Terminal is wide enough for all lines of the programs.
var Terminal = vm.WindowSize{Rows: 24, Cols: 200}

// StartOn starts a program on a terminal, so that its output is line-buffered.
func StartOn(t testing.TB, g *vm.Guest, tty *vm.WindowSize, name string, args ...string) *Process {
	t.Helper()
	return start(t, Limit, g, tty, name, args...)
}

func start(t testing.TB, limit time.Duration, g *vm.Guest, tty *vm.WindowSize, name string, args ...string) *Process {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	p := &Process{
		Cmd:     g.CommandContext(ctx, name, args...),
		Ended:   make(chan struct{}),
		guest:   g,
		started: time.Now(),
		cancel:  cancel,
	}
	p.Cmd.Stdout, p.Cmd.Stderr, p.Cmd.TTY = &p.Stdout, &p.Stderr, tty
	if err := p.Cmd.Start(); err != nil {
		cancel(nil)
		t.Fatalf("%v: %v", p, err)
	}
	late := time.AfterFunc(limit, func() {
		p.ShowThreads()
		cancel(fmt.Errorf("%w: it runs for more than %v", context.DeadlineExceeded, limit))
	})
	go func() {
		defer cancel(nil)
		p.err = p.Cmd.Wait()
		late.Stop()
		p.show.Do(func() {}) // there are no threads any more
		p.Stdout.end()
		p.Stderr.end()
		close(p.Ended)
	}()
	return p
}

// Run runs a command that must succeed, and returns its output.
func Run(t testing.TB, g *vm.Guest, name string, args ...string) string {
	t.Helper()
	p := Start(t, g, name, args...)
	if err := p.Wait(); err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	return p.Stdout.String()
}

// Wait waits for the program and returns its error.
func (p *Process) Wait() error {
	<-p.Ended
	return p.err
}

// Kill kills the program.
func (p *Process) Kill() { p.cancel(nil) }

// Running reports whether the program has not exited yet.
func (p *Process) Running() bool {
	select {
	case <-p.Ended:
		return false
	default:
		return true
	}
}

// Status returns the exit status of a program that has exited, or -1.
func (p *Process) Status() int {
	if p.Cmd.ProcessState == nil {
		return -1
	}
	return p.Cmd.ProcessState.ExitCode()
}

// String returns the command line and the output.
func (p *Process) String() string {
	return "$ " + strings.Join(p.Cmd.Args, " ") + "\n" + p.Stdout.String() + p.Stderr.String() + p.threads.String()
}

// ShowThreads records for String where the threads of a running program wait: the number of the system call with its
// arguments, and the kernel's stack. Only the first call does so.
func (p *Process) ShowThreads() { p.show.Do(p.showThreads) }

func (p *Process) showThreads() {
	const script = `cd /proc/$1/task && for t in *; do
		echo "thread $t ($(cat $t/comm)): $(cat $t/syscall)"; cat $t/stack
	done`
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := p.guest.CommandContext(ctx, "sh", "-c", script, "sh", strconv.Itoa(p.Cmd.PID()))
	fmt.Fprintln(&p.threads, "It did not exit. Its threads:")
	c.Stdout, c.Stderr = &p.threads, &p.threads
	if err := c.Run(); err != nil {
		fmt.Fprintf(&p.threads, "%v\n", err)
	}
}

// patience is how long an end may continue after the other has exited, unless
// that one took longer, because then the machine is busy. C programs wait for
// ever if their peer has failed.
const patience = 30 * time.Second

// Finish waits until both ends of a pair have exited.
func Finish(s, c *Process) (serverErr, clientErr error) {
	other := s
	select {
	case <-s.Ended:
		other = c
	case <-c.Ended:
	}
	select {
	case <-other.Ended:
	case <-time.After(max(patience, time.Since(s.started))):
		other.ShowThreads()
		other.Kill()
	}
	return s.Wait(), c.Wait()
}

// An Output is the output of a program. Callers can wait for a text.
type Output struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	ended   bool
	changed chan struct{} // closed at new output or the end
}

// Write implements io.Writer.
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
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// String returns the output so far.
func (w *Output) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return plain(w.buf.String())
}

// Await waits until text was written, or the program has exited. It reports
// whether the text was written.
func (w *Output) Await(text string) bool { return w.AwaitTimes(text, 1) }

// AwaitTimes waits for n occurrences of a text.
func (w *Output) AwaitTimes(text string, n int) bool {
	for {
		w.mu.Lock()
		found, ended := strings.Count(plain(w.buf.String()), text) >= n, w.ended
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		fresh := w.changed
		w.mu.Unlock()
		if found || ended {
			return found
		}
		<-fresh
	}
}

// plain converts a terminal's line ends.
func plain(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
