package providertest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

func full(t *testing.T, r *Rig) {
	var wrs []uverbs.SendWR
	for i := range r.Cap.MaxSendWR + 1 {
		wrs = append(wrs, r.write(uint64(i), 0, 100, 1))
	}
	for range 4 {
		// The doorbell is rung at the end of the list or at the refused request, so
		// nothing completes while the queue fills.
		if n, err := r.QP.PostSend(wrs); n != r.Cap.MaxSendWR || !errors.Is(err, uverbs.ErrQueueFull) {
			t.Fatalf("PostSend: %d, %v; want %d, %v", n, err, r.Cap.MaxSendWR, uverbs.ErrQueueFull)
		}
		r.done(t, r.Cap.MaxSendWR)
		r.send(t, wrs[:r.Cap.MaxSendWR/2]...)
		r.done(t, r.Cap.MaxSendWR/2)
	}
	recvs := make([]uverbs.RecvWR, r.Cap.MaxRecvWR+1)
	if n, err := r.QP.PostRecv(recvs); n != r.Cap.MaxRecvWR || !errors.Is(err, uverbs.ErrQueueFull) {
		t.Fatalf("PostRecv: %d, %v; want %d, %v", n, err, r.Cap.MaxRecvWR, uverbs.ErrQueueFull)
	}
}

// laps goes around all three rings several times, with different numbers of requests.
func laps(t *testing.T, r *Rig) {
	sent, received := uint64(0), uint64(1000)
	for lap := range 100 {
		n := 1 + lap%7
		var sends []uverbs.SendWR
		for i := range n {
			r.recv(t, uverbs.RecvWR{WRID: received + uint64(i), SGL: []uverbs.SGE{r.sge(1000, 64)}})
			sends = append(sends, uverbs.SendWR{WRID: sent + uint64(i), Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
				SGL: []uverbs.SGE{r.sge(0, lap%64)}})
		}
		r.send(t, sends...)
		for _, wc := range r.done(t, 2*n) {
			switch {
			case wc.Opcode == uverbs.WCSend && wc.WRID == sent:
				sent++
			case wc.Opcode == uverbs.WCRecv && wc.WRID == received && wc.ByteLen == uint32(lap%64):
				received++
			default:
				t.Fatalf("lap %d: completion %+v, want send %d or receive %d", lap, wc, sent, received)
			}
		}
	}
}

// failed checks only that a request fails. The status depends on the driver, and as the QP is its
// own peer, the request may be flushed before the status arrives. The tests of uverbs check the
// status with two QPs.
func failed(t *testing.T, r *Rig) {
	bad := r.write(1, 0, 100, 8)
	bad.SGL[0].LKey ^= 0x55aa00
	bad.Flags = 0 // a failed request completes even if it is not signaled
	r.send(t, bad)
	wc := r.poll(t, 1)[0]
	if wc.Err() == nil || wc.WRID != 1 || wc.QPNum != r.QPN {
		t.Errorf("completion %+v of a request with a bad LKey", wc)
	}
}

// reset checks that RESET empties the queues without completions, and that all slots are free
// afterwards.
// refusesReset reports whether the device has no way back from RESET, and checks that the kernel refuses it then.
func (r *Rig) refusesReset(t *testing.T) bool {
	t.Helper()
	if r.NoReset {
		q := r.QP.(interface {
			Modify(uverbs.QPAttr, uverbs.QPMask) error
		})
		check(t, q.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
		r.outstanding(t, 0)
		var e *uverbs.Error
		needed := uverbs.MaskAccess
		if r.AH != nil {
			needed = uverbs.MaskQKey
		}
		err := q.Modify(uverbs.QPAttr{State: uverbs.StateInit, Port: 1},
			uverbs.MaskState|uverbs.MaskPKeyIndex|uverbs.MaskPort|needed)
		if !errors.As(err, &e) || e.Errno != unix.EINVAL {
			t.Errorf("Modify to INIT: %v, want %v", err, unix.EINVAL)
		}
	}
	return r.NoReset
}

func reset(t *testing.T, r *Rig) {
	if r.refusesReset(t) {
		return
	}
	send := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSend, Flags: uverbs.Signaled}
	recvs := make([]uverbs.RecvWR, r.Cap.MaxRecvWR+1)
	for lap := range 5 {
		if lap%2 == 0 {
			r.send(t, send, send, send) // wait for a receive
			r.outstanding(t, 3)
			r.QP.Begin()
			r.QP.Op(uverbs.OpSend, 0, 1, 0, 0, 0)
			r.QP.Abort()
		} else {
			r.recv(t, recvs[:5]...)
			if n := r.QP.RecvsOutstanding(); n != 5 {
				t.Errorf("RecvsOutstanding: %d, want 5", n)
			}
		}
		check(t, r.QP.Reset())
		r.done(t, 0)
		r.outstanding(t, 0)
		if n, err := r.QP.PostRecv(recvs); n != r.Cap.MaxRecvWR || !errors.Is(err, uverbs.ErrQueueFull) {
			t.Errorf("lap %d: PostRecv: %d, %v; want %d, %v", lap, n, err, r.Cap.MaxRecvWR, uverbs.ErrQueueFull)
		}
		// Use every slot again.
		id := uint64(100)
		for range r.Cap.MaxRecvWR {
			r.send(t, uverbs.SendWR{WRID: id, Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
			for _, wc := range r.done(t, 2) {
				if wc.Opcode == uverbs.WCSend && wc.WRID != id {
					t.Fatalf("lap %d: completion %+v, want %d", lap, wc, id)
				}
			}
			id++
		}
		r.outstanding(t, 0)
	}
}

func (r *Rig) outstanding(t *testing.T, want int) {
	t.Helper()
	if n := r.QP.SendsOutstanding(); n != want {
		t.Errorf("SendsOutstanding: %d, want %d", n, want)
	}
}

func resize(t *testing.T, r *Rig) {
	if r.Resize == nil {
		if _, err := r.CQ.Resize(127, nil); !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("resize where the provider does not: %v", err)
		}
		return
	}
	id, next := uint64(0), uint64(0)
	post := func(n int) {
		for range n {
			r.send(t, r.write(id, 0, 100, 1))
			id++
		}
	}
	take := func(n int) {
		t.Helper()
		wcs := make([]uverbs.WC, n)
		for got := 0; got < n; {
			got += r.take(t, wcs[got:])
		}
		for _, wc := range wcs {
			if wc.WRID != next || wc.Err() != nil {
				t.Fatalf("completion %+v, want %d", wc, next)
			}
			next++
		}
	}
	for _, entries := range []int{127, Entries, 31} {
		post(6)
		take(3)
		if err := r.Resize(entries); err != nil {
			t.Fatalf("Resize to %d: %v", entries, err)
		}
		post(4)
		take(7)
	}
	r.done(t, 0)
}

func nothingAllocated(t *testing.T, r *Rig) {
	wrs := []uverbs.SendWR{r.write(1, 0, 100, 8), {WRID: 2, Opcode: uverbs.OpSend, Inline: []byte("x")}}
	recvs := []uverbs.RecvWR{{WRID: 3, SGL: []uverbs.SGE{r.sge(1000, 8)}}}
	wcs := make([]uverbs.WC, 2)
	data := []byte("x")
	n := testing.AllocsPerRun(20, func() {
		r.recv(t, recvs...)
		r.send(t, wrs...)
		for got := 0; got < 2; {
			got += r.take(t, wcs[got:])
		}
		r.QP.Begin()
		r.QP.Op(uverbs.OpWrite, uverbs.Signaled, 4, r.Addr, r.RKey, 0)
		r.QP.Inline(data)
		if err := r.QP.Submit(); err != nil {
			t.Fatal(err)
		}
		for r.take(t, wcs) == 0 {
		}
	})
	if n != 0 && r.Work == nil { // Work may allocate
		t.Errorf("%v allocations", n)
	}
}
