package rxe

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

func TestDoorbellRefused(t *testing.T) {
	wrs := slices.Repeat([]uverbs.SendWR{{Opcode: uverbs.OpSend}}, 3)
	bad := append(slices.Clone(wrs), uverbs.SendWR{Opcode: 10})
	for _, c := range []struct{ refuse, want error }{
		{unix.EINVAL, uverbs.ErrState}, {unix.EINVAL, unix.EINVAL}, {unix.EIO, unix.EIO},
		{unix.ENOMEM, unix.ENOMEM}, {os.ErrClosed, uverbs.ErrClosed},
	} {
		t.Run(fmt.Sprint(c.refuse), func(t *testing.T) {
			k, q, _ := newKernel(t, goldenCap, 15)
			k.refuse = c.refuse
			if n, err := q.PostSend(wrs); n != 3 || !errors.Is(err, c.want) || k.sq.count() != 3 {
				t.Errorf("PostSend: %d, %v, %d published", n, err, k.sq.count())
			}
			if n, err := q.PostSend(bad); n != 3 || !errors.Is(err, c.want) || k.sq.count() != 6 {
				t.Errorf("PostSend with a bad request: %d, %v, %d published", n, err, k.sq.count())
			}
			q.Begin()
			addToBatch(q, &wrs[0])
			if err := q.Submit(); !errors.Is(err, c.want) || k.sq.count() != 7 {
				t.Errorf("Submit: %v, %d published", err, k.sq.count())
			}
			q.Retire(true)
			if _, err := q.PostSend(wrs); !errors.Is(err, uverbs.ErrClosed) {
				t.Errorf("PostSend after Retire: %v", err)
			}
		})
	}
}

func TestReset(t *testing.T) {
	k, q, c := newKernel(t, testCap(7, 7, 1, 0), 63)
	for lap := range 5 {
		send := slices.Repeat([]uverbs.SendWR{{Opcode: uverbs.OpWrite}}, 7)
		recv := make([]uverbs.RecvWR, 7)
		if n, err := q.PostSend(send); n != 7 || err != nil {
			t.Fatalf("PostSend: %d, %v", n, err)
		}
		if n, err := q.PostRecv(recv); n != 7 || err != nil {
			t.Fatalf("PostRecv: %d, %v", n, err)
		}
		k.reset()
		q.Reset()
		if k.resets != 2*(lap+1) {
			t.Errorf("moved to RESET %d times, want it twice in each lap", k.resets)
		}
		if q.sq.full(q.sq.next(q.sq.cur)) || len(poll(t, c)) != 0 {
			t.Fatal("Reset left something behind")
		}
		// One more request, so that the next round begins at another element.
		q.PostSend([]uverbs.SendWR{{WRID: 9, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled}})
		k.run()
		if wcs := poll(t, c); len(wcs) != 1 || wcs[0].WRID != 9 || wcs[0].Err() != nil {
			t.Fatalf("after Reset: %v", wcs)
		}
	}
}

// TestRetireUnderPost checks that posts that run concurrently with Retire do not fault.
func TestRetireUnderPost(t *testing.T) {
	for range 50 {
		_, q, _ := newKernel(t, goldenCap, 15)
		q.sq.bell = quiet{}
		var stop atomic.Bool
		var started, done sync.WaitGroup
		straggle := func(post func()) {
			started.Add(1)
			done.Go(func() {
				post()
				started.Done()
				for !stop.Load() {
					post()
				}
			})
		}
		straggle(func() {
			q.PostSend([]uverbs.SendWR{golden[0].wr, golden[6].wr})
			q.Begin()
			addToBatch(q, &golden[3].wr)
			q.Submit()
		})
		straggle(func() { q.PostRecv([]uverbs.RecvWR{{WRID: 1, SGL: golden[3].wr.SGL}}) })
		started.Wait()
		if err := q.Retire(true); err != nil {
			t.Fatal(err)
		}
		stop.Store(true)
		done.Wait()
	}
}

func TestNoReceiveQueue(t *testing.T) {
	q := newQP(ringOf(t, 7, 256), ring{}, goldenCap, quiet{})
	if n, err := q.PostRecv(make([]uverbs.RecvWR, 1)); n != 0 || !errors.Is(err, uverbs.ErrSRQ) {
		t.Errorf("PostRecv: %d, %v", n, err)
	}
	q.Reset()
	if err := q.Retire(true); err != nil {
		t.Error(err)
	}
}

func ringOf(t testing.TB, n, size int) ring {
	t.Helper()
	_, m := newKernelRing(t, n, size, false)
	r, err := newRing("test", m, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFlushRecv checks that FlushRecv flushes receives that are posted in state ERR.
func TestFlushRecv(t *testing.T) {
	k, q, c := newKernel(t, testCap(3, 3, 1, 0), 7)
	k.flush()
	if n, err := q.PostRecv([]uverbs.RecvWR{{WRID: 5}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	var f driver.Flusher = q
	if err := f.FlushRecv(); err != nil {
		t.Fatal(err)
	}
	var wcs [2]uverbs.WC
	if n, err := c.Poll(wcs[:]); n != 1 || err != nil || wcs[0].WRID != 5 || wcs[0].Status != uverbs.WCWRFlushErr {
		t.Errorf("%d completions, %v, %+v", n, err, wcs[0])
	}
}
