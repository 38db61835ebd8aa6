package efa

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// Every store to the register of a CQ has the number of events.
func TestEventNumber(t *testing.T) {
	b := newBench(t, 1)
	b.cq.db = register{at: b.qp.rq.db.at, mem: b.cq.mem}
	b.qp.OpInline(uverbs.OpSend, uverbs.Signaled, 1, 0, 0, []byte("x"))
	b.qp.UDAddr(b.ah, 1, 2)
	if err := errors.Join(b.qp.Submit(), b.cq.Arm(false, 6)); err != nil {
		t.Fatal(err)
	}
	if got, want := *b.cq.db.at, uint32(2<<serialAt|arm); got != want {
		t.Errorf("Arm stores %#x, want %#x", got, want)
	}
	b.complete(0, uint16(b.qp.sq.base.Load()))
	if n, err := b.cq.Poll(make([]uverbs.WC, 1)); n != 1 || err != nil {
		t.Fatalf("Poll: %d, %v", n, err)
	}
	if got, want := *b.cq.db.at, uint32(2<<serialAt|1); got != want {
		t.Errorf("Poll stores %#x, want %#x", got, want)
	}
}
