package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
)

// acquireRail returns a link that works, of any rail, for one more user. While there is none, goroutines connect, and
// it waits for one of them. A call of Spread does not prefer the rails that are near its CPU. A call whose context has
// ended gets none: what it returns says nothing about the rail.
func (cl *Client[S]) acquireRail(ctx context.Context, turn uint32, spread bool) (*slot[S], *link[S], error) {
	if ctx.Err() != nil {
		return nil, nil, ctxerr.Of(ctx)
	}
	if s, l := cl.useRail(turn, spread); l != nil {
		return s, l, nil
	}
	for began := time.Now(); ; {
		ended := cl.attempt()
		if s, l := cl.useRail(turn, spread); l != nil {
			return s, l, nil
		}
		wait, refused := cl.connectRails(began)
		if refused {
			if err := cl.railErrors(); err != nil { // no other call has connected one meanwhile
				return nil, nil, finalError(err)
			}
		}
		if err := cl.await(ctx, ended, wait, cl.railErrors); err != nil {
			return nil, nil, err
		}
	}
}

// useRail returns the best link for one more user, or nil if there is none. If other slots have none, goroutines
// connect.
func (cl *Client[S]) useRail(turn uint32, spread bool) (*slot[S], *link[S]) {
	for { // each round finds another link, or one that has ended
		s, missing := cl.best(turn, spread)
		if s == nil {
			return nil, nil
		}
		l, err := s.use()
		if l == nil {
			s.keep(err)
			continue
		}
		if missing && time.Now().UnixNano() >= cl.nextAttempt.Load() {
			cl.connectRails(time.Time{})
		}
		return s, l
	}
}

// best returns the slot for the next call, or nil if no slot has a link, and whether a slot has none.
func (cl *Client[S]) best(turn uint32, spread bool) (best *slot[S], missing bool) {
	node, least := -1, 0
	if !spread && cl.numa.Load() {
		node = callerNode()
	}
	first := int(turn % uint32(len(cl.slots)))
	for i := range cl.slots {
		s := &cl.slots[(first+i)%len(cl.slots)]
		cost, ok := s.cost(node)
		missing = missing || !ok
		if ok && (best == nil || cost < least) {
			best, least = s, cost
		}
	}
	if best != nil {
		best.probe(cl.options.MaxBackoff)
	}
	return best, missing
}

// The parts of a cost, from the most important on. The rest is the number of calls.
const (
	costDown    = 1 << 30
	costDoubted = 1 << 29
	costFar     = 1 << 28
)

// cost returns what speaks against the slot for a call on a CPU of a NUMA node. ok is false if the slot has no link.
func (s *slot[S]) cost(node int) (cost int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return 0, false
	}
	cost = s.link.users
	if node >= 0 && s.link.node != node {
		cost += costFar
	}
	if until := s.doubted.Load(); until != 0 && time.Now().UnixNano() < until {
		cost += costDoubted
	}
	if s.link.down() {
		cost += costDown
	}
	return cost, true
}

// called learns from a call with the slot's link. If its deadline has passed, the server may not be reached any more,
// which the device notices after seconds: for a while, the slot is used if no other works.
func (s *slot[S]) called(part int, err error, while time.Duration) {
	if err == nil && part > 0 {
		s.rail.parts.Add(uint64(part))
	}
	switch {
	case err == nil || isReply(err):
		if s.doubted.Load() != 0 {
			s.doubted.Store(0)
		}
	case errors.Is(err, context.DeadlineExceeded):
		s.doubted.Store(time.Now().Add(while).UnixNano())
	}
}

// probe prolongs the doubt of a slot that a call uses after it: other calls wait for what that one learns.
func (s *slot[S]) probe(while time.Duration) {
	if until := s.doubted.Load(); until != 0 {
		if now := time.Now(); now.UnixNano() >= until {
			s.doubted.CompareAndSwap(until, now.Add(while).UnixNano())
		}
	}
}

// isReply reports whether err is that of a call which the server has replied to.
func isReply(err error) bool {
	var e *CallError
	return errors.As(err, &e)
}

// connectRails starts goroutines that connect the slots without a link, if an attempt may be made now. began is when a
// call that has no link has begun to wait, or zero. Such a call does not wait for the pause of a slot that was refused
// before. connectRails returns how long to wait at most before another call of it, and reports whether attempts that
// began since then were refused for all slots: the call does not wait for further ones.
func (cl *Client[S]) connectRails(began time.Time) (wait time.Duration, refused bool) {
	now := time.Now()
	wait, refused = cl.options.MaxBackoff, true
	for i := range cl.slots {
		s := &cl.slots[i]
		s.mu.Lock()
		b := &s.backoff
		recently := b.refused && b.begun.After(began)
		refused = refused && recently && s.link == nil && !s.closed
		switch {
		case s.closed || s.connecting || s.link != nil:
		case now.Before(b.next) && (began.IsZero() || recently || !b.refused):
			wait = min(wait, b.next.Sub(now))
		default:
			s.connecting = true
			cl.attempts.Add(1)
			go cl.connectRail(s)
		}
		s.mu.Unlock()
	}
	cl.nextAttempt.Store(now.Add(wait).UnixNano())
	return wait, refused
}

// railTimeout limits an attempt without Options.Timeout, as Dial does.
const railTimeout = 30 * time.Second

// connectRail makes one attempt to connect a slot. It releases the connection when that has ended or is retired.
func (cl *Client[S]) connectRail(s *slot[S]) {
	l := cl.attemptRail(s)
	if l == nil {
		return
	}
	if cl.awaitEnd(l) {
		s.keep(s.release(l, nil))
		cl.nextAttempt.Store(0)
	}
}

// awaitEnd waits until a link has ended or is retired, and returns false if the client is closed before: Close then
// ends the connection, and returns its errors.
func (cl *Client[S]) awaitEnd(l *link[S]) bool {
	var tick <-chan time.Time
	if d := l.c.options.KeepAlive; d > 0 {
		t := time.NewTicker(d)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-l.c.cm.Disconnected():
			return true
		case <-l.left:
			return true
		case <-cl.open.Done():
			return false
		case <-tick:
			if l.c.checkAlive() != nil {
				return true
			}
		}
	}
}

// attemptRail makes one attempt to connect a slot, and returns its link or nil.
func (cl *Client[S]) attemptRail(s *slot[S]) (l *link[S]) {
	ctx, cancel := context.WithTimeout(cl.open, orDefault(s.rail.options.Timeout, railTimeout))
	defer cancel()
	began, err := time.Now(), errSetupExited
	defer func() { cl.attemptEnded(s, began, err, ctx.Err() != nil) }()
	c, dialed := cl.dialRail(ctx, s)
	if err = dialed; err != nil {
		return nil
	}
	err = errSetupExited
	v, failed := cl.setup(ctx, s, c)
	if err = failed; err != nil {
		return nil
	}
	if l, err = s.set(c, v, 0); err == nil && l.node >= 0 {
		cl.numa.Store(true)
	}
	return l
}

// dialRail establishes a connection of a slot.
func (cl *Client[S]) dialRail(ctx context.Context, s *slot[S]) (*Conn, error) {
	defer cl.attempts.Done()
	if err := s.releaseAgain(); err != nil {
		return nil, fmt.Errorf("release the connection before: %w", err)
	}
	return s.dial(ctx)
}

// attemptEnded records an attempt to connect a slot, and wakes the calls that wait.
func (cl *Client[S]) attemptEnded(s *slot[S], began time.Time, err error, ended bool) {
	s.keep(err)
	s.mu.Lock()
	cl.attempted(&s.backoff, began, err, ended)
	s.backoff.refused = err != nil && !mayPass(err)
	s.connecting = false
	s.mu.Unlock()
	cl.nextAttempt.Store(0)
	cl.wake()
}

// keep records the error of an attempt or of releasing a connection, or nil, unless the slot has another one.
func (s *slot[S]) keep(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.link == nil {
		s.err = err
	}
}

// railErrors returns the last error of each rail, of the first slot that has one, or nil.
func (cl *Client[S]) railErrors() error {
	var all railErrors
	for i := range cl.rails {
		var err error
		for k := i; k < len(cl.slots) && err == nil; k += len(cl.rails) {
			s := &cl.slots[k]
			s.mu.Lock()
			err = s.err
			s.mu.Unlock()
		}
		if err != nil {
			all = append(all, &railError{&cl.rails[i], err})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// railErrors are the errors of rails.
type railErrors []error

func (r railErrors) Error() string {
	texts := make([]string, len(r))
	for i, err := range r {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}
func (r railErrors) Unwrap() []error { return r }

type railError struct {
	rail *rail
	err  error
}

func (r *railError) Error() string {
	text := strings.TrimPrefix(strings.TrimPrefix(r.err.Error(), "rdma: "), "dial "+r.rail.addr+": ")
	if from := r.rail.options.LocalAddr; from.IsValid() {
		return fmt.Sprintf("from %v to %s: %s", from.Addr(), r.rail.addr, text)
	}
	return r.rail.addr + ": " + text
}
func (r *railError) Unwrap() error { return r.err }

// RailStats say what a client has done over a rail since its begin, and its state.
type RailStats struct {
	Addr      string         // of the server
	LocalAddr netip.AddrPort // of the latest connection; zero before there was one, as Device and Port
	Device    string         // of the latest connection
	Port      int            // of the device
	NUMANode  int            // of the device, or -1

	// Up is whether there is a connection, and the port of its device is up. Err is why the latest connection has ended
	// or is not used any more, or the latest attempt has failed, and nil after an attempt that has succeeded. With
	// several connections, it may be the error of one of them while another one is up.
	Up    bool
	Err   error
	Conns int // connections that there are

	Connected   uint64 // connections that were established
	Failed      uint64 // attempts to connect
	Undelivered uint64 // connections whose Close has returned [ErrUndelivered]
	Calls       uint64 // calls by Do and Retry, and parts of Spread, that were begun

	SentBytes, ReceivedBytes uint64 // of messages, calls and replies
	Operations               uint64 // one-sided
	SpreadBytes              uint64 // of parts of Spread
}

// Rails returns what the client has done over each rail: over that of its address, and those of ClientOptions.Rails.
func (cl *Client[S]) Rails() []RailStats {
	all := make([]RailStats, len(cl.rails))
	for i := range all {
		r := &cl.rails[i]
		all[i] = RailStats{Addr: r.addr, NUMANode: -1, Connected: r.connected.Load(), Failed: r.failed.Load(),
			Undelivered: r.undelivered.Load(), SpreadBytes: r.parts.Load()}
	}
	for i := range cl.slots {
		cl.slots[i].addTo(&all[i%len(all)])
	}
	return all
}

// addTo adds what the slot knows to the RailStats of its rail.
func (s *slot[S]) addTo(r *RailStats) {
	s.mu.Lock()
	l, err := s.link, s.err
	r.Calls += s.calls
	t, conns := s.past, append([]*Conn(nil), s.conns...)
	if p := &s.latest; p.name != "" {
		r.LocalAddr, r.Device, r.Port, r.NUMANode = p.local, p.name, p.port, p.node
	}
	s.mu.Unlock()
	for _, c := range conns {
		stats := c.Stats() // may call functions of a Trace, as Err
		t.add(&stats)
	}
	if l != nil {
		if err = l.c.Err(); err == nil {
			r.Conns++
			r.Up = r.Up || !l.down()
		}
	}
	if r.Err == nil {
		r.Err = err
	}
	r.SentBytes += t.sentBytes
	r.ReceivedBytes += t.receivedBytes
	r.Operations += t.operations
}
