package cm

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// halfOpen sends a request to a listener and never confirms the connection.
func halfOpen(t testing.TB, l *Listener) *SyncID {
	t.Helper()
	a := newSyncID(t, PSTCP)
	check(t, a.ResolveAddr(limit(t), at(here, 0), l.Addr(), 0))
	check(t, a.ResolveRoute(limit(t), 0))
	check(t, a.ID.Connect(foreign))
	return a
}

// waitHandshakes waits until n handshakes of a listener wait for their peers.
func waitHandshakes(t testing.TB, l *Listener, n int) {
	t.Helper()
	until(t, "handshakes wait for their peers", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		waiting := 0
		for _, h := range l.active {
			if !h.waitingSince.IsZero() {
				waiting++
			}
		}
		return waiting == n
	})
}

type dialResult struct {
	conn *Conn
	err  error
}

func dialing(t testing.TB, l *Listener) <-chan dialResult {
	t.Helper()
	done := make(chan dialResult, 1)
	go func() {
		c, err := Dial(limit(t), l.Addr().String(), nil)
		done <- dialResult{c, err}
	}()
	return done
}

// dialed returns the connection of dialing. It is closed when the test ends.
func dialed(t testing.TB, done <-chan dialResult) *Conn {
	t.Helper()
	d := <-done
	check(t, d.err)
	return closing(t, d.conn)
}

// TestAcceptBesideHalfOpen checks that a peer that does not confirm does not delay others: a serial loop accepts the
// next.
func TestAcceptBesideHalfOpen(t *testing.T) {
	newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", nil))(t))
	for range 3 {
		halfOpen(t, l)
	}
	done := dialing(t, l)
	closing(t, good(l.Accept(limit(t)))(t))
	dialed(t, done)
	waitHandshakes(t, l, 3)
}

// TestHandshakesCanceled checks that handshakes that have waited long enough are canceled if all slots are in use, but
// no more than needed.
func TestHandshakesCanceled(t *testing.T) {
	r := newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", &Options{MaxHandshakes: 4}))(t))
	got := make(chan dialResult, 1)
	began := time.Now()
	go func() {
		c, err := l.Accept(limit(t))
		got <- dialResult{c, err}
	}()
	var all []*SyncID
	for range 4 {
		all = append(all, halfOpen(t, l))
	}
	waitHandshakes(t, l, 4)
	done := dialing(t, l)
	dialed(t, done)
	dialed(t, got)
	if d := time.Since(began); d < minPeerTime {
		t.Errorf("the first was given up after %v, want %v at least", d, minPeerTime)
	}
	states := map[string]int{}
	for _, a := range all {
		states[r.State(a.kernelID)]++
	}
	if states["over"] != 1 || states["answered"] != 3 {
		t.Errorf("%v, want one that is refused", states)
	}
}

// TestNewestRequestFirst checks that the newest request is served first if many wait.
func TestNewestRequestFirst(t *testing.T) {
	newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", &Options{MaxHandshakes: 2}))(t))
	for range 4 {
		halfOpen(t, l)
	}
	done := dialing(t, l)
	until(t, "all have asked", func() bool { n, _, _ := l.ID().requestState(); return n == 5 })
	began := time.Now()
	closing(t, good(l.Accept(limit(t)))(t))
	dialed(t, done)
	if d := time.Since(began); d >= minPeerTime {
		t.Errorf("the client has waited for %v", d)
	}
}

// TestHandshakeTimeout checks that HandshakeTimeout applies even if a call of Accept ends earlier.
func TestHandshakeTimeout(t *testing.T) {
	r := newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", &Options{HandshakeTimeout: 20 * time.Millisecond}))(t))
	a := halfOpen(t, l)
	ctx, cancel := context.WithCancel(limit(t))
	got := make(chan error, 1)
	go func() { got <- second(l.Accept(ctx)) }()
	until(t, "the peer is refused", func() bool { return r.State(a.kernelID) == "over" })
	waitHandshakes(t, l, 0)
	cancel()
	is(t, "Accept, which does not hear of it", <-got, context.Canceled)
}

// TestAcceptByShortDeadlines checks that the end of Accept's context does not end a handshake: the next call returns
// the connection.
func TestAcceptByShortDeadlines(t *testing.T) {
	r := newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", nil))(t))
	r.Hold(uint32(EventConnectResponse))
	done := dialing(t, l)
	ctx, cancel := context.WithCancel(limit(t))
	first := make(chan error, 1)
	go func() { first <- second(l.Accept(ctx)) }()
	waitHandshakes(t, l, 1)
	cancel()
	is(t, "the first", <-first, context.Canceled)
	r.Release()
	dialed(t, done)
	closing(t, good(l.Accept(limit(t)))(t))
}

// TestAcceptAfterTheEnd checks that Accept returns the same error each time after the listener has ended, for any
// reason.
func TestAcceptAfterTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*rig, *Listener) error
		want error
	}{
		"Close":   {func(_ *rig, l *Listener) error { return l.Close() }, uverbs.ErrClosed},
		"removal": {func(r *rig, _ *Listener) error { r.RemoveDevice(); return nil }, uverbs.ErrDeviceGone},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			ctx := limit(t)
			l := closing(t, good(Listen("192.0.2.1:0", nil))(t))
			done := make(chan error, 2)
			go func() { done <- second(l.Accept(ctx)) }()
			go func() { done <- second(l.Request(ctx)) }()
			check(t, c.end(r, l))
			for _, err := range []error{<-done, <-done, second(l.Accept(ctx)), second(l.Request(ctx)),
				second(l.ID().GetRequest(ctx))} {
				is(t, "after the end", err, ErrListenerClosed, net.ErrClosed, c.want)
			}
			is(t, "with a context that has ended", second(l.Accept(endedContext())), context.Canceled)
		})
	}
}

// TestListenerCloseEndsHandshakes checks that Close ends the handshakes and closes the connections that Accept has not
// returned.
func TestListenerCloseEndsHandshakes(t *testing.T) {
	r := newRig(t)
	var conns []*Conn
	var mu sync.Mutex
	l := closing(t, good(Listen("192.0.2.1:0", &Options{Setup: func(c *Conn) error {
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
		return nil
	}}))(t))
	a := halfOpen(t, l)
	ctx, cancel := context.WithCancel(limit(t))
	got := make(chan error, 1)
	go func() { got <- second(l.Accept(ctx)) }()
	waitHandshakes(t, l, 1)
	cancel()
	is(t, "Accept", <-got, context.Canceled)
	r.Hold(uint32(EventEstablished)) // so that Accept does not return this one
	b := readyID(t, l.ID())
	connected := make(chan error, 1)
	go func() { connected <- b.Connect(limit(t), nil) }()
	ctx, cancel = context.WithCancel(limit(t))
	go func() { got <- second(l.Accept(ctx)) }()
	check(t, <-connected)
	cancel()
	is(t, "Accept, once more", <-got, context.Canceled)
	r.Release()
	waitHandshakes(t, l, 1)
	check(t, l.Close())
	for _, c := range conns {
		is(t, "a connection of the listener", c.Err(), uverbs.ErrClosed)
	}
	until(t, "the peers are refused", func() bool { return r.State(a.kernelID) == "over" })
	<-b.Disconnected()
}

// TestAcceptErrors checks that Accept reports failures of this side but not those of the peer.
func TestAcceptErrors(t *testing.T) {
	newRig(t)
	wrong := errors.New("not today")
	fail := true
	l := closing(t, good(Listen("192.0.2.1:0", &Options{Setup: func(*Conn) error {
		if fail {
			return wrong
		}
		return nil
	}}))(t))
	done := dialing(t, l)
	is(t, "Setup fails", second(l.Accept(limit(t))), wrong)
	is(t, "its peer", (<-done).err, ErrRejected)
	fail = false
	a := halfOpen(t, l)
	done = dialing(t, l)
	closing(t, good(l.Accept(limit(t)))(t))
	dialed(t, done)
	check(t, a.Close()) // withdraws its request
	done = dialing(t, l)
	closing(t, good(l.Accept(limit(t)))(t))
	dialed(t, done)
	waitHandshakes(t, l, 0)
}

// TestAcceptSetupMeetsPeerError checks that Accept returns an error of Setup that also matches an error of a peer: a
// proxy's Setup may dial another server.
func TestAcceptSetupMeetsPeerError(t *testing.T) {
	newRig(t)
	upstream := &Error{Op: "dial", Object: "upstream", Kind: ErrRejected, Errno: unix.ECONNREFUSED}
	fails := func(*Conn) error { return upstream }
	for name, o := range map[string]*Options{
		"Setup":   {Setup: fails},
		"Prepare": {Prepare: func(c *Conn, _ *uverbs.QPConfig) error { return fails(c) }},
	} {
		t.Run(name, func(t *testing.T) {
			l := closing(t, good(Listen("192.0.2.1:0", o))(t))
			done := dialing(t, l)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			is(t, "Accept", second(l.Accept(ctx)), upstream)
			is(t, "its peer", (<-done).err, ErrRejected)
		})
	}
}

// TestAcceptReportsWhatRemains checks that Accept reports objects that remain after a handshake that the peer has
// ended.
func TestAcceptReportsWhatRemains(t *testing.T) {
	newRig(t)
	broken := errors.New("broken")
	var once sync.Once
	l := closing(t, good(Listen("192.0.2.1:0", &Options{HandshakeTimeout: time.Millisecond, Setup: func(c *Conn) error {
		c.Own(closerFunc(func() (err error) { once.Do(func() { err = broken }); return err }))
		return nil
	}}))(t))
	halfOpen(t, l)
	is(t, "Accept", second(l.Accept(limit(t))), broken, errSlowPeer)
}

// TestCancelOldest checks that the handshake that has waited longest is canceled, even if another one started first.
func TestCancelOldest(t *testing.T) {
	l := &Listener{handshakes: newHandshakes()}
	now := time.Now()
	// The first is still in Setup, and the second was slow in Setup.
	for _, since := range []time.Time{{}, now, now.Add(-5 * time.Second), now.Add(-4 * time.Second)} {
		h := &handshake{waitingSince: since}
		h.ctx, h.cancel = context.WithCancelCause(context.Background())
		defer h.cancel(nil)
		l.active = append(l.active, h)
	}
	canceled := func() (all []bool) {
		for _, h := range l.active {
			all = append(all, h.canceled)
		}
		return all
	}
	for n, want := range [][]bool{{false, false, false, false}, {false, false, true, false}, {false, false, true, true},
		{false, false, true, true}} {
		timer := l.cancelOldest(n)
		if got := canceled(); !slices.Equal(got, want) {
			t.Errorf("for %d requests: canceled %v, want %v", n, got, want)
		}
		if n == 3 && timer == nil {
			t.Error("no timer for the next one")
		}
	}
}

// TestFlood runs one listener with many peers that do not confirm and with clients that do. It checks that there are no
// more handshakes than Options.MaxHandshakes, and that each client is served.
func TestFlood(t *testing.T) {
	newRig(t)
	const limited = 8
	l := closing(t, good(Listen("192.0.2.1:0", &Options{MaxHandshakes: limited}))(t))
	var most int
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(limit(t))
	go func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				served <- err
				return
			}
			l.mu.Lock()
			most = max(most, len(l.active))
			l.mu.Unlock()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 3 * limited {
		halfOpen(t, l)
	}
	for range 4 {
		d := <-dialing(t, l)
		check(t, d.err)
		check(t, d.conn.Close())
	}
	cancel()
	is(t, "the loop", <-served, context.Canceled)
	if most > limited {
		t.Errorf("%d handshakes at a time, want %d at most", most, limited)
	}
}
