// Package programtest runs the programs of cmd in tests, on machines in memory.
package programtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/verbstest"
)

// Patience is how long a test waits for what happens soon.
const Patience = time.Minute

// A Buffer is a buffer that may be read while it is written.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the buffer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Await waits until ok reports true. The test fails after [Patience].
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// A Run is a run of a program.
type Run struct {
	Out, Messages Buffer

	t      testing.TB
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed after err is set
	err    error
	waited bool // by the test
}

// Start calls run in a goroutine, on a machine. When the test ends, the program is interrupted. The test fails if the
// program has then ended with an error that the test has not read with Wait.
func Start(t testing.TB, m *verbstest.Machine, run func(ctx context.Context, out, messages io.Writer) error) *Run {
	ctx, cancel := context.WithCancelCause(context.Background()) // the test's ends before its cleanups
	r := &Run{t: t, cancel: cancel, ended: make(chan struct{})}
	m.Run(func() {
		go func() {
			defer close(r.ended)
			r.err = run(ctx, &r.Out, &r.Messages)
		}()
	})
	t.Cleanup(func() {
		r.Interrupt()
		read := r.waited
		if err := r.Wait(); err != nil && !read && !errors.Is(err, program.ErrInterrupted) {
			t.Errorf("the program ends with %v", err)
		}
		if t.Failed() {
			t.Logf("its messages:\n%s", r.Messages.String())
		}
	})
	return r
}

// Interrupt does what a signal does: it cancels the program's context.
func (r *Run) Interrupt() { r.cancel(program.ErrInterrupted) }

// Wait waits for the end of the program and returns its error.
func (r *Run) Wait() error {
	r.t.Helper()
	r.waited = true
	select {
	case <-r.ended:
	case <-time.After(Patience):
		r.t.Fatal("the program does not end")
	}
	return r.err
}

// Says waits until the messages of the program contain text.
func (r *Run) Says(text string) {
	r.t.Helper()
	Await(r.t, "a message with "+text, func() bool {
		said := strings.Contains(r.Messages.String(), text)
		select {
		case <-r.ended:
			if said = strings.Contains(r.Messages.String(), text); !said {
				r.t.Fatalf("the program has ended with %v before it said %q", r.err, text)
			}
		default:
		}
		return said
	})
}

// Data returns n bytes without a short period.
func Data(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}

// A Main is the function that a program passes to [program.Main].
type Main func(ctx context.Context, args []string, out io.Writer) error

// Help checks that the text of -h has all of the words.
func Help(t *testing.T, run Main, words ...string) {
	t.Helper()
	var b strings.Builder
	if err := run(t.Context(), []string{"-h"}, &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range words {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// A Refusal is a command line, a part of the error that it causes, and what the program prints before.
type Refusal struct{ Args, Err, Out string }

// Refusals checks that a program refuses command lines.
func Refusals(t *testing.T, run Main, lines []Refusal) {
	t.Helper()
	for _, l := range lines {
		var b strings.Builder
		err := run(t.Context(), strings.Fields(l.Args), &b)
		if err == nil || !strings.Contains(err.Error(), l.Err) || b.String() != l.Out {
			t.Errorf("%q: error %v, want %q; output %q, want %q", l.Args, err, l.Err, b.String(), l.Out)
		}
	}
}
