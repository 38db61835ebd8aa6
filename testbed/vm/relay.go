package vm

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/internal/testlog"
)

// TestOptions are the options of RunTests.
type TestOptions struct {
	Args     []string      // arguments, such as -test.run=...
	Env      []string      // added to the guest's environment
	Dir      string        // directory in the guest
	UID, GID uint32        // as in Cmd
	Rlimits  []Rlimit      // as in Cmd
	Outside  bool          // as in Cmd
	Timeout  time.Duration // of the whole binary; 10 minutes if zero
}

// RunTests runs a binary of `go test -c` in the guest, and reports each of its
// tests as a subtest of t, with its output and its result. It fails t if tests
// do not end, the binary crashes or runs no test, or the guest fails. It
// returns the binary's exit status, or -1 if it has none.
func RunTests(t *testing.T, g *Guest, binary string, o TestOptions) int {
	t.Helper()
	path, err := g.Install(binary)
	if err != nil {
		t.Error(err)
		return -1
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Minute
	}
	// The binary's own timeout is shorter: it prints all goroutines.
	ctx, cancel := context.WithTimeout(t.Context(), o.Timeout+30*time.Second)
	defer cancel()
	args := append([]string{"-test.v=test2json", "-test.timeout=" + o.Timeout.String()}, o.Args...)
	if testing.Short() {
		args = append(args, "-test.short")
	}
	r := &relay{t: t, tests: make(map[string]*mirror)}
	log := testlog.NewWriter(r.handle)
	c := g.CommandContext(ctx, path, args...)
	c.Env, c.Dir, c.UID, c.GID, c.Rlimits, c.Outside = o.Env, o.Dir, o.UID, o.GID, o.Rlimits, o.Outside
	c.Stdout, c.Stderr = log, log
	err = errors.Join(c.Run(), log.Close())
	return r.finish(c, err)
}

// relay converts a guest's test log to subtests.
type relay struct {
	t      *testing.T
	mu     sync.Mutex
	tests  map[string]*mirror
	passed bool // the binary said PASS
}

// A mirror is the subtest for a test of the guest.
type mirror struct {
	name   string
	queue  testlog.Queue
	ready  chan struct{} // closed when the subtest has started, or is excluded
	done   chan struct{} // closed when the subtest has ended
	t      *testing.T    // nil if -run excludes the test
	kids   sync.WaitGroup
	ended  bool
	failed bool
}

// handle processes an event of the log. When a test starts or ends, it waits
// until its subtest has done so, too, to keep the guest's order.
func (r *relay) handle(e testlog.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.tests[e.Test]
	switch {
	case e.Action == testlog.Run && m == nil:
		r.start(e.Test)
	case e.Action == testlog.Passed:
		r.passed = true
	case m != nil && !m.ended:
		m.queue.Add(e)
		if e.Action.Ends() {
			m.ended = true
			m.failed = e.Action == testlog.Fail
			<-m.done
		}
	case e.Action == testlog.Output:
		r.write(r.t, e.Text)
	}
}

// start starts the subtest, as a child of its parent in the guest.
func (r *relay) start(name string) {
	m := &mirror{name: name, ready: make(chan struct{}), done: make(chan struct{})}
	parent, rest := r.parent(name)
	r.tests[name] = m
	above := r.t
	if parent != nil {
		above = parent.t
		parent.kids.Add(1)
	}
	go func() {
		defer close(m.done)
		if parent != nil {
			defer parent.kids.Done()
		}
		if above != nil {
			above.Run(rest, func(t *testing.T) { r.follow(m, t) })
		}
		if m.t == nil { // excluded by -run
			close(m.ready)
		}
	}()
	<-m.ready
}

// parent returns the test to which a subtest belongs, and its name relative to
// that.
func (r *relay) parent(name string) (*mirror, string) {
	for i := len(name) - 1; i > 0; i-- {
		if name[i] != '/' {
			continue
		}
		if m := r.tests[name[:i]]; m != nil {
			return m, name[i+1:]
		}
	}
	return nil, name
}

// follow is the body of a subtest: it reports the output and result of its test
// in the guest.
func (r *relay) follow(m *mirror, t *testing.T) {
	m.t = t
	close(m.ready)
	defer m.kids.Wait()
	for {
		e := m.queue.Next()
		switch e.Action {
		case testlog.Output:
			r.write(t, e.Text)
		case testlog.Pass:
			return
		case testlog.Skip:
			m.kids.Wait()
			t.SkipNow()
		case testlog.Fail:
			t.Fail()
			return
		case testlog.Lost:
			t.Errorf("the test did not end in the guest: %s", e.Text)
			return
		}
	}
}

func (r *relay) write(t *testing.T, text string) {
	if _, err := io.WriteString(t.Output(), text); err != nil {
		t.Error(err)
	}
}

// finish ends the subtests whose tests did not end, and checks the result of
// the binary.
func (r *relay) finish(c *Cmd, err error) int {
	r.t.Helper()
	lost := "the binary ended first"
	if err != nil {
		lost, _, _ = strings.Cut(err.Error(), "\n")
	}
	explained := false
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.tests {
		if !m.ended {
			m.queue.Add(testlog.Event{Action: testlog.Lost, Text: lost})
			explained = true
		}
		explained = explained || m.failed
	}
	for _, m := range r.tests {
		<-m.done
	}
	status := -1
	if c.ProcessState != nil {
		status = c.ProcessState.ExitCode()
	}
	var exit *ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 1 && explained: // a test has failed, and so did its mirror
	case err != nil:
		r.t.Errorf("%s in the guest: %v", filepath.Base(c.Path), err)
	case len(r.tests) == 0 && !r.benchmarks(c):
		r.t.Errorf("%s ran no test in the guest", filepath.Base(c.Path))
	case !r.passed:
		r.t.Errorf("%s ended in the guest without saying PASS", filepath.Base(c.Path))
	}
	return status
}

// benchmarks reports whether the binary was to run benchmarks.
func (r *relay) benchmarks(c *Cmd) bool {
	for _, a := range c.Args {
		if strings.HasPrefix(a, "-test.bench") {
			return true
		}
	}
	return false
}
