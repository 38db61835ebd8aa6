// Bench compares programs in Go with their C counterparts. It runs them alternately on
// the same machine and writes the figures to bench/figures/go-and-c.json, from which
// bench/report creates docs/go-and-c.md and its charts.
//
//	go run -C testbed ./bench                                    # in guests
//	go run -C testbed ./bench -server root@a -client root@b -address 10.0.0.1 -device mlx5_0 -args "-x 3"
//
// The second command compares on two real hosts. docs/hardware.md lists what they
// need. Bench reports what they lack before it measures anything.
//
// The working directory must be the root of the module of the test bed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/bench/results"
)

const (
	module       = "github.com/goverbs/goverbs"
	longest      = 6 * time.Minute  // time limit of a program with a peer: 10,000 connections take one
	longestAlone = 15 * time.Minute // time limit of a program without, for any number of objects

	// published is the file of the figures in the repository. They are reproducible:
	// from a commit, and of enough rounds.
	published   = "../bench/figures/go-and-c.json"
	leastRounds = 5
)

// A bench is one run of this program.
type bench struct {
	run      results.Run
	here     results.Place // this machine and the current versions
	rounds   int
	messages int
	options  options
	tests    *regexp.Regexp
	dir      string
}

type options struct {
	verbose, sudo                         bool
	out, only, tests, kernel              string
	server, client, address, device, args string
	serverDevice, serverArgs              string
}

func main() {
	b := &bench{}
	o := &b.options
	flag.IntVar(&b.rounds, "rounds", 10, "how often each pair of programs runs")
	flag.IntVar(&b.messages, "n", 1000,
		"messages of a run of perftest; small ones take 5 times (latencies) and 10 times (rates) as many")
	flag.StringVar(&o.out, "o", published, "file for the figures")
	flag.StringVar(&o.only, "only", "", "parts, comma-separated: rxe, mlx5, cost, rsocket, rsocket-two, rsocket-cost,"+
		" messages, messages-cost, native (of two hosts: hosts, native); the file keeps its figures of the others")
	flag.StringVar(&o.tests, "tests", "",
		"regular expression of the tests of perftest, such as send_bw/64; nothing else then")
	flag.BoolVar(&o.verbose, "v", false, "tell of each run of a program")
	flag.StringVar(&o.kernel, "kernel", "6.12", "kernel of the guests")
	flag.StringVar(&o.server, "server", "", "host to serve, as ssh knows it")
	flag.StringVar(&o.client, "client", "", "host to measure, as ssh knows it")
	flag.StringVar(&o.address, "address", "", "address of the server's device")
	flag.StringVar(&o.device, "device", "mlx5_0", "device of the client, and of the server")
	flag.StringVar(&o.serverDevice, "server-device", "", "device of the server, where it has another name")
	flag.StringVar(&o.args, "args", "", "further options of perftest")
	flag.StringVar(&o.serverArgs, "server-args", "", "those of the server, where they differ: -x, for one")
	flag.BoolVar(&o.sudo, "sudo", false, "run programs of the hosts by sudo, which must ask nothing")
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

// keep copies the figures that this run has not measured from the file.
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

// A part can be selected with -only. If it cannot start, the failure is recorded for
// one of its places.
type part struct {
	name, place string
	do          func(context.Context) error
	games       []game // of perftest
}

// fail records a measurement that failed.
func (b *bench) fail(part, what string, err error) {
	if err == nil {
		return
	}
	b.logf("%s, %s: FAILED: %v", part, what, err)
	b.run.Failures = append(b.run.Failures, results.Failure{Part: part, What: what, Why: err.Error()})
}

// all runs the selected parts. If a part fails, the others still run. The figures so
// far are always written.
func (b *bench) all(ctx context.Context) (err error) {
	if err := b.describe(ctx); err != nil {
		return err
	}
	if err := b.check(); err != nil {
		return err
	}
	parts, err := b.parts()
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "goverbs-bench"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	for _, p := range parts {
		b.logf("%s", p.name)
		err := p.do(ctx)
		if errors.Is(err, errLacks) {
			return err
		}
		b.fail(p.place, "", err)
		if ctx.Err() != nil {
			break
		}
	}
	return b.finish()
}

// finish writes the figures. It returns an error if something failed.
func (b *bench) finish() error {
	var failed []string
	for _, f := range b.run.Failures {
		failed = append(failed, f.Part+" "+f.What)
	}
	if len(b.run.Measured()) == 0 {
		return fmt.Errorf("nothing was measured, and %s is unchanged; failures: %s", b.options.out,
			strings.Join(failed, "; "))
	}
	if err := b.keep(); err != nil {
		return err
	}
	if err := b.run.Write(b.options.out); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("some measurements failed: %s", strings.Join(failed, "; "))
	}
	return nil
}
