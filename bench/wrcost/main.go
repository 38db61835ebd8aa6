// Wrcost measures what posting and polling cost per work request, through the
// public API, on queue pairs that are connected to themselves. Where the clock
// counts instructions (QEMU's -icount) the figures are instructions; elsewhere
// they are nanoseconds.
//
//	wrcost -d mlx5_0               # queues with locks
//	wrcost -d mlx5_0 -single       # SingleGoroutine
//	wrcost -d mlx5_0 -qps 10000    # posts go to 128 queue pairs of so many
//	wrcost -d mlx5_0 -memory 10000 # memory per QP and per CQ instead
//
// Each figure is the smallest of several rounds of 128 requests, with the loop of
// the caller and without what reading the clock costs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wrcost:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	flags := flag.NewFlagSet("wrcost", flag.ContinueOnError)
	device := flags.String("d", "mlx5_0", "device")
	single := flags.Bool("single", false, "queues of a single goroutine")
	qps := flags.Int("qps", 1, "queue pairs")
	memory := flags.Int("memory", 0, "how many QPs and CQs to weigh, instead")
	rounds := flags.Int("rounds", 10, "rounds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *qps < 1 || *rounds < 1 || *rounds > maxRounds || *memory < 0 || flags.NArg() > 0 {
		return fmt.Errorf("want -qps and -rounds of at least 1, -rounds of at most %d and no argument", maxRounds)
	}
	debug.SetGCPercent(-1) // a collection is no part of a request
	ctx, err := uverbs.Open(*device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	if *memory > 0 {
		return weigh(ctx, *memory)
	}
	b, err := newBench(ctx, *qps, *single)
	if err != nil {
		return err
	}
	return b.measure(*rounds)
}
