// Package program contains the main function of the example programs.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/internal/version"
)

// ErrInterrupted is the cause of the context's cancellation by a signal.
var ErrInterrupted = errors.New("interrupted")

// Main calls run with the command-line arguments and exits with status 0, or prints
// the error and exits with status 1. An error of writing to out is an error, even if
// run does not return it. If the only argument is -version, Main prints the version instead.
// SIGINT and SIGTERM cancel the context with [ErrInterrupted], so that run can release its
// resources. A second signal kills the program.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	if version.Asked(os.Args[1:]) {
		run = func(_ context.Context, _ []string, out io.Writer) error { return version.Print(out, name) }
	}
	ctx, stop := interruptible(context.Background())
	out := &output{w: os.Stdout}
	err := out.join(run(ctx, os.Args[1:], out))
	status := report(os.Stderr, name, err)
	stop()
	os.Exit(status)
}

// An output is a Writer that records the first error of w, so that programs can print
// without a check of each call.
type output struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

// Write writes to w. After an error it returns that error.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(b)
	if err != nil {
		o.err = fmt.Errorf("print the output: %w", err)
	}
	return n, o.err
}

// join adds the first error of Write to err, unless err has it.
func (o *output) join(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || errors.Is(err, o.err) {
		return err
	}
	return errors.Join(err, o.err)
}

// interruptible returns a context that the first signal cancels.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			signal.Stop(signals)
			cancel(ErrInterrupted)
		case <-ctx.Done():
			signal.Stop(signals)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// report prints the error, if any, and returns the exit status.
func report(w io.Writer, name string, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(w, "%s: %v\n", name, err)
	return 1
}

// Service returns a Set function for the option that selects the service: r for RC
// or x for XRC.
func Service(xrc *bool) func(string) error {
	return func(value string) error {
		switch value {
		case "r", "R":
			*xrc = false
		case "x", "X":
			*xrc = true
		default:
			return fmt.Errorf("unknown service %q: use r or x", value)
		}
		return nil
	}
}
