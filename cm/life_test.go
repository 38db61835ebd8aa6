package cm

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestLife checks that only the defined transitions are possible, and that only the first cause of an end is kept.
func TestLife(t *testing.T) {
	if n := len(transitions); n != int(phaseClosed)+1 {
		t.Fatalf("%d phases in the table", n)
	}
	for from, all := range transitions {
		for to := phaseNew; to <= phaseClosed; to++ {
			want := false
			for _, p := range all {
				want = want || p == to
			}
			l := life{phase: phase(from)}
			if got := l.enter(to); got != want || want != (l.current() == to) && phase(from) != to {
				t.Errorf("%d to %d: %v, want %v", from, to, got, want)
			}
		}
	}
	first, later := errors.New("first"), errors.New("later")
	l := life{phase: phaseEstablished}
	if l.err() != nil {
		t.Errorf("of a connection that stands: %v", l.err())
	}
	l.enter(phaseDisconnecting)
	if is(t, "disconnecting", l.err(), ErrDisconnected); l.endCause() != nil {
		t.Errorf("over before the peer has answered: %v", l.endCause())
	}
	l.end(phaseEnded, first)
	l.end(phaseClosed, later)
	if l.err() != first || l.endCause() != first || l.current() != phaseClosed {
		t.Errorf("%v, %v, phase %d", l.err(), l.endCause(), l.current())
	}
	l.addCause(later)
	is(t, "with an error of the end", l.err(), first, later)
}

// endings are the ways in which the connection of the passive side p ends, with the
// error that p reports.
var endings = map[string]struct {
	end  func(r *rig, a, p *SyncID) error
	want error
}{
	"by the peer":         {func(_ *rig, a, _ *SyncID) error { return a.ID.Disconnect() }, ErrDisconnected},
	"by the peer's Close": {func(_ *rig, a, _ *SyncID) error { return a.Close() }, ErrDisconnected},
	"by this side":        {func(_ *rig, _, p *SyncID) error { return p.ID.Disconnect() }, ErrDisconnected},
	"with the device":     {func(r *rig, _, _ *SyncID) error { r.RemoveDevice(); return nil }, uverbs.ErrDeviceGone},
	"by the peer, who waits": {func(_ *rig, a, _ *SyncID) error { return a.Disconnect(context.Background()) },
		ErrDisconnected},
}

// TestWaitsEnd checks that the end of a connection ends the waits on its queues, even if no request is posted and with
// an SRQ, and that the waits return the reason.
func TestWaitsEnd(t *testing.T) {
	for name, c := range endings {
		for _, srq := range []bool{false, true} {
			t.Run(map[bool]string{false: name, true: name + ", SRQ"}[srq], func(t *testing.T) {
				r := newRig(t)
				_, a, p := connectionWith(t, srq)
				if err := p.Err(); err != nil {
					t.Errorf("the connection stands: %v", err)
				}
				waits := map[string]func(context.Context) (uverbs.WC, error){"RecvComp": p.RecvComp, "SendComp": p.SendComp}
				type result struct {
					name string
					err  error
				}
				got := make(chan result, len(waits))
				for name, wait := range waits {
					go func() { got <- result{name, second(wait(limit(t)))} }()
				}
				check(t, c.end(r, a, p))
				for range waits {
					w := <-got
					is(t, w.name, w.err, c.want)
					is(t, w.name+" once more", second(waits[w.name](limit(t))), c.want)
				}
				<-p.Disconnected()
				is(t, "Err", p.Err(), c.want)
				is(t, "PostSend", p.PostSend(1, 0, uverbs.SGE{}), c.want)
				check(t, p.Close())
				is(t, "Err after Close", p.Err(), c.want)
				is(t, "PostSend after Close", p.PostSend(1, 0, uverbs.SGE{}), uverbs.ErrClosed)
			})
		}
	}
}

// connectionWith returns what connection does, optionally with an SRQ on the passive side.
func connectionWith(t testing.TB, srq bool) (l, a, p *SyncID) {
	t.Helper()
	if !srq {
		return connection(t)
	}
	l = syncListener(t, PSTCP)
	a = readyID(t, l)
	ctx := limit(t)
	connected := make(chan error, 1)
	go func() { connected <- a.Connect(ctx, nil) }()
	p = closing(t, good(l.GetRequest(ctx))(t))
	check(t, p.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}))
	check(t, p.CreateQP(nil, small))
	check(t, p.Accept(ctx, nil))
	check(t, <-connected)
	check(t, p.PostRecv(1, uverbs.SGE{}))
	return l, a, p
}

// TestReceivesBeforeTheEnd checks that messages that arrived before the end are received first, then the flushed
// receives, then the end.
func TestReceivesBeforeTheEnd(t *testing.T) {
	newRig(t)
	_, a, p := connection(t)
	for id := range uint64(3) {
		check(t, p.PostRecv(id, uverbs.SGE{Length: 1}))
	}
	check(t, a.PostSend(1, 0, uverbs.SGE{Length: 1}))
	check(t, a.Close())
	<-p.Disconnected()
	if wc := good(p.RecvComp(limit(t)))(t); wc.WRID != 0 {
		t.Errorf("%+v", wc)
	}
	for id := range uint64(2) {
		wc, err := p.RecvComp(limit(t))
		var e *Error
		if is(t, "a flushed receive", err, ErrDisconnected, uverbs.WCWRFlushErr); wc.WRID != id+1 || !errors.As(err, &e) {
			t.Errorf("%+v, %v", wc, err)
		}
		want := "cm: wait on " + p.name() + ": the connection has ended (ECONNRESET): the request was flushed"
		if err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
	_, err := p.RecvComp(limit(t))
	if is(t, "the end", err, ErrDisconnected); errors.Is(err, uverbs.WCWRFlushErr) {
		t.Error(err)
	}
}

// TestFlushWithoutEnd checks that a flush because of a failed request is not reported as the end of the connection.
func TestFlushWithoutEnd(t *testing.T) {
	newRig(t)
	_, _, p := connection(t)
	check(t, p.PostRecv(1, uverbs.SGE{Length: 1}))
	check(t, p.QP().Modify(toErr, uverbs.MaskState))
	_, err := p.RecvComp(limit(t))
	if is(t, "a flushed receive", err, uverbs.WCWRFlushErr); errors.Is(err, ErrDisconnected) || p.Err() != nil {
		t.Errorf("%v, %v", err, p.Err())
	}
}

// TestWaitsEndOnChannel checks that an id on an event channel ends when Next returns the event. The program then calls
// Disconnect, which flushes.
func TestWaitsEndOnChannel(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	a, p := k.pair()
	check(t, a.Disconnect())
	is(t, "RecvComp after Disconnect", second(a.RecvComp(limit(t))), ErrDisconnected)
	is(t, "SendComp after Disconnect", second(a.SendComp(limit(t))), ErrDisconnected)
	check(t, p.PostRecv(1, uverbs.SGE{Length: 1}))
	if err := p.Err(); err != nil {
		t.Errorf("before the event is taken: %v", err)
	}
	k.next(EventDisconnected, p)
	is(t, "Err", p.Err(), ErrDisconnected)
	is(t, "RecvComp", second(p.RecvComp(limit(t))), ErrDisconnected)
	is(t, "PostSend", p.PostSend(1, 0, uverbs.SGE{}), ErrDisconnected)
	check(t, p.Disconnect())
	is(t, "the flushed receive", second(p.RecvComp(limit(t))), ErrDisconnected, uverbs.WCWRFlushErr)
	k.next(EventTimewaitExit, p)
	k.next(EventDisconnected, a)
	k.next(EventTimewaitExit, a)
}

// TestAccessorsBesideABatch checks that the goroutine that has an open SendBatch of the id's QP may call the id's
// accessors and register memory, even if the connection ends.
func TestAccessorsBesideABatch(t *testing.T) {
	for name, end := range map[string]func(r *rig, a, p *SyncID) error{
		"the peer leaves": func(_ *rig, a, _ *SyncID) error { return a.ID.Disconnect() },
		"Close":           func(_ *rig, _, p *SyncID) error { return p.Close() },
		"Disconnect":      func(_ *rig, _, p *SyncID) error { return p.Disconnect(context.Background()) },
		"removal":         func(r *rig, _, _ *SyncID) error { r.RemoveDevice(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			_, a, p := connection(t)
			b := p.QP().StartSend()
			over := make(chan error, 1)
			go func() { over <- end(r, a, p) }()
			if name == "the peer leaves" {
				<-p.Disconnected() // completeDisconnect reads the QP's outstanding sends without ID.mu
			} else {
				until(t, "the end waits for the batch", func() bool { return isHeld(&p.ID.mu) })
			}
			defer b.Abort()
			asked := make(chan error, 1)
			go func() {
				p.LocalAddr()
				p.RemoteAddr()
				p.LocalGID()
				p.RemoteGID()
				p.Port()
				p.PKey()
				p.PD()
				p.Verbs()
				p.Err()
				p.Event()
				p.RemoteECE()
				mr, err := p.AllocMsgs(64)
				if err == nil {
					err = mr.Close()
				}
				asked <- err
			}()
			select {
			case err := <-asked:
				check(t, err)
			case <-limit(t).Done():
				t.Error("the accessors wait for the batch of the goroutine that asks")
			}
			b.Abort()
			check(t, <-over)
		})
	}
}

// isHeld reports whether a lock is held.
func isHeld(mu *sync.Mutex) bool {
	if !mu.TryLock() {
		return true
	}
	mu.Unlock()
	return false
}

// TestWriteEventToSyncID checks that a program cannot write an event to an id whose calls would not read it.
func TestWriteEventToSyncID(t *testing.T) {
	newRig(t)
	s := newSyncID(t, PSTCP)
	is(t, "synchronous", s.WriteEvent(0, 7), uverbs.ErrInvalid)
	k := newTalk(t)
	check(t, s.Migrate(k.EventChannel))
	check(t, s.WriteEvent(0, 7))
	k.next(EventUser, s.ID)
	check(t, s.Close())
}

// TestEndDoesNotWaitForPolls checks that the end of a connection does not wait for completions that are not polled.
func TestEndDoesNotWaitForPolls(t *testing.T) {
	r := newRig(t)
	_, a, p := connection(t)
	p.ackWait = time.Hour
	r.loop().hold(p.QP().QPN())
	check(t, p.PostSend(1, uverbs.Signaled, uverbs.SGE{Length: 1}))
	if n := p.QP().SendsOutstanding(); n != 1 {
		t.Fatalf("%d sends are outstanding, want the one that was not polled", n)
	}
	check(t, p.PostRecv(2, uverbs.SGE{Length: 1}))
	check(t, a.Disconnect(limit(t)))
	is(t, "the receive", second(p.RecvComp(limit(t))), ErrDisconnected, uverbs.WCWRFlushErr)
	good(p.SendComp(limit(t)))(t)
	is(t, "the next", second(p.SendComp(limit(t))), ErrDisconnected)
}

// TestDisconnectKnownBeforeTheFlush checks that the id reports that this side ends the connection before requests are
// flushed, and does not report it if the QP cannot be moved.
func TestDisconnectKnownBeforeTheFlush(t *testing.T) {
	r := newRig(t)
	_, _, p := connection(t)
	l := r.loop()
	l.k.Set(func() { l.k.Refuse = map[string]unix.Errno{"MODIFY_QP": unix.EPERM} })
	is(t, "Disconnect that the kernel refuses", p.ID.Disconnect(), unix.EPERM)
	if err := p.Err(); err != nil {
		t.Errorf("the connection stands: %v", err)
	}
	l.k.Set(func() { l.k.Refuse = nil })
	check(t, p.PostSend(1, uverbs.Signaled, uverbs.SGE{Length: 1}))
	good(p.SendComp(limit(t)))(t)
	var known error
	l.mu.Lock()
	l.failing = func() { known, l.failing = p.Err(), nil }
	l.mu.Unlock()
	check(t, p.ID.Disconnect())
	is(t, "at the flush", known, ErrDisconnected)
}

// TestLateRejectionOnChannel checks that a rejection after the acceptance also ends a connection on an event channel.
func TestLateRejectionOnChannel(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	a, _ := k.pair()
	check(t, a.PostRecv(1, uverbs.SGE{Length: 1}))
	r.rejectLate(a)
	k.next(EventRejected, a)
	is(t, "Err", a.Err(), ErrDisconnected)
	is(t, "the flushed receive", second(a.RecvComp(limit(t))), ErrDisconnected, uverbs.WCWRFlushErr)
	is(t, "the next", second(a.RecvComp(limit(t))), ErrDisconnected)
}
