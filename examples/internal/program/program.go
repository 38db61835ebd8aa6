// Package program is how the example programs start and end.
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

// ErrInterrupted is the cause of the context's end when a signal ends the
// program.
var ErrInterrupted = errors.New("interrupted")

// Main runs a program with the command line's arguments and exits: with status
// 0, or 1 after an error, which it prints. SIGINT and SIGTERM end the context
// of run with [ErrInterrupted], so that it can close what it has opened; a
// second signal kills.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := interruptible(context.Background())
	status := report(os.Stderr, name, run(ctx, os.Args[1:], os.Stdout))
	stop()
	os.Exit(status)
}

// interruptible returns a context that the first signal ends.
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

// report prints what went wrong and returns the exit status.
func report(w io.Writer, name string, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(w, "%s: %v\n", name, err)
	return 1
}

// Service reads the option by which programs choose their service: r, or x for
// XRC.
func Service(xrc *bool) func(string) error {
	return func(value string) error {
		switch value {
		case "r", "R":
			*xrc = false
		case "x", "X":
			*xrc = true
		default:
			return fmt.Errorf("%q is no service: give r or x", value)
		}
		return nil
	}
}
