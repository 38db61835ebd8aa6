package devicetest

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceWaitCancelled ends waits by canceling their ctx, and checks that the queue works
// afterwards.
func TestDeviceWaitCancelled(t *testing.T) {
	l := newLoop(t, nil)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(l.ctx)
	done := make(chan error)
	go func() { done <- l.b.cq.Wait(ctx) }()
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Fatalf("Wait: %v", err)
	}
	ctx, stop := context.WithTimeout(l.ctx, 10*time.Millisecond)
	defer stop()
	var wcs [1]uverbs.WC
	if n, err := l.b.cq.PollWait(ctx, wcs[:]); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("PollWait = %d, %v", n, err)
	}
	receive(t, l.b.qp, uverbs.RecvWR{WRID: 1})
	post(t, l.a.qp, uverbs.SendWR{Opcode: uverbs.OpSend})
	l.success(t, l.b, 1, uverbs.WCRecv)
}

// TestDeviceManyWaiters makes several goroutines wait on one queue, and checks that every
// completion reaches one of them.
func TestDeviceManyWaiters(t *testing.T) {
	l := newLoop(t, nil)
	const waiters, messages = 8, 200
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	got := make(chan uint64, messages)
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			var wcs [2]uverbs.WC
			for {
				n, err := l.b.cq.PollWait(ctx, wcs[:])
				if err != nil {
					return
				}
				for _, wc := range wcs[:n] {
					got <- wc.WRID
				}
			}
		})
	}
	seen := make(map[uint64]bool)
	for i := range messages {
		receive(t, l.b.qp, uverbs.RecvWR{WRID: uint64(i)})
		post(t, l.a.qp, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
		l.success(t, l.a, 0, uverbs.WCSend)
		select {
		case id := <-got:
			seen[id] = true
		case <-l.ctx.Done():
			t.Fatalf("message %d was not waited for: %v", i, l.ctx.Err())
		}
	}
	cancel()
	wg.Wait()
	if len(seen) != messages {
		t.Fatalf("%d of %d messages were seen", len(seen), messages)
	}
}

// TestDeviceSolicited arms a CQ for solicited completions, and checks that of two messages only the
// second, which is solicited, raises an event.
func TestDeviceSolicited(t *testing.T) {
	l := newLoop(t, nil)
	check(t, l.b.cq.Arm(true))
	woken := make(chan error)
	go func() { woken <- l.b.cq.WaitEvent(l.ctx) }()
	for _, f := range []uverbs.SendFlags{uverbs.Signaled, uverbs.Signaled | uverbs.Solicited} {
		select {
		case err := <-woken:
			t.Fatalf("woken before a solicited message: %v", err)
		default:
		}
		receive(t, l.b.qp, uverbs.RecvWR{})
		post(t, l.a.qp, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: f})
		l.success(t, l.a, 0, uverbs.WCSend) // the peer has received it
	}
	check(t, <-woken)
	l.success(t, l.b, 0, uverbs.WCRecv)
	l.success(t, l.b, 0, uverbs.WCRecv)
}

// TestDeviceOwnChannel checks that a completion channel cannot be closed before its CQs, and that a
// CQ with NoEvents cannot be armed.
func TestDeviceOwnChannel(t *testing.T) {
	dev := openDevice(t)
	ch := must(dev.CreateCompChannel())(t)
	cq := must(dev.CreateCQ(uverbs.CQConfig{Entries: 16, Channel: ch}))(t)
	if err := ch.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Fatalf("Close of a channel in use: %v", err)
	}
	check(t, cq.Close())
	check(t, ch.Close())
	quiet := must(dev.CreateCQ(uverbs.CQConfig{Entries: 16, NoEvents: true}))(t)
	for _, err := range []error{quiet.Arm(false), quiet.Wait(context.Background()),
		quiet.WaitEvent(context.Background())} {
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("on a queue without events: %v", err)
		}
	}
}

// TestDeviceCloseWakes closes objects on which goroutines wait, and checks that the waits end.
func TestDeviceCloseWakes(t *testing.T) {
	dev := openDevice(t)
	cq := must(dev.CreateCQ(uverbs.CQConfig{Entries: 16}))(t)
	done := make(chan error)
	for range 4 {
		go func() { done <- cq.Wait(context.Background()) }()
	}
	go func() {
		_, err := dev.NextEvent(context.Background())
		done <- err
	}()
	check(t, cq.Close())
	for range 4 {
		if err := <-done; !errors.Is(err, uverbs.ErrClosed) {
			t.Fatalf("Wait: %v", err)
		}
	}
	check(t, dev.Close())
	if err := <-done; !errors.Is(err, uverbs.ErrClosed) {
		t.Fatalf("NextEvent: %v", err)
	}
}

// TestDeviceCloseRace closes everything while other goroutines post, poll and wait.
func TestDeviceCloseRace(t *testing.T) {
	for range 10 {
		l := newLoop(t, nil)
		var wg sync.WaitGroup
		loopUntilClosed := func(f func() error) {
			wg.Go(func() {
				for {
					if err := f(); errors.Is(err, uverbs.ErrClosed) {
						return
					}
					runtime.Gosched() // gives the goroutine that calls Close a turn
				}
			})
		}
		sge := l.a.mr.SGE(0, 8)
		loopUntilClosed(func() error {
			_, err := l.a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{sge},
				RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey()})
			return err
		})
		loopUntilClosed(func() error {
			_, err := l.b.qp.PostRecv(uverbs.RecvWR{})
			return err
		})
		loopUntilClosed(func() error {
			b := l.a.qp.StartSend()
			b.Write(0, uverbs.Signaled, l.b.mr.Addr(), l.b.mr.RKey())
			b.Inline([]byte("race"))
			return b.Submit()
		})
		loopUntilClosed(func() error {
			var wcs [16]uverbs.WC
			_, err := l.a.cq.PollWait(l.ctx, wcs[:])
			return err
		})
		loopUntilClosed(func() error { return l.b.cq.Wait(l.ctx) })
		l.success(t, l.a, 0, uverbs.WCWrite) // the goroutines are running
		check(t, l.dev.Close())
		wg.Wait()
	}
}

// TestDeviceResize grows and shrinks a CQ that holds completions, and checks that none is lost.
func TestDeviceResize(t *testing.T) {
	l := newLoop(t, nil)
	const held = 20
	for i := range held {
		receive(t, l.b.qp, uverbs.RecvWR{WRID: uint64(i)})
		post(t, l.a.qp, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
		l.success(t, l.a, 0, uverbs.WCSend)
	}
	check(t, l.b.cq.Wait(l.ctx))
	l.success(t, l.b, 0, uverbs.WCRecv)
	check(t, l.b.cq.Resize(1000))
	if n := l.b.cq.Entries(); n < 1000 {
		t.Fatalf("%d entries after Resize(1000)", n)
	}
	l.success(t, l.b, 1, uverbs.WCRecv)
	check(t, l.b.cq.Resize(40))
	for i := 2; i < held; i++ {
		l.success(t, l.b, uint64(i), uverbs.WCRecv)
	}
	var wcs [1]uverbs.WC
	if n := must(l.b.cq.Poll(wcs[:]))(t); n != 0 {
		t.Fatalf("a completion too many: %+v", wcs[0])
	}
}

// TestDeviceCQOverrunEvent makes a CQ overrun, and checks that waits, polls and the event report
// it.
func TestDeviceCQOverrunEvent(t *testing.T) {
	l := newLoop(t, nil)
	small := must(l.dev.CreateCQ(uverbs.CQConfig{Entries: 1}))(t)
	e := end{cq: small, mr: l.a.mr}
	e.qp = must(l.pd.CreateQP(uverbs.QPConfig{
		Type: uverbs.RC, SendCQ: small, MaxSendWR: 64, MaxRecvWR: 1, Access: uverbs.RemoteWrite}))(t)
	check(t, e.qp.Connect(endpoint(t, e.qp)))
	for range small.Entries() + 2 {
		post(t, e.qp, uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{l.a.mr.SGE(0, 8)},
			RemoteAddr: l.a.mr.Addr(), RKey: l.a.mr.RKey()})
	}
	// Waits report the overrun even if the program does not call NextEvent. The first wait
	// must not poll a completion, or the CQ might never be full.
	var err error
	for err == nil {
		err = small.WaitEvent(l.ctx)
	}
	if !errors.Is(err, uverbs.ErrCQOverrun) {
		t.Fatalf("WaitEvent: %v, want ErrCQOverrun", err)
	}
	wcs := make([]uverbs.WC, small.Entries())
	for err = nil; err == nil; {
		_, err = small.PollWait(l.ctx, wcs)
	}
	if !errors.Is(err, uverbs.ErrCQOverrun) {
		t.Errorf("PollWait: %v, want ErrCQOverrun", err)
	}
	if n, err := small.Poll(wcs); n != 0 || !errors.Is(err, uverbs.ErrCQOverrun) {
		t.Errorf("Poll: %d, %v, want ErrCQOverrun", n, err)
	}
	ev := must(l.dev.NextEvent(l.ctx))(t)
	if ev.Type != uverbs.EventCQErr || ev.CQ != small {
		t.Fatalf("event %v of %v", ev.Type, ev.CQ)
	}
}

// TestDevicePortEvents sets the port's network interface down and up again, and checks the events.
func TestDevicePortEvents(t *testing.T) {
	dev := openDevice(t)
	gids := must(dev.GIDs(1))(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	await := func(want uverbs.EventType, state uverbs.PortState) {
		t.Helper()
		for {
			e := must(dev.NextEvent(ctx))(t)
			if e.Type == want && e.Port == 1 {
				break
			}
			t.Logf("also %v of port %d", e.Type, e.Port)
		}
		if p := must(dev.QueryPort(1))(t); p.State != state {
			t.Errorf("after %v the port is %v", want, p.State)
		}
	}
	setLink(t, gids[0].Netdev, false)
	await(uverbs.EventPortErr, uverbs.PortDown)
	if _, err := dev.SelectGID(0, netip.Addr{}); !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("SelectGID without an active port: %v", err)
	}
	setLink(t, gids[0].Netdev, true)
	await(uverbs.EventPortActive, uverbs.PortActive)
}
