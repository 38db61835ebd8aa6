package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// manual are the options of a listener whose requests the test reads.
var manual = &ListenOptions{ManualAccept: true}

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
		for _, p := range l.peers {
			for _, h := range p.active {
				if !h.waitingSince.IsZero() {
					waiting++
				}
			}
		}
		return waiting == n
	})
}

// waitState waits until so many requests wait for a handshake, and so many connections for Accept.
func waitState(t testing.TB, l *Listener, requests, ready int) {
	t.Helper()
	until(t, "requests and connections wait", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting == requests && l.ready == ready
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
	shorten(t, &crowdTime, 200*time.Millisecond)
	o := &ListenOptions{MaxHandshakes: 4, HandshakeTimeout: time.Minute}
	l := closing(t, good(Listen("192.0.2.1:0", o))(t))
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
	if d := time.Since(began); d < crowdTime {
		t.Errorf("the first was given up after %v, want %v at least", d, crowdTime)
	}
	canceled := 0
	for _, a := range all {
		if r.State(a.kernelID) == "over" {
			canceled++
		}
	}
	if canceled == 0 || canceled == 4 {
		t.Errorf("%d handshakes were canceled for one request", canceled)
	}
}

// TestNewestRequestFirst checks that the newest request is served first if many wait.
func TestNewestRequestFirst(t *testing.T) {
	newRig(t)
	shorten(t, &crowdTime, 100*time.Millisecond)
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{MaxHandshakes: 2, HandshakeTimeout: time.Minute}))(t))
	for range 2 {
		halfOpen(t, l)
	}
	waitHandshakes(t, l, 2)
	for range 40 {
		halfOpen(t, l)
	}
	dialed(t, dialing(t, l))
	closing(t, good(l.Accept(limit(t)))(t))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting < 36 {
		t.Errorf("only %d requests still wait: the newest of 41 was not served first", l.waiting)
	}
}

// TestHandshakeTimeout checks that HandshakeTimeout applies even if a call of Accept ends earlier.
func TestHandshakeTimeout(t *testing.T) {
	r := newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{HandshakeTimeout: 20 * time.Millisecond}))(t))
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
			m := closing(t, good(Listen("192.0.2.2:0", manual))(t))
			go func() { done <- second(l.Accept(ctx)) }()
			go func() { done <- second(m.Request(ctx)) }()
			check(t, c.end(r, l))
			check(t, c.end(r, m))
			for _, err := range []error{<-done, <-done, second(l.Accept(ctx)), second(m.Request(ctx)),
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
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: Options{Setup: func(c *Conn) error {
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
		return nil
	}}}))(t))
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
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: Options{Setup: func(*Conn) error {
		if fail {
			return wrong
		}
		return nil
	}}}))(t))
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
			l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: *o}))(t))
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
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: Options{Setup: func(c *Conn) error {
		c.Own(closerFunc(func() (err error) { once.Do(func() { err = broken }); return err }))
		return nil
	}}, HandshakeTimeout: time.Millisecond}))(t))
	halfOpen(t, l)
	is(t, "Accept", second(l.Accept(limit(t))), broken, errSlowPeer)
}

// TestCancelOldest checks which handshakes are canceled: those that have waited longest at the address with the most,
// even if others started first, and none while peers of that address confirm.
func TestCancelOldest(t *testing.T) {
	now := time.Now()
	ages := func(ages ...time.Duration) *peerRequests {
		p := &peerRequests{}
		for _, age := range ages {
			h := &handshake{cancel: func(error) {}}
			if age > 0 { // else it is still in Setup
				h.waitingSince = now.Add(-age)
			}
			p.active = append(p.active, h)
		}
		return p
	}
	const s = time.Second
	confirming := ages(16*s, 16*s, 16*s)
	confirming.confirmed = now.Add(-s)
	for _, c := range []struct {
		what     string
		a, b     *peerRequests
		requests int
		canceled [2]string // C for a canceled handshake
		next     time.Duration
	}{
		{"no request", ages(19*s, 18*s), ages(17 * s), 0, [2]string{"--", "-"}, 0},
		{"one request", ages(0, s, 12*s, 13*s), ages(18*s, 18*s), 1, [2]string{"---C", "--"}, 0},
		{"more than have waited", ages(0, s, 12*s, 13*s), ages(18 * s), 5, [2]string{"--CC", "C"}, 9 * s},
		{"none that waits", ages(0, 0), ages(0), 2, [2]string{"--", "-"}, 10 * s},
		{"peers that confirm", confirming, ages(18*s, 18*s), 9, [2]string{"---", "--"}, 9 * s},
	} {
		l := &Listener{}
		l.init(nil)
		l.peers[here], l.peers[silent.Addr()], l.waiting = c.a, c.b, c.requests
		next := l.cancelOldest(now)
		var got [2]string
		for k, p := range []*peerRequests{c.a, c.b} {
			for _, h := range p.active {
				got[k] += map[bool]string{true: "C", false: "-"}[h.canceled]
			}
		}
		if got != c.canceled || next != c.next {
			t.Errorf("%s: %q and %v, want %q and %v", c.what, got, next, c.canceled, c.next)
		}
	}
}

// TestNextPeer checks whose request is served next, if any.
func TestNextPeer(t *testing.T) {
	peer := func(active int, arrivals ...uint64) *peerRequests {
		p := &peerRequests{active: make([]*handshake, active)}
		for _, n := range arrivals {
			p.waiting = append(p.waiting, &request{arrival: n})
		}
		return p
	}
	silentPeer := peer(1, 4)
	silentPeer.silent = true
	for _, c := range []struct {
		what   string
		a, b   *peerRequests
		ready  int
		want   string
		newest bool
	}{
		{"no request", peer(1), peer(2), 0, "", false},
		{"the fewest handshakes", peer(3, 1, 2), peer(1, 3, 4), 0, "b", false},
		{"the oldest request", peer(2, 5), peer(2, 3), 0, "b", false},
		{"too many for the free slots", peer(13, 1), peer(2), 0, "", false},
		{"not too many", peer(9, 1), peer(4), 0, "a", false},
		{"no slot", peer(8, 1), peer(0, 2), 8, "", false},
		{"a slot for another address", peer(13, 1), peer(0, 2), 0, "b", false},
		{"Accept is not called", peer(0, 1), peer(0), 12, "", false},
		{"peers that did not confirm", silentPeer, peer(1), 0, "a", true},
		{"a crowd", peer(1, 1, 2, 3, 4, 5, 6, 7, 8, 9), peer(0, 10, 11, 12, 13, 14, 15, 16, 17), 0, "b", true},
	} {
		l := &Listener{}
		l.init(&ListenOptions{MaxHandshakes: 16, Backlog: 12})
		l.peers[here], l.peers[silent.Addr()] = c.a, c.b
		l.waiting, l.active, l.ready = len(c.a.waiting)+len(c.b.waiting), len(c.a.active)+len(c.b.active), c.ready
		p, newest := l.nextPeer()
		got := map[*peerRequests]string{c.a: "a", c.b: "b", nil: ""}[p]
		if got != c.want || newest != c.newest {
			t.Errorf("%s: %q, newest %t; want %q, %t", c.what, got, newest, c.want, c.newest)
		}
	}
}

// TestAcceptAfterDial checks that a goroutine can dial its own listener before it accepts, and that messages that
// arrive before Accept are not lost.
func TestAcceptAfterDial(t *testing.T) {
	newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: Options{
		Setup: func(c *Conn) error { return c.PostRecv(7) }}}))(t))
	a := closing(t, good(Dial(limit(t), l.Addr().String(), nil))(t))
	check(t, a.PostSend(1, uverbs.Signaled))
	good(a.SendComp(limit(t)))(t)
	b := closing(t, good(l.Accept(limit(t)))(t))
	if wc := good(b.RecvComp(limit(t)))(t); wc.WRID != 7 {
		t.Errorf("completion %+v", wc)
	}
}

// TestNextClientIsConnected checks that a server that handles one client before it accepts again does not leave the
// next in Dial.
func TestNextClientIsConnected(t *testing.T) {
	newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", nil))(t))
	first := closing(t, good(Dial(limit(t), l.Addr().String(), nil))(t))
	busyWith := closing(t, good(l.Accept(limit(t)))(t))
	second := closing(t, good(Dial(limit(t), l.Addr().String(), nil))(t))
	check(t, first.Close())
	<-busyWith.Disconnected()
	next := closing(t, good(l.Accept(limit(t)))(t))
	if next.RemoteAddr() != second.LocalAddr() {
		t.Errorf("accepted %v, want %v", next.RemoteAddr(), second.LocalAddr())
	}
}

// TestBacklog checks what a listener does whose program does not accept: as many clients are connected as its backlog,
// as many requests wait, and others read that the server is busy. When the program accepts, the others are served.
func TestBacklog(t *testing.T) {
	newRig(t)
	const backlog = 3
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Backlog: backlog}))(t))
	for range backlog {
		closing(t, good(Dial(limit(t), l.Addr().String(), nil))(t))
	}
	waitState(t, l, 0, backlog)
	var waiting []<-chan dialResult
	for k := range backlog {
		waiting = append(waiting, dialing(t, l))
		waitState(t, l, k+1, backlog)
	}
	// The oldest of the address is refused: its client may have given up.
	waiting = append(waiting, dialing(t, l))
	err := (<-waiting[0]).err
	is(t, "the first that waited", err, ErrRejected, ErrServerBusy)
	if !strings.Contains(err.Error(), "3 requests wait") {
		t.Errorf("%v lacks the limit", err)
	}
	waitState(t, l, backlog, backlog)
	for range 2 * backlog {
		closing(t, good(l.Accept(limit(t)))(t))
	}
	for _, done := range waiting[1:] {
		dialed(t, done)
	}
}

// TestRequestBacklog checks that a client whose request exceeds the backlog of a listener with ManualAccept reads that
// the server is busy.
func TestRequestBacklog(t *testing.T) {
	newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Backlog: 1, ManualAccept: true}))(t))
	one, two := dialing(t, l), dialing(t, l)
	var refused dialResult
	select {
	case refused = <-one:
		one = two
	case refused = <-two:
	}
	is(t, "one of the clients", refused.err, ErrRejected, ErrServerBusy)
	closing(t, good(good(l.Request(limit(t)))(t).Accept(limit(t), nil))(t))
	dialed(t, one)
}

// TestMaxConns checks the limits on connections of a listener and of one address, that their clients read them, and
// that Close of a connection makes room.
func TestMaxConns(t *testing.T) {
	for name, c := range map[string]struct {
		options ListenOptions
		allowed int
	}{
		"in all":               {ListenOptions{MaxConns: 2, MaxConnsPerPeer: -1}, 2},
		"of an address":        {ListenOptions{MaxConnsPerPeer: 3}, 3},
		"of an address, half":  {ListenOptions{MaxConns: 3}, 2},
		"of an address, alone": {ListenOptions{MaxConns: -1, MaxConnsPerPeer: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			newRig(t)
			l := closing(t, good(Listen("192.0.2.1:0", &c.options))(t))
			var last *Conn
			for range c.allowed {
				closing(t, good(Dial(limit(t), l.Addr().String(), nil))(t))
				last = closing(t, good(l.Accept(limit(t)))(t))
			}
			_, err := Dial(limit(t), l.Addr().String(), nil)
			is(t, "one too many", err, ErrRejected, ErrServerLimit)
			for _, part := range []string{fmt.Sprintf("at most %d", c.allowed), "connections"} {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("%v lacks %q", err, part)
				}
			}
			check(t, last.Close())
			closing(t, good(Dial(limit(t), l.Addr().String(), nil))(t))
			closing(t, good(l.Accept(limit(t)))(t))
		})
	}
}

// TestMaxConnsOfOthers checks that the limit of one address does not keep others out, and that Request has the limits
// too.
func TestMaxConnsOfOthers(t *testing.T) {
	newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{MaxConnsPerPeer: 1, ManualAccept: true}))(t))
	from := func(a netip.Addr) <-chan dialResult {
		done := make(chan dialResult, 1)
		go func() {
			c, err := Dial(limit(t), l.Addr().String(), &Options{LocalAddr: at(a, 0)})
			done <- dialResult{c, err}
		}()
		return done
	}
	first := from(here)
	closing(t, good(good(l.Request(limit(t)))(t).Accept(limit(t), nil))(t))
	dialed(t, first)
	requests := make(chan *Request, 1)
	go func() {
		r, err := l.Request(limit(t))
		if err != nil {
			t.Error(err)
		}
		requests <- r
	}()
	is(t, "one too many", (<-from(here)).err, ErrServerLimit)
	other := from(netip.MustParseAddr("192.0.2.2"))
	check(t, (<-requests).Close())
	is(t, "a request that is closed", (<-other).err, ErrRejected)
	other = from(netip.MustParseAddr("192.0.2.2"))
	closing(t, good(good(l.Request(limit(t)))(t).Accept(limit(t), nil))(t))
	dialed(t, other)
}

// TestConnsAreCounted checks that nothing is counted any more after connections were closed, abandoned, refused or
// never accepted.
func TestConnsAreCounted(t *testing.T) {
	newRig(t)
	uncounted := func(l *Listener) {
		t.Helper()
		if own, all := l.conns.Used(here); own != 0 || all != 0 {
			t.Errorf("%d connections are counted, %d of the address, want none", all, own)
		}
	}
	l := good(Listen("192.0.2.1:0", &ListenOptions{HandshakeTimeout: time.Millisecond, MaxHandshakes: 2}))(t)
	for range 6 {
		halfOpen(t, l)
	}
	waitState(t, l, 0, 0)
	waitHandshakes(t, l, 0)
	check(t, l.Close())
	uncounted(l)
	fails := false
	l = good(Listen("192.0.2.1:0", &ListenOptions{Options: Options{Setup: func(*Conn) error {
		if fails {
			return ErrServerLimit
		}
		return nil
	}}}))(t)
	unaccepted := good(Dial(limit(t), l.Addr().String(), nil))(t)
	waitState(t, l, 0, 1)
	if _, all := l.conns.Used(here); all != 1 {
		t.Errorf("%d connections are counted, want 1", all)
	}
	check(t, good(l.Accept(limit(t)))(t).Close())
	check(t, unaccepted.Close())
	fails = true
	is(t, "Dial", second(Dial(limit(t), l.Addr().String(), nil)), ErrServerLimit)
	check(t, l.Close())
	uncounted(l)
}

// TestRequestOrAccept checks that a listener is used in the way that its options select.
func TestRequestOrAccept(t *testing.T) {
	newRig(t)
	l, m := closing(t, good(Listen("192.0.2.1:0", nil))(t)), closing(t, good(Listen("192.0.2.1:0", manual))(t))
	is(t, "Request", second(l.Request(limit(t))), uverbs.ErrInvalid)
	is(t, "Accept", second(m.Accept(limit(t))), uverbs.ErrInvalid)
	is(t, "a negative backlog", second(Listen("192.0.2.1:0", &ListenOptions{Backlog: -1})), uverbs.ErrInvalid)
	done := dialing(t, m)
	q := good(m.Request(limit(t)))(t) // no handshake has begun
	check(t, q.Reject(nil))
	is(t, "the client", (<-done).err, ErrRejected)
}

// TestRejectedWhileConfirming checks that a client whose confirmation is too slow for the server reads that it is busy.
func TestRejectedWhileConfirming(t *testing.T) {
	r := newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{HandshakeTimeout: time.Millisecond}))(t))
	r.Hold(uint32(EventConnectResponse), uint32(EventRejected))
	done := dialing(t, l)
	until(t, "the handshake ends", func() bool { return r.Received(&r.Machine, "rej") > 0 })
	r.Release()
	is(t, "the client", (<-done).err, ErrRejected, ErrServerBusy)
}

// TestBurst connects as many clients at once as the kernel's backlog and more, from two addresses.
func TestBurst(t *testing.T) {
	clients := 2000
	if race.Enabled { // the kernel in memory becomes the bottleneck
		clients = 300
	}
	newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: Options{QP: small}}))(t))
	serve(t, l)
	var all sync.WaitGroup
	for k := range clients {
		all.Go(func() {
			o := &Options{QP: small, LocalAddr: at(netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + k%2)}), 0)}
			c, err := Dial(context.Background(), l.Addr().String(), o)
			if err == nil {
				err = c.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestFlood runs one listener with many peers that do not confirm and with clients that do. It checks that there are no
// more handshakes than ListenOptions.MaxHandshakes, and that each client is served.
func TestFlood(t *testing.T) {
	newRig(t)
	const limited = 8
	shorten(t, &crowdTime, 100*time.Millisecond)
	o := &ListenOptions{MaxHandshakes: limited}
	l := closing(t, good(Listen("192.0.2.1:0", o))(t))
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
			most = max(most, l.active+l.ready)
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
