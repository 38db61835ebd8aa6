package providertest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

func srqFull(t *testing.T, r *Rig) {
	room := r.SRQSize().MaxWR
	recvs := make([]uverbs.RecvWR, room+1)
	for range 3 {
		if n, err := r.SRQ.PostRecv(recvs); n != room || !errors.Is(err, uverbs.ErrQueueFull) {
			t.Fatalf("PostRecv: %d, %v; want %d, %v", n, err, room, uverbs.ErrQueueFull)
		}
		for range room {
			r.send(t, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
			r.done(t, 2)
		}
	}
	if n, err := r.QP.PostRecv(recvs[:1]); n != 0 || !errors.Is(err, uverbs.ErrSRQ) {
		t.Errorf("PostRecv on the QP: %d, %v", n, err)
	}
}

func srqBadReceive(t *testing.T, r *Rig) {
	for name, c := range map[string]struct {
		wr   uverbs.RecvWR
		want error
	}{
		"SGEs":  {uverbs.RecvWR{SGL: make([]uverbs.SGE, r.SRQSize().MaxSGE+1)}, uverbs.ErrTooManySGEs},
		"range": {uverbs.RecvWR{SGL: []uverbs.SGE{{Length: ^uint32(0)}}}, uverbs.ErrRange},
	} {
		if n, err := r.SRQ.PostRecv([]uverbs.RecvWR{{}, c.wr, {}}); n != 1 || !errors.Is(err, c.want) {
			t.Errorf("%s: PostRecv: %d, %v; want 1, %v", name, n, err, c.want)
		}
	}
}

func srqResize(t *testing.T, r *Rig) {
	if r.ResizeSRQ == nil {
		err := r.SRQ.Modify(127, nil)
		if !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("resize where the device does not: %v", err)
		}
		return
	}
	id, next := uint64(0), uint64(0)
	post := func(n int) {
		t.Helper()
		for range n {
			r.recv(t, uverbs.RecvWR{WRID: id})
			id++
		}
	}
	take := func(n int) {
		t.Helper()
		for range n {
			r.send(t, uverbs.SendWR{Opcode: uverbs.OpSend})
			if wc := r.done(t, 1)[0]; wc.WRID != next {
				t.Fatalf("completion %+v, want %d", wc, next)
			}
			next++
		}
	}
	for _, size := range []int{127, MaxRecvWR, 31} {
		post(9)
		take(4) // the ring wraps
		if err := r.ResizeSRQ(size); err != nil {
			t.Fatalf("resize to %d: %v", size, err)
		}
		if n := r.SRQSize().MaxWR; n < size {
			t.Fatalf("resized to %d: %d", size, n)
		}
		post(3)
		take(8)
	}
	post(5)
	if err := r.ResizeSRQ(3); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("resize to 3 with 5 receives posted: %v", err)
	}
	take(5)
}
