package uverbs

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestChaos creates and closes CQs, channels and QPs concurrently, with waits that are
// canceled, completions and resizing. Then the device is removed under some of them, and the
// Context is closed under the rest. Before that, no object may report that the device is gone.
func TestChaos(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()
		if !t.Run("", func(t *testing.T) { chaos(t, seed) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func chaos(t *testing.T, seed uint64) {
	const actors, steps = 6, 15
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var removed, closing atomic.Bool
	allowed := func(err error) bool {
		for _, e := range []error{nil, context.DeadlineExceeded, ErrBusy} {
			if errors.Is(err, e) {
				return true
			}
		}
		return removed.Load() && errors.Is(err, ErrDeviceGone) || closing.Load() && errors.Is(err, ErrClosed)
	}
	pd := good(r.c.AllocPD())(t)
	witness := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	var all sync.WaitGroup
	var halfway sync.WaitGroup
	halfway.Add(actors)
	for i := range actors {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			once := sync.OnceFunc(halfway.Done)
			defer once()
			for k := 0; k < steps && ctx.Err() == nil; k++ {
				if k == steps/2 {
					once()
				}
				for _, err := range episode(ctx, r, pd, rng) {
					if !allowed(err) {
						t.Errorf("actor %d, step %d, removed %t, closing %t: %v", i, k, removed.Load(), closing.Load(), err)
						return
					}
				}
			}
		})
	}
	halfway.Wait()
	if _, err := witness.Poll(make([]WC, 1)); err != nil {
		t.Errorf("a CQ that nobody touched: %v", err)
	}
	if seed%2 == 0 {
		removed.Store(true)
		r.k.Unplug()
	}
	if seed%4 < 2 {
		closing.Store(true)
		check(t, r.c.Close())
	}
	all.Wait()
	check(t, ctx.Err())
}

// episode creates, uses and closes a channel with two CQs and a QP. It returns the errors of
// all calls, except those that result from its own Close of a CQ.
func episode(ctx context.Context, r *rig, pd *PD, rng *rand.Rand) []error {
	ch, err := r.c.CreateCompChannel()
	if err != nil {
		return []error{err}
	}
	var cqs [2]*CQ
	for i := range cqs {
		if cqs[i], err = r.c.CreateCQ(CQConfig{Entries: 16, Channel: ch}); err != nil {
			return append(closeAll(ch, cqs[:i]), err)
		}
	}
	qp, err := pd.CreateQP(QPConfig{Type: UD, SendCQ: cqs[0], RecvCQ: cqs[1], MaxSendWR: 4, MaxRecvWR: 4})
	if err != nil {
		return append(closeAll(ch, cqs[:]), err)
	}
	var wg sync.WaitGroup
	var under [4]error
	for i, cq := range []*CQ{cqs[0], cqs[1], cqs[rng.IntN(2)]} {
		patience := time.Duration(rng.IntN(2000)) * time.Microsecond
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			_, under[i] = cq.PollWait(ctx, make([]WC, 2))
		})
	}
	resize := rng.IntN(2) == 0
	wg.Go(func() {
		_ = r.k.Complete(cqs[0].handle) // spurious, or of a CQ that is closed
		if resize {
			under[3] = cqs[1].Resize(32)
		}
	})
	if rng.IntN(2) == 0 {
		wg.Wait()
	}
	errs := closeAll(ch, cqs[:], qp.Close())
	wg.Wait()
	for _, e := range under {
		if !errors.Is(e, ErrClosed) { // the CQ was closed meanwhile
			errs = append(errs, e)
		}
	}
	return errs
}

// closeAll closes CQs and their channel concurrently and appends the errors to errs. The
// channel is busy until the CQs are closed.
func closeAll(ch *CompChannel, cqs []*CQ, errs ...error) []error {
	var wg sync.WaitGroup
	closed := make([]error, len(cqs))
	for i, cq := range cqs {
		wg.Go(func() { closed[i] = cq.Close() })
	}
	err := ch.Close()
	for errors.Is(err, ErrBusy) {
		err = ch.Close()
	}
	wg.Wait()
	return append(append(errs, closed...), err)
}
