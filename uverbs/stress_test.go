package uverbs

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestStress posts lists and batches to two QPs, which complete to two CQs, from many goroutines.
// Others wait for the completions while the CQs are resized. Every request must complete once, and
// every wait must end.
func TestStress(t *testing.T) {
	const posters, waiters, each = 6, 6, 300
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pd := good(r.c.AllocPD())(t)
	ah := good(pd.CreateAH(somewhere))(t)
	var cqs [2]*CQ
	var qps [2]*QP
	for i, typ := range []QPType{RC, UD} {
		cqs[i] = good(r.c.CreateCQ(CQConfig{Entries: 64}))(t)
		qps[i] = good(pd.CreateQP(QPConfig{Type: typ, SendCQ: cqs[i], MaxSendWR: 32}))(t)
	}
	check(t, qps[0].Connect(good(qps[0].Endpoint())(t)))
	check(t, qps[1].Ready())

	var seen [2][posters * each]atomic.Int32
	var left atomic.Int64
	left.Store(2 * posters * each)
	done, finish := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range 2 {
		credits := make(chan struct{}, 60) // fewer than the CQ has room for
		for p := range posters {
			wg.Go(func() { postEach(t, ctx, qps[i], ah, uint64(p*each), each, credits) })
		}
		for range waiters {
			wg.Go(func() {
				var wcs [4]WC
				for {
					n, err := cqs[i].PollWait(done, wcs[:])
					if err != nil {
						return
					}
					for _, wc := range wcs[:n] {
						seen[i][wc.WRID].Add(1)
						<-credits
					}
					if left.Add(int64(-n)) == 0 {
						finish()
					}
				}
			})
		}
		wg.Go(func() {
			for n := 0; done.Err() == nil; n++ {
				if err := cqs[i].Resize(64 + n%2*100); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	finish()
	if err := ctx.Err(); err != nil {
		t.Errorf("%d requests have not completed: %v", left.Load(), err)
	}
	for i := range seen {
		for id := range seen[i] {
			if n := seen[i][id].Load(); n != 1 {
				t.Fatalf("request %d of %v completed %d times", id, qps[i], n)
			}
		}
	}
}

// postEach posts n requests whose WRIDs begin at first.
func postEach(t *testing.T, ctx context.Context, q *QP, ah *AH, first uint64, n int, credits chan struct{}) {
	for k := range n {
		select {
		case credits <- struct{}{}:
		case <-ctx.Done():
			return
		}
		id := first + uint64(k)
		var err error
		if k%2 == 0 {
			_, err = q.PostSend(SendWR{WRID: id, Opcode: OpSend, Flags: Signaled, AH: ah})
		} else {
			b := q.StartSend()
			b.Send(id, Signaled)
			if q.cfg.Type == UD {
				b.UDAddr(ah, 1, 1)
			}
			err = b.Submit()
		}
		if err != nil {
			t.Error(fmt.Errorf("posting %d: %w", id, err))
			<-credits
			return
		}
	}
}
