package uverbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRawWQERefused checks that a provider without a format of its own refuses the batch, and that the queue then
// accepts requests.
func TestRawWQERefused(t *testing.T) {
	for _, single := range []bool{false, true} {
		b := newRig(t).bundle(t, single)
		s := b.qp.StartSend()
		s.Send(1, Signaled)
		s.RawWQE(2, make([]byte, 64))
		s.Send(3, Signaled)
		s.RawWQE(4, nil)
		if err := s.Submit(); !errors.Is(err, ErrOpNotSupported) {
			t.Errorf("Submit: %v, want ErrOpNotSupported", err)
		}
		s = b.qp.StartSend()
		s.Send(5, Signaled)
		check(t, s.Submit())
		wcs := make([]WC, 8)
		if n := good(b.cq.Poll(wcs))(t); n != 1 || wcs[0].WRID != 5 {
			t.Errorf("%d completions, the first of %d; want that of 5", n, wcs[0].WRID)
		}
	}
}

// TestPostDuringBatch checks that posts fail while a batch is open, and that the batch is posted
// unchanged. On a single-goroutine QP no lock keeps posts from overwriting the requests of the
// batch.
func TestPostDuringBatch(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, true)
	wcs := make([]WC, 8)
	for name, end := range map[string]func(*SendBatch) error{
		"Submit": (*SendBatch).Submit,
		"Abort":  func(s *SendBatch) error { s.Abort(); return nil },
	} {
		s := b.qp.StartSend()
		s.Send(1, Signaled)
		if n, err := b.qp.PostSend(SendWR{WRID: 2, Flags: Signaled}); n != 0 || !errors.Is(err, ErrBusy) ||
			!errors.Is(err, unix.EBUSY) {
			t.Errorf("PostSend during a batch: %d, %v, want ErrBusy", n, err)
		}
		inner := b.qp.StartSend()
		inner.Send(3, Signaled)
		if err := inner.Submit(); !errors.Is(err, ErrBusy) {
			t.Errorf("a batch during a batch: %v, want ErrBusy", err)
		}
		inner = b.qp.StartSend()
		inner.Abort()
		check(t, second(b.qp.PostRecv(RecvWR{})))
		check(t, end(&s))
		check(t, second(b.qp.PostSend(SendWR{WRID: 4, Flags: Signaled})))
		n := good(b.cq.Poll(wcs))(t)
		if name == "Submit" {
			if n == 0 || wcs[0].WRID != 1 {
				t.Fatalf("the batch is lost: %d completions, %+v", n, wcs[0])
			}
			n--
		}
		if n != 1 {
			t.Errorf("after %s: %d completions", name, n)
		}
	}
}
