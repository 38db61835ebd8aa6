// Goverbs-perftest is linux-rdma/perftest in Go: the same tests, options and
// columns, and the same messages on the wire, so that either end can be C's.
//
//	goverbs-perftest send_lat                 # serves
//	goverbs-perftest send_lat -n 5000 host    # connects
//
// A link to it named ib_send_lat, write_bw and so on is that test.
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
	context.AfterFunc(ctx, stop) // a second signal kills
	err := run(ctx, filepath.Base(os.Args[0]), os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run does the test that the program's name names, or else the first argument.
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
