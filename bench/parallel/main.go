// Parallel measures posts of many goroutines at the same time, each on a QP of its
// own. A ConnectX has a small number of BlueFlame registers, which QPs share from
// a certain number on.
//
//	parallel -d mlx5_0 -qps 64
//
// The figure is nanoseconds for each WRITE of 32 bytes inline, the median of many
// lists of them. testbed/speed/testdata/parallel.c does the same in C, with a thread
// for each QP.
package main

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/bench/kit"
	"github.com/goverbs/goverbs/uverbs"
)

const (
	each    = 16   // WRITEs between two waits
	size    = 32   // bytes of a WRITE
	samples = 2000 // lists of WRITEs of all goroutines together
	least   = 20   // lists of WRITEs of a goroutine
)

func main() { kit.Main("parallel", run) }

func run(args []string) error {
	flags := flag.NewFlagSet("parallel", flag.ContinueOnError)
	device := flags.String("d", "mlx5_0", "device")
	qps := flags.Int("qps", 1, "number of QPs, and of goroutines")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *qps < 1 || flags.NArg() > 0 {
		return errors.New("-qps must be at least 1, and there must be no argument")
	}
	debug.SetGCPercent(-1) // do not measure garbage collections
	return kit.OnDevice(*device, func(ctx *uverbs.Context) error { return measureAll(ctx, *qps) })
}

func measureAll(ctx *uverbs.Context, qps int) error {
	writers, err := newWriters(ctx, qps)
	if err != nil {
		return err
	}
	median, err := measure(writers)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("post %.1f\n", float64(median.Nanoseconds())/each)
	return err
}

// A writer is a QP that writes to itself.
type writer struct {
	qp   *uverbs.QP
	cq   *uverbs.CQ
	wr   uverbs.SendWR
	took []time.Duration
}

func newWriters(ctx *uverbs.Context, count int) ([]*writer, error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	mr, err := pd.Alloc(size, uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		return nil, err
	}
	var writers []*writer
	for i := range count {
		w := &writer{wr: uverbs.SendWR{Opcode: uverbs.OpWrite, Inline: make([]byte, size), RemoteAddr: mr.Addr(),
			RKey: mr.RKey()}}
		if w.cq, err = ctx.CreateCQ(uverbs.CQConfig{Entries: 1, NoEvents: true}); err == nil {
			w.qp, err = kit.CreateLoop(pd, uverbs.QPConfig{Type: uverbs.RC, SendCQ: w.cq, MaxSendWR: 2 * each,
				MaxInline: size, Access: uverbs.RemoteWrite})
		}
		if err != nil {
			return nil, fmt.Errorf("queue pair %d: %w", i+1, err)
		}
		writers = append(writers, w)
	}
	return writers, nil
}

// measure returns the median time of each WRITEs.
func measure(writers []*writer) (time.Duration, error) {
	lists := max(least, samples/len(writers))
	failed := make([]error, len(writers))
	var running sync.WaitGroup
	for i, w := range writers {
		running.Go(func() { failed[i] = w.write(lists) })
	}
	running.Wait()
	if err := errors.Join(failed...); err != nil {
		return 0, err
	}
	var all []time.Duration
	for _, w := range writers {
		all = append(all, w.took...)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// write posts lists of WRITEs one by one. Only the last of a list has a completion,
// for which write waits. The first list touches the pages of the rings, and is not
// measured.
func (w *writer) write(lists int) error {
	for list := range lists + 1 {
		began := time.Now()
		for i := range each {
			w.wr.Flags = 0
			if i == each-1 {
				w.wr.Flags = uverbs.Signaled
			}
			if _, err := w.qp.PostSend(w.wr); err != nil {
				return err
			}
		}
		if list > 0 {
			w.took = append(w.took, time.Since(began))
		}
		if err := w.complete(); err != nil {
			return err
		}
	}
	return nil
}

// complete polls until there is a completion. Other goroutines run between polls.
func (w *writer) complete() error {
	var wcs [1]uverbs.WC
	for {
		n, err := w.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		if n > 0 {
			return wcs[0].Err()
		}
		runtime.Gosched()
	}
}
