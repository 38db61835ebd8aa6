package devicetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// flushed polls n completions of e's CQ. They must be numbered from first, in order and flushed,
// and there must be no others.
func flushed(t *testing.T, ctx context.Context, e end, first, n uint64) {
	t.Helper()
	for i, wc := range allOf(t, ctx, e.cq, n) {
		if wc.WRID != first+uint64(i) || wc.Status != uverbs.WCWRFlushErr || wc.QPNum != e.qp.QPN() {
			t.Fatalf("completion %+v, want %d flushed", wc, first+uint64(i))
		}
	}
}

// allOf polls until it has n completions. There must be no others. The last ones may become
// pollable after Drain has returned.
func allOf(t *testing.T, ctx context.Context, cq *uverbs.CQ, n uint64) []uverbs.WC {
	t.Helper()
	wcs := make([]uverbs.WC, n+1)
	got := 0
	for uint64(got) < n && ctx.Err() == nil {
		got += must(cq.Poll(wcs[got:]))(t)
	}
	got += must(cq.Poll(wcs[got:]))(t)
	if uint64(got) != n {
		t.Fatalf("%d completions, want %d", got, n)
	}
	return wcs[:got]
}

// TestDeviceDrain drains full queues, and checks that no completion appears afterwards.
func TestDeviceDrain(t *testing.T) {
	l := newLoop(t, nil)
	for range 5 {
		sends := l.a.qp.Cap().MaxSendWR
		for i := range uint64(sends) { // they wait for a receive
			post(t, l.a.qp, uverbs.SendWR{WRID: i, Opcode: uverbs.OpSend, SGL: []uverbs.SGE{l.a.mr.SGE(0, 8)}})
		}
		recvs := l.a.qp.Cap().MaxRecvWR
		for i := range uint64(recvs) {
			receive(t, l.a.qp, uverbs.RecvWR{WRID: uint64(sends) + i})
		}
		check(t, l.a.qp.Drain(l.ctx))
		seen := map[uint64]bool{}
		for _, wc := range allOf(t, l.ctx, l.a.cq, uint64(sends+recvs)) {
			if wc.Status != uverbs.WCWRFlushErr || seen[wc.WRID] {
				t.Fatalf("completion %+v", wc)
			}
			seen[wc.WRID] = true
		}
		check(t, l.b.qp.Drain(l.ctx))
		flushed(t, l.ctx, l.b, 0, 0)
		l.revive(t)
	}
}

// TestDeviceDrainTypes drains QPs of every type in every state that they can be in.
func TestDeviceDrainTypes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dev := openDevice(t)
	pd := must(dev.AllocPD())(t)
	for _, typ := range []uverbs.QPType{uverbs.RC, uverbs.UC, uverbs.UD} {
		cq := must(dev.CreateCQ(uverbs.CQConfig{Entries: 64, NoEvents: true}))(t)
		qp := typedQP(t, pd, uverbs.QPConfig{Type: typ, SendCQ: cq, MaxSendWR: 8, MaxRecvWR: 8})
		e := end{cq: cq, qp: qp}
		check(t, qp.Drain(ctx)) // in RESET
		check(t, qp.Init())
		for i := range uint64(5) {
			receive(t, qp, uverbs.RecvWR{WRID: i})
		}
		check(t, qp.Drain(ctx))
		flushed(t, ctx, e, 0, 5)
		post(t, qp, uverbs.SendWR{WRID: 5, Opcode: uverbs.OpSend, AH: anyAH(t, pd, qp, typ)})
		check(t, qp.Drain(ctx)) // in ERR
		flushed(t, ctx, e, 5, 1)
		check(t, qp.Close())
		if err := qp.Drain(ctx); !errors.Is(err, uverbs.ErrClosed) {
			t.Errorf("Drain of a closed QP: %v", err)
		}
	}
}

func anyAH(t *testing.T, pd *uverbs.PD, qp *uverbs.QP, typ uverbs.QPType) *uverbs.AH {
	t.Helper()
	if typ != uverbs.UD {
		return nil
	}
	return must(pd.CreateAH(must(qp.AHAttr(endpoint(t, qp)))(t)))(t)
}

// TestDeviceDrainShared drains one of two QPs that share a CQ while the other QP is in use and
// another goroutine polls. That goroutine must get all completions.
func TestDeviceDrainShared(t *testing.T) {
	l := newLoop(t, nil)
	other := must(l.pd.CreateQP(uverbs.QPConfig{
		Type: uverbs.RC, SendCQ: l.a.cq, MaxSendWR: 64, MaxRecvWR: 4, Access: uverbs.RemoteWrite}))(t)
	check(t, other.Connect(endpoint(t, other)))
	const first = 1 << 32 // first number of the other QP's requests
	var stop atomic.Bool
	var posted, polled uint64
	done := make(chan error, 2)
	room := make(chan struct{}, 16) // one token for each request that the other QP may post
	for range cap(room) {
		room <- struct{}{}
	}
	go func() {
		for !stop.Load() {
			<-room
			if _, err := other.PostSend(uverbs.SendWR{
				WRID: first + posted, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled}); err != nil {
				done <- err
				return
			}
			posted++
		}
		done <- nil
	}()
	mine := make(chan uint64, 1024)
	go func() {
		var wcs [16]uverbs.WC
		for {
			n, err := l.a.cq.PollWait(l.ctx, wcs[:])
			if err != nil {
				done <- err
				return
			}
			for _, wc := range wcs[:n] {
				switch {
				case wc.QPNum == l.a.qp.QPN():
					mine <- wc.WRID
				case wc.WRID == first-1: // the last one
					done <- nil
					return
				case wc.WRID != first+polled || wc.Err() != nil:
					done <- fmt.Errorf("completion %+v, want %d", wc, first+polled)
					return
				default:
					polled++
					room <- struct{}{}
				}
			}
		}
	}()
	for range 10 {
		for i := range uint64(20) {
			post(t, l.a.qp, uverbs.SendWR{WRID: i, Opcode: uverbs.OpSend}) // waits for a receive
		}
		check(t, l.a.qp.Drain(l.ctx))
		for i := range uint64(20) {
			select {
			case id := <-mine:
				if id != i {
					t.Fatalf("completion %d, want %d", id, i)
				}
			case err := <-done:
				t.Fatal(err)
			case <-l.ctx.Done():
				t.Fatal("a completion is missing")
			}
		}
		l.reconnectA(t)
	}
	stop.Store(true)
	check(t, <-done)
	post(t, other, uverbs.SendWR{WRID: first - 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled})
	check(t, <-done)
	if polled != posted || len(mine) != 0 {
		t.Errorf("%d of %d completions polled, %d of the drained QP too many", polled, posted, len(mine))
	}
}

// reconnectA moves both QPs through RESET to RTS without polling the CQs.
func (l *loop) reconnectA(t *testing.T) {
	t.Helper()
	for _, e := range []end{l.a, l.b} {
		check(t, e.qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
	}
	ea, eb := endpoint(t, l.a.qp), endpoint(t, l.b.qp)
	check(t, l.a.qp.Connect(eb))
	check(t, l.b.qp.Connect(ea))
}

// TestDeviceSQD checks that in SQD the requests that have started complete, that an event then
// reports that the send queue is drained, and that the other requests, at least one that is posted
// in SQD, start in RTS. On Linux 6.1 all may have started: rxe executes them in the doorbell.
func TestDeviceSQD(t *testing.T) {
	l := newLoop(t, nil)
	const n = 60
	next := uint64(0)
	take := func() (got int) {
		t.Helper()
		var wcs [7]uverbs.WC
		got = must(l.a.cq.Poll(wcs[:]))(t)
		for _, wc := range wcs[:got] {
			check(t, wc.Err())
			if wc.WRID != next {
				t.Fatalf("completion %+v, want %d", wc, next)
			}
			next++
		}
		return got
	}
	b := l.a.qp.StartSend()
	for i := range uint64(n) {
		b.Write(i, uverbs.Signaled, l.b.mr.Addr(), l.b.mr.RKey())
		b.SGE(l.a.mr.SGE(0, bufSize))
	}
	check(t, b.Submit())
	toSQD(t, l.a.qp)
	a := must(l.a.qp.Query(uverbs.MaskState))(t)
	if a.State != uverbs.StateSQD {
		t.Errorf("the QP is in %v", a.State)
	}
	if err := l.drained(t); err != nil {
		features.Missing(t, features.SQDrained, err)
	}
	t.Logf("draining was %v when it was asked", a.SQDraining)
	if a = must(l.a.qp.Query(uverbs.MaskState))(t); a.State != uverbs.StateSQD || a.SQDraining {
		t.Errorf("drained, the QP is in %v, draining: %v", a.State, a.SQDraining)
	}
	for take() > 0 {
	}
	t.Logf("%d of %d requests had begun", next, n)
	post(t, l.a.qp, uverbs.SendWR{WRID: n, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled})
	if take() > 0 {
		t.Errorf("%d requests have completed, one of them in SQD", next)
	}
	check(t, l.a.qp.Modify(uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.MaskState))
	post(t, l.a.qp, uverbs.SendWR{WRID: n + 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled})
	for next < n+2 {
		check(t, l.a.cq.Wait(l.ctx))
		take()
	}
}

// toSQD moves a QP to SQD and requests the event.
func toSQD(t *testing.T, q *uverbs.QP) {
	t.Helper()
	err := q.Modify(uverbs.QPAttr{State: uverbs.StateSQD, EnSQDAsyncNotify: true},
		uverbs.MaskState|uverbs.MaskEnSQDAsyncNotify)
	if errors.Is(err, unix.EINVAL) && strings.Contains(err.Error(), "moves no QP to SQD") {
		features.Missing(t, features.SQD, err)
	}
	check(t, err)
}

// drained waits for the event that reports that the send queue is drained.
func (l *loop) drained(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, 5*time.Second)
	defer cancel()
	for {
		e, err := l.dev.NextEvent(ctx)
		if err != nil {
			return err
		}
		if e.Type == uverbs.EventSQDrained && e.QP == l.a.qp {
			return nil
		}
	}
}

// TestDeviceDrainFullCQ drains QPs that share a CQ, without polls in between. The CQ has exactly one entry
// for each request, so that a request that Drain posts would not fit.
func TestDeviceDrainFullCQ(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dev := openDevice(t)
	pd := must(dev.AllocPD())(t)
	const qps = 3
	cq := must(dev.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	recvs := must(dev.CreateCQ(uverbs.CQConfig{Entries: qps}))(t)
	each, more := cq.Entries()/qps, cq.Entries()%qps
	var all [qps]*uverbs.QP
	for i := range all {
		n := each
		if i == 0 {
			n += more
		}
		all[i] = must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, RecvCQ: recvs, MaxSendWR: n + 1,
			MaxRecvWR: 1}))(t)
		check(t, all[i].Connect(endpoint(t, all[i])))
		for j := range n { // they wait for a receive
			post(t, all[i], uverbs.SendWR{WRID: uint64(j), Opcode: uverbs.OpSend})
		}
	}
	for _, qp := range all {
		check(t, qp.Drain(ctx))
	}
	for _, wc := range allOf(t, ctx, cq, uint64(cq.Entries())) {
		if wc.Status != uverbs.WCWRFlushErr {
			t.Errorf("completion %+v", wc)
		}
	}
}

// TestDeviceDrainSmallCQ checks that if sends have succeeded without a completion, and the CQ has fewer
// entries than these sends, Drain posts nothing and reports the CQ. Devices that release sends without
// completions need no more requests.
func TestDeviceDrainSmallCQ(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l := &loop{ctx: ctx, dev: openDevice(t)}
	l.pd = must(l.dev.AllocPD())(t)
	small := must(l.dev.CreateCQ(uverbs.CQConfig{Entries: 3}))(t)
	l.a = l.newEnd(t, func(c *uverbs.QPConfig) { c.SendCQ, c.RecvCQ = small, c.SendCQ })
	l.b = l.newEnd(t, nil)
	ea, eb := endpoint(t, l.a.qp), endpoint(t, l.b.qp)
	check(t, l.a.qp.Connect(eb))
	check(t, l.b.qp.Connect(ea))
	n := small.Entries() + 1
	for range n {
		receive(t, l.b.qp, uverbs.RecvWR{})
	}
	receive(t, l.a.qp, uverbs.RecvWR{})
	for range n {
		post(t, l.a.qp, uverbs.SendWR{Opcode: uverbs.OpSend})
		l.success(t, l.b, 0, uverbs.WCRecv)
	}
	post(t, l.b.qp, uverbs.SendWR{Opcode: uverbs.OpSend}) // it follows the acknowledgements
	l.success(t, l.a, 0, uverbs.WCRecv)
	released := l.dev.Device().Driver() == "rxe"
	for released && l.a.qp.SendsOutstanding() > 0 && ctx.Err() == nil { // its tasks run in any order
		runtime.Gosched()
	}
	short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	if released {
		short = ctx
	}
	err := l.a.qp.Drain(short)
	want := fmt.Sprintf("holds %d completions, and %d requests can still complete in it", small.Entries(), n)
	if !released && (!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want)) || released &&
		err != nil {
		t.Errorf("Drain: %v, want the end of ctx and %q", err, want)
	}
	if k := must(small.Poll(make([]uverbs.WC, 1)))(t); k != 0 {
		t.Errorf("%d completions", k)
	}
}
