// Goverbs-perftest is linux-rdma/perftest in Go. It has the same tests, options,
// columns and messages between the two ends, so either end can be the C program.
//
//	goverbs-perftest send_lat                 # server
//	goverbs-perftest send_lat -n 5000 host    # client
//
// A link to it with a name such as ib_send_lat or write_bw runs that test.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/goverbs/goverbs/bench/perftest"
	_ "github.com/goverbs/goverbs/provider/all"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	err := run(ctx, filepath.Base(os.Args[0]), os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the test named by the program's name, else by the first argument.
func run(ctx context.Context, name string, args []string, out, progress io.Writer) error {
	t, ok := perftest.TestNamed(name)
	if !ok {
		if len(args) == 0 {
			return fmt.Errorf("usage: %s TEST [options] [host]; the tests: %v; TEST -h lists options", name, perftest.Tests)
		}
		if t, ok = perftest.TestNamed(args[0]); !ok {
			return fmt.Errorf("%s: there is no test %q: choose from %v", name, args[0], perftest.Tests)
		}
		args = args[1:]
	}
	o, err := perftest.Parse(t, args)
	switch {
	case errors.Is(err, perftest.ErrHelp):
		_, err = io.WriteString(out, perftest.Usage(t))
		return err
	case err != nil:
		return fmt.Errorf("%v: %w", t, err)
	case o.ShowVersion:
		_, err = fmt.Fprintln(out, "Version:", perftest.Version)
		return err
	}
	o.Progress = progress
	if err := perftest.Run(ctx, o, out); err != nil {
		return fmt.Errorf("%v: %w", t, err)
	}
	return nil
}
