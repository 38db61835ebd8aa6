package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/internal/getopt"
	"github.com/goverbs/goverbs/internal/version"
)

// Main is the main function of goverbs-perftest. It runs the test that the name of the program or the first argument
// names.
func Main() {
	if os.Getenv("GOMAXPROCS") == "" {
		// A test has one loop, as in C. With more, the runtime wakes threads that look for work, on
		// the CPUs of the device's driver.
		runtime.GOMAXPROCS(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	err := command(ctx, filepath.Base(os.Args[0]), os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// command runs the test named by the program's name, else by the first argument.
func command(ctx context.Context, name string, args []string, out, progress io.Writer) error {
	t, ok := TestNamed(name)
	if !ok {
		if version.Asked(args) {
			return printVersion(out)
		}
		if len(args) == 0 {
			return fmt.Errorf("usage: %s TEST [options] [host]; the tests: %v; TEST -h lists options", name, Tests)
		}
		if getopt.IsHelp(args[0]) {
			_, err := io.WriteString(out, help(name))
			return err
		}
		if t, ok = TestNamed(args[0]); !ok {
			return fmt.Errorf("%s: there is no test %q: choose from %v", name, args[0], Tests)
		}
		args = args[1:]
	}
	o, err := Parse(t, args)
	switch {
	case errors.Is(err, ErrHelp):
		_, err = io.WriteString(out, Usage(t))
		return err
	case err != nil:
		return fmt.Errorf("%v: %w", t, err)
	case o.ShowVersion:
		return printVersion(out)
	}
	o.Progress = progress
	if err := Run(ctx, o, out); err != nil {
		return fmt.Errorf("%v: %w", t, err)
	}
	return nil
}

// help returns the help text of the program for all tests.
func help(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %[1]s TEST [options]            start a server and wait for connection\n"+
		"  %[1]s TEST [options] <host>     connect to server at <host>\n"+
		"  %[1]s TEST -h                   list the options of a test\n\nTests:\n", name)
	for _, t := range Tests {
		what := choose(t.Bandwidth, "bandwidth", "latency")
		fmt.Fprintf(&b, "  %-12v%s of %s\n", t, what, [...]string{"SEND", "RDMA WRITE", "", "RDMA READ", "atomics"}[t.Verb])
	}
	return b.String()
}

// printVersion prints the version of perftest as C's does, and below it that of the program.
func printVersion(out io.Writer) error {
	if _, err := fmt.Fprintln(out, "Version:", Version); err != nil {
		return err
	}
	return version.Print(out, "goverbs")
}
