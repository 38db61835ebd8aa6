package irdma

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A device may read and complete a request as soon as its valid bit is set, while others of the list are not valid yet,
// and before the doorbell.
func TestRaceEarlyCompletion(t *testing.T) {
	b := newBench(t, uverbs.RC)
	s := &b.qp.sq
	wrs := make([]uverbs.SendWR, benchSends)
	for i := range wrs {
		wrs[i] = uverbs.SendWR{WRID: uint64(i), Opcode: uverbs.OpSend, Flags: uverbs.Signaled}
	}
	posts, posted, ended := make(chan bool), make(chan error, 1), make(chan bool)
	defer func() {
		close(posts)
		<-ended
	}()
	go func() {
		defer close(ended)
		for range posts {
			_, err := b.qp.PostSend(wrs)
			posted <- err
		}
	}()
	for round := range uint32(50000) {
		first := round * benchSends
		header, v := &s.ring[first&s.mask()][headerWord], validOf(first, s.shift)
		posts <- true
		var err error
		done := false
		for !done && atomic.LoadUint64(header)&valid != v {
			select {
			case err = <-posted:
				done = true
			default:
				runtime.Gosched()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		b.complete(t, first&s.mask(), 0)
		if !done {
			err = <-posted
		}
		if err != nil {
			t.Fatal(err)
		}
		b.complete(t, (first+benchSends-1)&s.mask(), benchSends-1)
	}
}

// put writes the next entry, as the device does.
func (b *bench) put(e cqe) {
	r := b.cq.current()
	to := &r.entries[r.head]
	to[lengthWord], to[handleWord], to[numberWord] = e[lengthWord], e[handleWord], e[numberWord]
	mmio.Store64(&to[flagsWord], e[flagsWord]|r.valid)
}

// complete polls the completion of a send, which the device writes.
func (b *bench) complete(t *testing.T, index uint32, wrID uint64) {
	t.Helper()
	b.put(b.entry(ofSend, index))
	var wcs [2]uverbs.WC
	if n, err := b.cq.Poll(wcs[:]); n != 1 || err != nil || wcs[0].WRID != wrID {
		t.Fatalf("Poll: %+v, %v; want request %d", wcs[:n], err, wrID)
	}
	if n := b.qp.SendsOutstanding(); n < 0 || n >= benchSends {
		t.Fatalf("%d sends are outstanding", n)
	}
}

// While a list of receives is posted in ERR, polls complete the first ones with the entry that flushed an earlier
// receive. If that leaves the queue empty, the others need another entry.
func TestMissedFlush(t *testing.T) {
	b := newBench(t, uverbs.RC)
	r := &b.qp.rq
	poll := func(want int) {
		t.Helper()
		if n, err := b.cq.Poll(make([]uverbs.WC, benchRecvs)); n != want || err != nil {
			t.Fatalf("Poll: %d, %v; want %d receives", n, err, want)
		}
	}
	for written := range uint32(4) { // receives of the list before the poll
		r.write(&uverbs.RecvWR{})
		b.put(b.entry(failed|majorFlush<<majorAt|flushGeneral, 0))
		first := r.count
		for range written {
			r.write(&uverbs.RecvWR{})
		}
		if r.missed(first) {
			t.Errorf("with an entry, %d receives are missed", written)
		}
		poll(1 + int(written))
		r.write(&uverbs.RecvWR{})
		if poll(0); !r.missed(first) {
			t.Errorf("a receive after a poll of %d others of its list is not flushed", written)
		}
		r.release()
	}
}
