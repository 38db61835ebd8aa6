// Cost measures what calls of valkey-go to a Valkey server cost: the CPU time of the process, and the time of a call.
// If the clock counts instructions (QEMU's -icount), the CPU time is instructions.
//
//	cost -addr 10.9.0.1:6379 -rdma
//	cost -addr 10.9.0.1:6380
//
// A figure is the median of several rounds, for one command. TestFigures also builds it with valkey-go's own package
// valkeyrdma, which uses C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/valkey-io/valkey-go"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/bench/results"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/valkeyrdma"
)

func main() {
	addr := flag.String("addr", "10.9.0.1:6379", "address of the server")
	rdma := flag.Bool("rdma", false, "RDMA instead of TCP")
	rounds := flag.Int("rounds", 5, "number of rounds")
	flag.Parse()
	debug.SetGCPercent(-1) // do not measure garbage collections
	runtime.GOMAXPROCS(1)
	if err := run(*addr, *rdma, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

func run(addr string, rdma bool, rounds int) error {
	o := valkey.ClientOption{InitAddress: []string{addr}, DisableCache: true, DisableRetry: true}
	if rdma {
		o.DialCtxFn = valkeyrdma.DialCtxFn
	}
	c, err := valkey.NewClient(o)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, op := range operations(c) {
		var cpu, wall []float64
		for range rounds {
			runtime.GC()
			one, all, err := cost(op)
			if err != nil {
				return fmt.Errorf("%s: %w", op.name, err)
			}
			cpu, wall = append(cpu, one), append(wall, all)
		}
		fmt.Printf("%s cpu %.0f time %.0f\n", op.name, results.Quantile(cpu, 0.5), results.Quantile(wall, 0.5))
	}
	return nil
}

// An operation is measured.
type operation struct {
	name  string
	count int // in a round
	of    int // commands in it
	run   func() error
}

// A value of 1 MiB fills the buffer of an end of a connection.
const small, large, pipeline = 64, 1 << 20, 64

func operations(c valkey.Client) []operation {
	set := func(key string, n int) func() error {
		value := valkey.BinaryString(make([]byte, n))
		return func() error {
			return c.Do(context.Background(), c.B().Set().Key(key).Value(value).Build()).Error()
		}
	}
	setSmall, setLarge := set("small", small), set("large", large)
	return []operation{
		{"SET-64B", 100, 1, setSmall},
		{"GET-64B", 100, 1, func() error { return get(c, "small", small, 1) }},
		{"GET-64x64B", 4, pipeline, func() error { return get(c, "small", small, pipeline) }},
		{"SET-1MiB", 5, 1, setLarge},
		{"GET-1MiB", 5, 1, func() error { return get(c, "large", large, 1) }},
	}
}

// get reads a value of n bytes, with several commands at once.
func get(c valkey.Client, key string, n, commands int) error {
	cmds := make(valkey.Commands, commands)
	for i := range cmds {
		cmds[i] = c.B().Get().Key(key).Build()
	}
	for _, resp := range c.DoMulti(context.Background(), cmds...) {
		s, err := resp.ToString()
		if err == nil && len(s) != n {
			err = fmt.Errorf("%d bytes instead of %d", len(s), n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cost returns the CPU time and the time of one command.
func cost(op operation) (cpu, wall float64, err error) {
	if err := op.run(); err != nil { // what follows begins in the same state
		return 0, 0, err
	}
	began, err := cpuTime()
	start := time.Now()
	for range op.count {
		if err := op.run(); err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(start)
	ended, err2 := cpuTime()
	n := float64(op.count * op.of)
	return float64(ended-began) / n, float64(took.Nanoseconds()) / n, errors.Join(err, err2)
}

func cpuTime() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano(), err
}
