package efa

import (
	"runtime"
	"testing"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// A poll returns the WRID of the request that it completes, although a post uses its number again at once. The
// race detector finds an access that is not ordered.
func TestWRIDOfReusedNumber(t *testing.T) {
	const n = 2000
	var r requests
	r.init(1, 0)
	go func() {
		for i := range uint64(n) {
			for r.full(0) {
				runtime.Gosched()
			}
			r.id(0, i)
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
	if wrID, ok := b.qp.sq.release(uint16(b.qp.sq.base.Load())); ok {
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

// complete writes the completion of a send to the CQ.
func (b *bench) complete(at int, id uint16) {
	b.cq.subs[0].ring[at][0] = uint64(id) | phase | ofSend | benchQPN<<numberAt
}

// A QP gets the number of another one, which has been destroyed but not yet retired: the completions of the new
// one are polled, and those of the old one are dropped.
func TestNumberOfDestroyedQP(t *testing.T) {
	old, b := newBench(t, 1), newBench(t, 1)
	ctx := old.ctx
	b.qp.ctx, b.cq.ctx = ctx, ctx
	if err := b.qp.Reset(); err != nil {
		t.Fatal(err)
	}
	ctx.qps.put(b.qp)
	var ids []uint16
	for i, q := range []*qp{old.qp, b.qp} {
		ids = append(ids, q.sq.id(0, uint64(i)))
		q.OpInline(uverbs.OpSend, uverbs.Signaled, uint64(i), 0, 0, []byte("x"))
		q.UDAddr([]*bench{old, b}[i].ah, 1, 2)
		if err := q.Submit(); err != nil {
			t.Fatal(err)
		}
	}
	b.cq.Purge(old.qp)
	ctx.qps.remove(old.qp)
	b.complete(0, ids[0])
	b.complete(1, ids[1])
	if sends, _ := b.cq.Unpolled(b.qp); sends != 1 {
		t.Errorf("%d sends have completed", sends)
	}
	wcs := make([]uverbs.WC, 2)
	if n, err := b.cq.Poll(wcs); n != 1 || err != nil || wcs[0].WRID != 1 {
		t.Errorf("Poll: %d, %v, %+v", n, err, wcs[0])
	}
}

// Completions of a QP that is gone are dropped. Those of a QPN that no QP had are an error.
func TestUnknownQPN(t *testing.T) {
	b := newBench(t, 1)
	b.ctx.qps.remove(b.qp)
	b.complete(0, b.qp.sq.id(0, 0))
	b.complete(1, 0)
	b.cq.subs[0].ring[1][0] ^= 1 << numberAt
	wcs := make([]uverbs.WC, 2)
	if n, err := b.cq.Poll(wcs); n != 0 || err != provider.ErrCompletion {
		t.Errorf("Poll: %d, %v", n, err)
	}
	if n, err := b.cq.Poll(wcs); n != 0 || err != nil {
		t.Errorf("the second Poll: %d, %v", n, err)
	}
}
