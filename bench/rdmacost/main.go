// Rdmacost measures what package rdma costs beside the same work on package cm, in CPU time of the process: both ends
// of a connection of a device with itself. If the clock counts instructions (QEMU's -icount), the figures are
// instructions, and nanoseconds otherwise.
//
//	rdmacost -addr 10.9.0.1
//	rdmacost -addr 10.9.0.1 -tail 2000 -level cm
//
// Each figure is the median of several rounds, for one operation: rdma's, cm's and their ratio. With -tail, figures
// are quantiles of the times of single operations of one level, in microseconds, of small messages also beside a
// goroutine that churns the heap.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/bench/results"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	addr := flag.String("addr", "10.9.0.1", "address of the device")
	rounds := flag.Int("rounds", 25, "number of rounds")
	tail := flag.Int("tail", 0, "measure the times of this many single operations instead")
	name := flag.String("level", "rdma", "rdma or cm, of which times are measured")
	flag.Parse()
	err := errors.New("usage: rdmacost [-addr address] [-rounds n] [-tail n [-level rdma|cm]]")
	switch {
	case flag.NArg() > 0 || *rounds < 1 || *tail < 0 || *name != "rdma" && *name != "cm":
	case *tail > 0:
		err = runTails(*addr, *name, *tail)
	default:
		err = run(*addr, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rdmacost:", err)
		os.Exit(1)
	}
}

// Figures of messages of 1 MiB are with receives of this length, as cm's are, and by an offer, as is the default.

// A level is package rdma or package cm. Its functions carry out one operation. A message is echoed with one of 64
// bytes.
type level interface {
	read() error
	write() error
	small() error
	large() error
	close() error
}

const (
	smallSize = 64
	largeSize = 1 << 20
)

func run(addr string, rounds int) (err error) {
	debug.SetGCPercent(-1) // do not measure garbage collections
	runtime.GOMAXPROCS(1)
	// A clock that counts instructions leaps while the machine idles, so there are no deadlines.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	easy, err := newEasy(ctx, addr, &rdma.Options{KeepAlive: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, easy.close()) }()
	eager, err := newEasy(ctx, addr, &rdma.Options{KeepAlive: -1, EagerSize: largeSize, Depth: slots})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eager.close()) }()
	hand, err := newHand(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hand.close()) }()
	for _, m := range []struct {
		name  string
		with  level
		count int
		f     func(level) error
	}{
		{"read", easy, 150, level.read}, {"write", easy, 150, level.write}, {"small", easy, 150, level.small},
		{"large", eager, 20, level.large}, {"offered", easy, 20, level.large},
	} {
		var all [2][]float64
		for range rounds {
			for i, l := range []level{m.with, hand} {
				d, err := cost(l, m.count, m.f)
				if err != nil {
					return fmt.Errorf("%s: %w", m.name, err)
				}
				all[i] = append(all[i], d)
			}
		}
		ours, byHand := results.Quantile(all[0], 0.5), results.Quantile(all[1], 0.5)
		fmt.Printf("%s_rdma %.0f\n%s_cm %.0f\n%s_ratio %.3f\n", m.name, ours, m.name, byHand, m.name, ours/byHand)
	}
	return nil
}

// runTails measures times. The clock is that of a machine that idles, and collections run only where they are measured.
func runTails(addr, name string, count int) (err error) {
	debug.SetGCPercent(-1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var l level
	if name == "cm" {
		l, err = newHand(ctx, addr)
	} else {
		l, err = newEasy(ctx, addr, nil)
	}
	if err != nil {
		return err
	}
	return errors.Join(tails(l, count), l.close())
}

// cost returns the CPU time of one operation.
func cost(l level, count int, f func(level) error) (float64, error) {
	if err := f(l); err != nil { // what follows begins in the same state
		return 0, err
	}
	start, err := cpuTime()
	if err != nil {
		return 0, err
	}
	for range count {
		if err := f(l); err != nil {
			return 0, err
		}
	}
	end, err := cpuTime()
	return float64(end-start) / float64(count), err
}

func cpuTime() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano(), err
}
