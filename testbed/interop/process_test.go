//go:build vm

package interop

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// runLimit bounds one run of a program. It leaves room for a busy machine: on an
// idle one a run takes seconds.
const runLimit = 3 * time.Minute

// output runs a command that has to succeed, and returns what it printed.
func (h *host) output(t *testing.T, name string, args ...string) string {
	t.Helper()
	p := h.start(t, name, args...)
	if err := p.wait(); err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	return p.stdout.String()
}

// A process is a program that runs in the guest, for a bounded time.
type process struct {
	cmd    *vm.Cmd
	stdout watched
	stderr watched
	ended  chan struct{} // closed with err set
	err    error
	cancel context.CancelFunc
}

// start runs a program. It is killed at the end of the test, if not before.
func (h *host) start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return h.startOn(t, nil, name, args...)
}

// startOn runs a program on a terminal, where its output comes line by line.
func (h *host) startOn(t *testing.T, tty *vm.WindowSize, name string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	p := &process{cmd: h.guest.CommandContext(ctx, name, args...), ended: make(chan struct{}), cancel: cancel}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.TTY = &p.stdout, &p.stderr, tty
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatalf("%v: %v", p, err)
	}
	go func() {
		defer cancel()
		p.err = p.cmd.Wait()
		p.stdout.end()
		p.stderr.end()
		close(p.ended)
	}()
	return p
}

// wait returns how the program has ended.
func (p *process) wait() error {
	<-p.ended
	return p.err
}

// running is whether it has not ended yet.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// status is the exit status of a program that has ended, or -1.
func (p *process) status() int {
	if p.cmd.ProcessState == nil {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// String is the command line with what the program said.
func (p *process) String() string {
	return "$ " + strings.Join(p.cmd.Args, " ") + "\n" + p.stdout.String() + p.stderr.String()
}

// A watched is a buffer in which a text can be waited for.
type watched struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	ended bool
	fresh chan struct{} // closed when there is more, or the end
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake()
	return w.buf.Write(b)
}

func (w *watched) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.wake()
}

func (w *watched) wake() {
	if w.fresh != nil {
		close(w.fresh)
		w.fresh = nil
	}
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return plain(w.buf.String())
}

// await returns when text was written, or the program has ended, which its
// time limit sees to.
func (w *watched) await(text string) bool { return w.awaitTimes(text, 1) }

// awaitTimes awaits a text that comes n times.
func (w *watched) awaitTimes(text string, n int) bool {
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
