//go:build vm

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// A process is a program in a guest with a time limit.
type process struct {
	cmd   *vm.Cmd
	mu    sync.Mutex
	lines []string
	rest  []byte
	fresh chan struct{} // closed when there is another line, or the end
	over  bool
	done  chan struct{} // closed with err set
	err   error
	stop  func() // ends it
}

// start starts a program, which is killed after the limit.
func (e *end) start(t *testing.T, limit time.Duration, env []string, name string, args ...string) *process {
	t.Helper()
	ctx, cancelLimit := context.WithTimeoutCause(t.Context(), limit, errHangs)
	ctx, stop := context.WithCancelCause(ctx)
	cancel := func() { stop(errStopped); cancelLimit() }
	p := &process{cmd: e.guest.CommandContext(ctx, name, args...), fresh: make(chan struct{}), done: make(chan struct{}),
		stop: cancel}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, p, p
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatalf("%s: %v", name, err)
	}
	go func() {
		defer cancel()
		p.err = p.cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.over = true
		close(p.fresh)
		close(p.done)
	}()
	return p
}

var (
	errHangs   = errors.New("it hangs")
	errStopped = errors.New("killed after the time limit")
)

// Write receives the program's output.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	for {
		line, rest, ok := bytes.Cut(p.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		p.lines, p.rest = append(p.lines, strings.TrimRight(string(line), "\r")), rest
		close(p.fresh)
		p.fresh = make(chan struct{})
	}
}

func (p *process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return "$ " + strings.Join(p.cmd.Args, " ") + "\n" + strings.Join(p.lines, "\n") + "\n" + string(p.rest)
}

// await waits for the nth line that contains a text and returns it. It returns false if
// the program ends before.
func (p *process) await(text string, nth int) (string, bool) {
	for {
		p.mu.Lock()
		found := 0
		for _, l := range p.lines {
			if strings.Contains(l, text) {
				if found++; found == nth {
					p.mu.Unlock()
					return l, true
				}
			}
		}
		fresh, over := p.fresh, p.over
		p.mu.Unlock()
		if over {
			return "", false
		}
		<-fresh
	}
}

// event waits for the nth event of a kind.
func (p *process) event(t *testing.T, kind string, nth int) {
	t.Helper()
	if _, ok := p.await(`"Event":"`+kind+`"`, nth); !ok {
		t.Fatalf("%q did not happen %d times:\n%v", kind, nth, p)
	}
}

// running reports whether the program has not ended yet.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// wait waits for the program and returns its error.
func (p *process) wait() error {
	<-p.done
	return p.err
}

// result returns the account that one of our programs printed at its end.
func (p *process) result(t *testing.T) *Account {
	t.Helper()
	err := p.wait()
	line, ok := p.await(`"Event":"`+Final+`"`, 1)
	var e Event
	if !ok || json.Unmarshal([]byte(line), &e) != nil || e.Account == nil {
		t.Fatalf("no account, %v:\n%v", err, p)
	}
	return e.Account
}

// account is like result, but fails the test if Check finds an error.
func (p *process) account(t *testing.T) *Account {
	t.Helper()
	a := p.result(t)
	if err := errors.Join(p.wait(), a.Check()); err != nil {
		t.Errorf("%v\n%v", err, p)
	}
	return a
}
