package cm

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// This file has the calls of a [SyncID]; sync.go has how they wait.

// ResolveAddr is [ID.ResolveAddr], and waits for the answer. [ErrTimeout] where
// nobody answers; else the errors are those of [ID.ResolveAddr], or the cause
// of the context's end.
func (s *SyncID) ResolveAddr(ctx context.Context, src, dst netip.AddrPort, timeout time.Duration) error {
	return s.ask(ctx, "resolve address", addrAnswers, func() error { return s.ID.ResolveAddr(src, dst, timeout) })
}

// ResolveRoute is [ID.ResolveRoute], and waits for the answer. [ErrTimeout]
// where nobody tells the way; else the errors are those of [ID.ResolveRoute],
// or the cause of the context's end.
func (s *SyncID) ResolveRoute(ctx context.Context, timeout time.Duration) error {
	return s.ask(ctx, "resolve route", routeAnswers, func() error { return s.ID.ResolveRoute(timeout) })
}

// ResolveService is [ID.ResolveService], and waits for the answer. The errors
// are those of [ID.ResolveService] and of the answer, or the cause of the
// context's end.
func (s *SyncID) ResolveService(ctx context.Context, name string, number uint64) error {
	return s.ask(ctx, "resolve service", serviceAnswers, func() error { return s.ID.ResolveService(name, number) })
}

// SetPaths is [ID.SetPaths], and waits for the answer. The errors are those of
// [ID.SetPaths], or the cause of the context's end.
func (s *SyncID) SetPaths(ctx context.Context, paths []PathRecord) error {
	return s.ask(ctx, "set paths", routeAnswers, func() error { return s.ID.SetPaths(paths) })
}

// Connect is [ID.Connect], and waits for the answer, which [SyncID.Event] has
// then: the peer's private data, and for UD where to send. For an id without a
// QP the answer is EventConnectResponse. [ErrRejected], [ErrUnreachable] and
// [ErrTimeout] are the peer's; else the errors are those of [ID.Connect], or
// the cause of the context's end.
func (s *SyncID) Connect(ctx context.Context, p *ConnParam) error {
	return s.ask(ctx, "connect", connectAnswers, func() error { return s.ID.Connect(p) })
}

// Accept is [ID.Accept], and waits until the peer has heard of it.
// [ErrRejected], [ErrDisconnected], [ErrUnreachable] and [ErrTimeout] when the
// peer has gone back on it, or is gone; else the errors are those of
// [ID.Accept], or the cause of the context's end.
func (s *SyncID) Accept(ctx context.Context, p *ConnParam) error {
	if s.QPType() == uverbs.UD {
		return s.ID.Accept(p)
	}
	return s.ask(ctx, "accept", connectAnswers, func() error { return s.ID.Accept(p) })
}

// Establish is [ID.Establish]. The errors are those of [ID.Establish].
func (s *SyncID) Establish() error {
	if err := s.ID.Establish(); err != nil {
		return err
	}
	s.settle()
	return nil
}

// ask issues a command and waits for its answer.
func (s *SyncID) ask(ctx context.Context, op string, fits func(*record) bool, command func() error) error {
	if err := s.begin(ctx, op); err != nil {
		return err
	}
	if err := command(); err != nil {
		return err
	}
	_, err := s.answer(ctx, op, fits)
	return err
}

// GetRequest waits for the next connection request: rdma_get_request(3). Where
// [CreateEP] was given a QPConfig, the new id has its QP already. Several
// goroutines may wait. An error may be of one request alone: the listener's end
// closes [SyncID.Disconnected]. [uverbs.ErrClosed] then, or the cause of the
// context's end.
func (s *SyncID) GetRequest(ctx context.Context) (*SyncID, error) {
	r, err := s.next(ctx, requests)
	if err != nil {
		return nil, err
	}
	e := s.ID.process(r)
	if e == nil {
		return nil, closed("wait on", s.name())
	}
	if err := e.Err(); err != nil {
		return nil, err
	}
	child := e.ID.synced()
	child.mu.Lock()
	child.last = e
	child.mu.Unlock()
	if s.request.wanted {
		if err := child.CreateQP(s.request.pd, s.request.qp); err != nil {
			return nil, errors.Join(err, child.Close())
		}
	}
	return child, nil
}

// Disconnect is [ID.Disconnect], and waits until the peer knows, or has been
// given up. An error is also what keeps it from being known: the id is closed
// or migrated meanwhile, or the device goes. [uverbs.ErrInvalid] for an id that
// is not connected; else the errors are those of [ID.Disconnect], or the cause
// of the context's end.
func (s *SyncID) Disconnect(ctx context.Context) error {
	s.ID.mu.Lock()
	connected, ended := s.ID.connected, s.ID.closed
	s.ID.mu.Unlock()
	switch {
	case ended:
		return closed("disconnect", s.name())
	case !connected:
		return invalid("disconnect", s.name(), "the id is not connected")
	}
	if err := s.ID.Disconnect(); err != nil {
		return err
	}
	select {
	case <-s.gone:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.err, ErrDisconnected) {
		return nil
	}
	return s.err
}

// JoinMulticast is [ID.JoinMulticast], and waits until the group is joined.
// [SyncID.Event] tells then where to send. Should the network end the
// membership later, [SyncID.Disconnected] is closed, and calls say why. The
// errors are those of [ID.JoinMulticast] and of the answer, or the cause of the
// context's end.
func (s *SyncID) JoinMulticast(ctx context.Context, group netip.Addr, flags JoinFlags) (*Membership, error) {
	const op = "join"
	if err := s.begin(ctx, op); err != nil {
		return nil, err
	}
	m, err := s.ID.JoinMulticast(group, flags)
	if err != nil {
		return nil, err
	}
	if _, err := s.answer(ctx, op, func(r *record) bool { return r.mc == m }); err != nil {
		return nil, errors.Join(err, m.Leave())
	}
	return m, nil
}
