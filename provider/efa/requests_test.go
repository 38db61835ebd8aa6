package efa

import (
	"runtime"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// A poll returns the WRID of the request that it completes, although a post uses its number again at once. The
// race detector finds an access that is not ordered.
func TestWRIDOfReusedNumber(t *testing.T) {
	const n = 2000
	var r requests
	r.init(1)
	go func() {
		for i := range uint64(n) {
			for r.full(0) {
				runtime.Gosched()
			}
			r.number(0, i)
			r.take()
			r.publish()
		}
	}()
	for want := range uint64(n) {
		got, ok := r.release(0)
		for ; !ok; got, ok = r.release(0) {
			runtime.Gosched()
		}
		if got != want {
			t.Fatalf("release: WRID %d, want %d", got, want)
		}
	}
}

// A number of a request that has not been submitted cannot be completed, whatever the device says.
func TestCompletedBeforeSubmit(t *testing.T) {
	b := newBench(t, 1)
	add := func() {
		b.qp.OpInline(uverbs.OpSend, uverbs.Signaled, 77, 0, 0, []byte("x"))
		b.qp.UDAddr(b.ah, 1, 2)
	}
	add()
	if wrID, ok := b.qp.sq.release(0); ok {
		t.Errorf("a request that is only being added completes, with WRID %d", wrID)
	}
	b.qp.Abort()
	if n := b.qp.SendsOutstanding(); n != 0 {
		t.Errorf("%d sends are outstanding", n)
	}
	for range benchSends + 1 {
		add()
	}
	if err := b.qp.Submit(); err != uverbs.ErrQueueFull {
		t.Errorf("Submit of one request too many: %v", err)
	}
}
