// Package program contains the main function of the example programs.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// ErrInterrupted is the cause of the context's cancellation by a signal.
var ErrInterrupted = errors.New("interrupted")

// Main calls run with the command-line arguments and exits with status 0, or prints
// the error and exits with status 1. SIGINT and SIGTERM cancel the context with
// [ErrInterrupted], so that run can release its resources. A second signal kills
// the program.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := interruptible(context.Background())
	status := report(os.Stderr, name, run(ctx, os.Args[1:], os.Stdout))
	stop()
	os.Exit(status)
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
