package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
)

// acquireRail returns a link that works, of any rail, for one more user. While there is none, goroutines connect, and
// it waits for one of them. A call of Spread does not prefer the rails that are near its CPU.
func (cl *Client[S]) acquireRail(ctx context.Context, spread bool) (s *slot[S], l *link[S], err error) {
	s, l, err = cl.useRail(spread)
	for tries := 0; l == nil && err == nil; tries++ {
		ended := cl.attempt()
		if s, l, err = cl.useRail(spread); l != nil || err != nil {
			break
		}
		wait, refused := cl.connectRails(tries == 0)
		if refused {
			err = cl.railErrors() // nil if another call has connected one meanwhile
			continue
		}
		err = cl.awaitRail(ctx, ended, wait)
	}
	return s, l, err
}

// awaitRail waits until an attempt has ended, or another one may be made.
func (cl *Client[S]) awaitRail(ctx context.Context, ended <-chan struct{}, wait time.Duration) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	case <-cl.open.Done():
		return net.ErrClosed
	case <-ctx.Done():
		if last := cl.railErrors(); last != nil {
			return fmt.Errorf("%w (last: %w)", ctxerr.Of(ctx), last)
		}
		return ctxerr.Of(ctx)
	}
	return nil
}

// useRail returns the best link for one more user, or nil if there is none. If other slots have none, goroutines
// connect.
func (cl *Client[S]) useRail(spread bool) (*slot[S], *link[S], error) {
	for { // each round finds another link, or one that has ended
		s, missing := cl.best(spread)
		if s == nil {
			return nil, nil, nil
		}
		l, err := s.use()
		if l == nil && err == nil {
			continue
		}
		if missing && l != nil {
			cl.connectRails(false)
		}
		return s, l, err
	}
}

// best returns the slot for the next call, or nil if no slot has a link, and whether a slot has none.
func (cl *Client[S]) best(spread bool) (best *slot[S], missing bool) {
	node, least := -1, 0
	if !spread && cl.numa.Load() {
		node = callerNode()
	}
	turn := int(cl.next.Load()) % len(cl.slots)
	for i := range cl.slots {
		s := &cl.slots[(turn+i)%len(cl.slots)]
		cost, ok := s.cost(node)
		missing = missing || !ok
		if ok && (best == nil || cost < least) {
			best, least = s, cost
		}
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

// isReply reports whether err is that of a call which the server has replied to.
func isReply(err error) bool {
	var e *CallError
	return errors.As(err, &e)
}

// connectRails starts goroutines that connect the slots without a link, if an attempt may be made now, or if urgent is
// set and the one before was refused. It returns how long to wait at most before another call of it, and reports
// whether there is nothing to wait for, because all slots were refused.
func (cl *Client[S]) connectRails(urgent bool) (wait time.Duration, refused bool) {
	now := time.Now()
	wait, refused = cl.options.MaxBackoff, true
	for i := range cl.slots {
		s := &cl.slots[i]
		s.mu.Lock()
		switch b := &s.backoff; {
		case s.closed || s.connecting || s.link != nil:
			refused = false
		case now.Before(b.next) && !(urgent && b.refused):
			wait = min(wait, b.next.Sub(now))
			refused = refused && b.refused
		default:
			s.connecting, refused = true, false
			cl.attempts.Add(1)
			go cl.connectRail(s)
		}
		s.mu.Unlock()
	}
	return wait, refused
}

// railTimeout limits an attempt without Options.Timeout, as Dial does.
const railTimeout = 30 * time.Second

// connectRail makes one attempt to connect a slot.
func (cl *Client[S]) connectRail(s *slot[S]) {
	defer cl.attempts.Done()
	ctx, cancel := context.WithTimeout(cl.open, orDefault(s.rail.options.Timeout, railTimeout))
	defer cancel()
	err := s.releaseAgain()
	if err != nil {
		err = fmt.Errorf("release the connection before: %w", err)
	} else {
		err = cl.connectSlot(ctx, s)
	}
	s.keep(err)
	cl.attempted(&s.backoff, err, ctx.Err() != nil)
	s.backoff.refused = err != nil && !mayPass(err)
	s.mu.Lock()
	s.connecting = false
	s.mu.Unlock()
	cl.wake()
}

// connectSlot connects a slot.
func (cl *Client[S]) connectSlot(ctx context.Context, s *slot[S]) error {
	c, v, err := cl.connect(ctx, s)
	if err != nil {
		return err
	}
	l, err := s.set(c, v, 0)
	if err != nil {
		return err
	}
	if l.node >= 0 {
		cl.numa.Store(true)
	}
	return s.release(l, false) // it may have ended already
}

// keep records the error of an attempt, or nil.
func (s *slot[S]) keep(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = err
	}
}

// railErrors returns the last errors of the slots, or nil.
func (cl *Client[S]) railErrors() error {
	var all railErrors
	for i := range cl.slots {
		s := &cl.slots[i]
		s.mu.Lock()
		if s.err != nil {
			all = append(all, &railError{s.rail, s.err})
		}
		s.mu.Unlock()
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
	LocalAddr netip.AddrPort // of the latest connection; zero before there was one, as what follows
	Device    string         // of the latest connection
	Port      int            // of the device
	NUMANode  int            // of the device, or -1

	Up    bool  // there is a connection, and the port of its device is up
	Err   error // why the latest connection has ended, or the latest attempt has failed; nil after one that succeeded
	Conns int   // that are in use

	Connected uint64 // connections that were established
	Failed    uint64 // attempts to connect
	Calls     uint64 // calls by Do and Retry, and parts of Spread, that were begun

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
			SpreadBytes: r.parts.Load()}
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
