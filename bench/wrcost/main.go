// Wrcost measures the cost of posting and polling for each work request, through
// the public API, on QPs that are connected to themselves. The figures are
// instructions if the clock counts instructions (QEMU's -icount), and nanoseconds
// otherwise.
//
//	wrcost -d mlx5_0               # queues with locks
//	wrcost -d mlx5_0 -single       # SingleGoroutine queues
//	wrcost -d mlx5_0 -qps 10000    # posts to 128 of 10,000 QPs
//	wrcost -d mlx5_0 -types        # requests of UD and XRC, and atomics, binds and invalidations
//	wrcost -d mlx5_0 -dc           # WRITEs of a DCI
//	wrcost -d mlx5_0 -memory 10000 # memory for each QP and CQ instead
//
// Each figure is the smallest of several rounds of 128 requests. It includes the
// caller's loop but not the cost of reading the clock.
package main

import (
	"flag"
	"fmt"
	"runtime/debug"

	"github.com/goverbs/goverbs/bench/kit"
	"github.com/goverbs/goverbs/uverbs"
)

func main() { kit.Main("wrcost", run) }

func run(args []string) error {
	flags := flag.NewFlagSet("wrcost", flag.ContinueOnError)
	device := flags.String("d", "mlx5_0", "device")
	single := flags.Bool("single", false, "use SingleGoroutine queues")
	qps := flags.Int("qps", 1, "number of queue pairs")
	dc := flags.Bool("dc", false, "measure requests of a DCI instead")
	types := flags.Bool("types", false, "measure requests of other types of QPs, and other requests, instead")
	memory := flags.Int("memory", 0, "measure the memory of this many QPs and CQs instead")
	rounds := flags.Int("rounds", 10, "number of rounds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *qps < 1 || *rounds < 1 || *rounds > maxRounds || *memory < 0 || flags.NArg() > 0 {
		return fmt.Errorf("-qps and -rounds must be at least 1, -rounds at most %d, and there must be no argument", maxRounds)
	}
	debug.SetGCPercent(-1) // do not measure garbage collections
	return kit.OnDevice(*device, func(ctx *uverbs.Context) error {
		if *memory > 0 {
			return measureMemory(ctx, *memory)
		}
		if *dc || *types {
			b, err := newTypeBench(ctx, *single, *dc)
			if err != nil {
				return err
			}
			return b.measure(*rounds)
		}
		b, err := newBench(ctx, *qps, *single)
		if err != nil {
			return err
		}
		return b.measure(*rounds)
	})
}
