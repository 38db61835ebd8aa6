// Bench compares programs in Go with their C namesakes, each pair in turn on the
// same machine, and writes down what they made of it: docs/go-and-c.json, from
// which bench/report makes docs/go-and-c.md and its charts.
//
//	go run ./testbed/bench                                    # in guests
//	go run ./testbed/bench -server root@a -client root@b -address 10.0.0.1 -device mlx5_0 -args "-x 3"
//
// The second is for two real hosts that ssh reaches without a password, with
// perftest and rdmacm-utils, and for the comparison of objects and of requests a
// C compiler and libibverbs-dev. They need no Go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/bench/results"
)

const (
	module  = "github.com/goverbs/goverbs"
	longest = 3 * time.Minute // of one program
)

// A bench is one run of everything.
type bench struct {
	run      results.Run
	messages int
	options  options
	tests    *regexp.Regexp
	dir      string
}

type options struct {
	verbose                               bool
	out, only, tests, kernel              string
	server, client, address, device, args string
}

func main() {
	b := &bench{}
	o := &b.options
	flag.IntVar(&b.run.Rounds, "rounds", 10, "how often each pair of programs runs")
	flag.IntVar(&b.messages, "n", 1000, "messages of a run of perftest")
	flag.StringVar(&o.out, "o", "docs/go-and-c.json", "file for the figures")
	flag.StringVar(&o.only, "only", "", "parts, comma-separated: rxe, mlx5, cost, native; the file keeps its figures of the others")
	flag.StringVar(&o.tests, "tests", "", "regular expression of the tests of perftest, such as send_bw/64; nothing else of their part then")
	flag.BoolVar(&o.verbose, "v", false, "tell of each run of a program")
	flag.StringVar(&o.kernel, "kernel", "6.12", "kernel of the guests")
	flag.StringVar(&o.server, "server", "", "host to serve, as ssh knows it")
	flag.StringVar(&o.client, "client", "", "host to measure, as ssh knows it")
	flag.StringVar(&o.address, "address", "", "address of the server's device")
	flag.StringVar(&o.device, "device", "mlx5_0", "device of both hosts")
	flag.StringVar(&o.args, "args", "", "further options of perftest")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := b.all(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// keep takes over from the file what a run of a part has not measured.
func (b *bench) keep() error {
	old, err := results.Read(b.options.out)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		b.run.Keep(old)
	}
	return err
}

// A part is one that can be asked for.
type part struct {
	name string
	do   func(context.Context) error
}

// all runs the parts that are asked for. A part that fails does not keep the
// others from being measured, and what was measured is written in any case.
func (b *bench) all(ctx context.Context) (err error) {
	parts := []part{{"rxe", b.onRXE}, {"mlx5", b.onConnectX}, {"cost", b.cost}, {"native", b.native}}
	if b.options.server != "" || b.options.client != "" {
		if b.options.server == "" || b.options.client == "" || b.options.address == "" {
			return errors.New("two hosts want all of -server, -client and -address")
		}
		parts = []part{{"hosts", b.onHosts}, {"native", b.native}}
	}
	if b.run.Rounds < 1 || b.messages < 100 || flag.NArg() > 0 {
		return errors.New("want -rounds of at least 1, -n of at least 100 and no argument")
	}
	if b.options.only != "" {
		only := strings.Split(b.options.only, ",")
		for _, name := range only {
			if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
				return fmt.Errorf("-only: there is no part %q", name)
			}
		}
		parts = slices.DeleteFunc(parts, func(p part) bool { return !slices.Contains(only, p.name) })
	}
	if b.tests, err = regexp.Compile(b.options.tests); err != nil {
		return fmt.Errorf("-tests: %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "goverbs-bench"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := b.describe(ctx); err != nil {
		return err
	}
	var errs []error
	for _, p := range parts {
		b.logf("%s", p.name)
		if err := p.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if b.options.only != "" {
		errs = append(errs, b.keep())
	}
	return errors.Join(append(errs, b.run.Write(b.options.out))...)
}
