// Waits measures a WRITE and the wait for its completion, while other queues have
// waits too, and no completions. Each idle queue is a CQ with a goroutine that waits
// for it. Beyond a quarter of the descriptors that the process may open, they share completion channels.
//
//	waits -d rxe0 -idle 10000 -n 500
//
// The figure is microseconds for each WRITE, the smallest average of several
// rounds. testbed/speed/testdata/waits.c does the same in C, where one thread waits
// for the events of all queues.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/goverbs/goverbs/bench/kit"
	"github.com/goverbs/goverbs/uverbs"
)

const rounds = 5

func main() { kit.Main("waits", run) }

func run(args []string) error {
	flags := flag.NewFlagSet("waits", flag.ContinueOnError)
	device := flags.String("d", "mlx5_0", "device")
	idle := flags.Int("idle", 0, "number of idle queues")
	count := flags.Int("n", 500, "number of WRITEs in a round")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *idle < 0 || *count < 1 || flags.NArg() > 0 {
		return errors.New("-idle must not be negative, -n must be at least 1, and there must be no argument")
	}
	debug.SetGCPercent(-1) // do not measure garbage collections
	return kit.OnDevice(*device, func(ctx *uverbs.Context) error { return measure(ctx, *idle, *count) })
}

func measure(ctx *uverbs.Context, idle, count int) error {
	w, err := newWriter(ctx)
	if err != nil {
		return err
	}
	stop, err := waitFor(ctx, idle)
	if err != nil {
		return err
	}
	best, err := w.measure(count)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	_, err = fmt.Printf("wait %.2f\n", float64(best.Nanoseconds())/1000/float64(count))
	return err
}

// waitFor creates idle queues, and a goroutine for each that waits. stop ends the
// waits. It returns the errors of those that ended before.
func waitFor(device *uverbs.Context, count int) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var waits sync.WaitGroup
	ended := make([]error, count)
	for i := range count {
		cq, err := device.CreateCQ(uverbs.CQConfig{Entries: 1})
		if err != nil {
			cancel()
			return nil, fmt.Errorf("idle queue %d: %w", i+1, err)
		}
		waits.Go(func() {
			if err := cq.Wait(ctx); !errors.Is(err, context.Canceled) {
				ended[i] = fmt.Errorf("the wait for idle queue %d ended: %w", i+1, err)
			}
		})
	}
	return func() error {
		cancel()
		waits.Wait()
		return errors.Join(ended...)
	}, nil
}

// A writer is a QP that writes to itself.
type writer struct {
	qp *uverbs.QP
	cq *uverbs.CQ
	wr uverbs.SendWR
}

func newWriter(ctx *uverbs.Context) (*writer, error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	const size = 32
	mr, err := pd.Alloc(2*size, uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		return nil, err
	}
	w := &writer{}
	if w.cq, err = ctx.CreateCQ(uverbs.CQConfig{Entries: 16}); err != nil {
		return nil, err
	}
	w.wr = uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{mr.SGE(0, size)},
		RemoteAddr: mr.Addr() + size, RKey: mr.RKey()}
	w.qp, err = kit.CreateLoop(pd, uverbs.QPConfig{Type: uverbs.RC, SendCQ: w.cq, MaxSendWR: 16, MaxRecvWR: 1,
		Access: uverbs.RemoteWrite})
	return w, err
}

// measure returns the time of the fastest round of count WRITEs. The first round
// also parks the goroutines of the idle queues, and is not measured.
func (w *writer) measure(count int) (best time.Duration, err error) {
	best = time.Hour
	wcs := make([]uverbs.WC, 1)
	for i := range rounds + 1 {
		began := time.Now()
		for range count {
			if _, err := w.qp.PostSend(w.wr); err != nil {
				return 0, err
			}
			if _, err := w.cq.PollWait(context.Background(), wcs); err != nil {
				return 0, err
			}
			if err := wcs[0].Err(); err != nil {
				return 0, err
			}
		}
		if took := time.Since(began); i > 0 && took < best {
			best = took
		}
	}
	return best, nil
}
