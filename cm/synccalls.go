package cm

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/uverbs"
)

// This file has the calls of a [SyncID]; sync.go has its queue of events.

// NewID creates a synchronous id: rdma_create_id(3). Its QP will be RC in PSTCP and
// PSIB, and UD otherwise. The errors are those of [NewIDFor].
func NewID(ps PortSpace) (*SyncID, error) { return NewIDFor(ps, ps.qpType()) }

// NewIDFor is NewID for a QP of another type, which only PSIB allows. The errors are
// those of [EventChannel.CreateIDFor] and [NewEventChannel].
func NewIDFor(ps PortSpace, typ uverbs.QPType) (*SyncID, error) {
	id, err := newID(ps, typ)
	if err != nil {
		return nil, err
	}
	s := newSync(id)
	if err := joinPump(s); err != nil {
		return nil, err
	}
	id.dest.sync = s
	if err := id.create(&s.pump.node); err != nil {
		return nil, errors.Join(err, s.pump.remove(s))
	}
	return s, nil
}

// ResolveAddr is [ID.ResolveAddr], and waits for the result. It returns [ErrTimeout]
// if there is no reply, and context.Cause(ctx) if ctx ends first. Otherwise the
// errors are those of [ID.ResolveAddr].
func (s *SyncID) ResolveAddr(ctx context.Context, src, dst netip.AddrPort, timeout time.Duration) error {
	err := s.call(ctx, "resolve address", addrResults, func() error { return s.ID.ResolveAddr(src, dst, timeout) })
	return withObject(dst.String(), err)
}

// ResolveIB is [ID.ResolveIB], and waits for the result. It returns [ErrTimeout] if
// there is no reply, and context.Cause(ctx) if ctx ends first. Otherwise the errors are
// those of [ID.ResolveIB].
func (s *SyncID) ResolveIB(ctx context.Context, src *IBAddr, dst IBAddr, timeout time.Duration) error {
	err := s.call(ctx, "resolve address", addrResults, func() error { return s.ID.ResolveIB(src, dst, timeout) })
	return withObject(dst.GID.String(), err)
}

// ResolveRoute is [ID.ResolveRoute], and waits for the result. It returns
// [ErrTimeout] if there is no reply, and context.Cause(ctx) if ctx ends first.
// Otherwise the errors are those of [ID.ResolveRoute].
func (s *SyncID) ResolveRoute(ctx context.Context, timeout time.Duration) error {
	return s.call(ctx, "resolve route", routeResults, func() error { return s.ID.ResolveRoute(timeout) })
}

// ResolveService is [ID.ResolveService], and waits for the result. It returns
// context.Cause(ctx) if ctx ends first. Otherwise the errors are those of
// [ID.ResolveService] and of the event.
func (s *SyncID) ResolveService(ctx context.Context, name string, number uint64) error {
	return s.call(ctx, "resolve service", serviceResults, func() error { return s.ID.ResolveService(name, number) })
}

// SetPaths is [ID.SetPaths], and waits for the result. It returns context.Cause(ctx)
// if ctx ends first. Otherwise the errors are those of [ID.SetPaths].
func (s *SyncID) SetPaths(ctx context.Context, paths []PathRecord) error {
	return s.call(ctx, "set paths", routeResults, func() error { return s.ID.SetPaths(paths) })
}

// Connect is [ID.Connect], and waits for the result. [SyncID.Event] then has the
// peer's private data and, for UD, the destination for sends. For an id without a QP
// the event is EventConnectResponse. Connect returns [ErrRejected], [ErrUnreachable]
// or [ErrTimeout] because of the peer, and context.Cause(ctx) if ctx ends first.
// Otherwise the errors are those of [ID.Connect].
func (s *SyncID) Connect(ctx context.Context, p *ConnParam) error {
	const op = "connect"
	return s.call(ctx, op, connectResults, func() error {
		stop := context.AfterFunc(ctx, s.connecting.End)
		defer stop()
		err := s.ID.Connect(p)
		if ctx.Err() != nil && errors.Is(err, uverbs.ErrClosed) && !s.isClosed() {
			return s.canceled(ctx, op)
		}
		return err
	})
}

// Accept is [ID.Accept], and waits until the peer has confirmed the connection. It
// returns [ErrRejected], [ErrDisconnected], [ErrUnreachable] or [ErrTimeout] if the
// peer has withdrawn its request or no longer exists, and context.Cause(ctx) if ctx
// ends first. Otherwise the errors are those of [ID.Accept].
func (s *SyncID) Accept(ctx context.Context, p *ConnParam) error {
	const op = "accept"
	if s.QPType() == uverbs.UD {
		if err := s.checkCall(ctx, op); err != nil {
			return err
		}
		return s.ID.Accept(p)
	}
	return s.call(ctx, op, connectResults, func() error { return s.ID.Accept(p) })
}

// Establish is [ID.Establish]. The errors are those of [ID.Establish].
func (s *SyncID) Establish() error {
	if err := s.ID.Establish(); err != nil {
		return err
	}
	s.terminateQueued()
	return nil
}

// GetRequest waits for the next connection request: rdma_get_request(3). If
// [CreateEP] was called with a QPConfig, the new id already has its QP. Several
// goroutines may wait. GetRequest returns context.Cause(ctx) if ctx ends first. It
// returns [ErrListenerClosed], now and from then on, if the listener was closed or
// its device removed. Any other error is of a single request.
func (s *SyncID) GetRequest(ctx context.Context) (*SyncID, error) {
	r, err := s.nextFit(ctx, isRequest)
	switch {
	case err == nil:
		return s.child(r)
	case ctxerr.Is(ctx, err):
		return nil, ended(ctx, opAcceptAt, s.name())
	}
	return nil, listenerClosed(s.name(), err)
}

// child returns the id of a request.
func (s *SyncID) child(r *record) (*SyncID, error) {
	e := s.ID.process(r)
	if e == nil {
		return nil, listenerClosed(s.name(), closed("", ""))
	}
	if err := e.Err(); err != nil {
		return nil, err
	}
	child := e.ID.syncID()
	child.mu.Lock()
	child.lastEvent = e
	child.mu.Unlock()
	if s.request.createQP {
		if err := child.CreateQP(s.request.pd, s.request.qp); err != nil {
			return nil, errors.Join(err, child.Close())
		}
	}
	return child, nil
}

// Disconnect is [ID.Disconnect], and waits until the peer has confirmed it or does
// not reply in time. It returns an error if this cannot be determined, because the
// id is closed or migrated or its device is removed meanwhile. It returns
// [uverbs.ErrInvalid] if the id is not connected, and context.Cause(ctx) if ctx ends
// first. Otherwise the errors are those of [ID.Disconnect].
func (s *SyncID) Disconnect(ctx context.Context) error {
	switch s.life.current() {
	case phaseClosed:
		return closed("disconnect", s.name())
	case phaseNew, phaseListening, phaseConnecting, phaseFailed:
		return invalid("disconnect", s.name(), "the id is not connected")
	}
	if err := s.ID.Disconnect(); err != nil {
		return err
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		return ended(ctx, "disconnect", s.name())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.eventErr(); !errors.Is(err, ErrDisconnected) {
		return withOp("disconnect", err)
	}
	// This call has returned the event: after a migration, Next does not.
	s.queue = slices.DeleteFunc(s.queue, func(r *record) bool {
		return r.terminal && r.mc == nil && r.typ() != EventDeviceRemoval
	})
	return nil
}

// JoinMulticast is [ID.JoinMulticast], and waits until the group is joined.
// [SyncID.Event] then has the destination for sends. If the network ends the
// membership later, [SyncID.Disconnected] is closed, and calls return the reason.
// JoinMulticast returns context.Cause(ctx) if ctx ends first. Otherwise the errors
// are those of [ID.JoinMulticast] and of the event.
func (s *SyncID) JoinMulticast(ctx context.Context, group netip.Addr, flags JoinFlags) (*Membership, error) {
	const op = "join"
	if err := s.checkCall(ctx, op); err != nil {
		return nil, err
	}
	m, err := s.ID.JoinMulticast(group, flags)
	if err != nil {
		return nil, err
	}
	if _, err := s.await(ctx, op, func(r *record) bool { return r.mc == m }); err != nil {
		return nil, errors.Join(err, m.Leave())
	}
	return m, nil
}

// call issues a command and waits for its result.
func (s *SyncID) call(ctx context.Context, op string, fits func(*record) bool, command func() error) error {
	if err := s.checkCall(ctx, op); err != nil {
		return err
	}
	if err := command(); err != nil {
		return err
	}
	_, err := s.await(ctx, op, fits)
	return err
}

// checkCall returns an error if the context of an earlier call ended that call, or
// if ctx has already ended, so that no command is issued.
func (s *SyncID) checkCall(ctx context.Context, op string) error {
	if ctx.Err() != nil {
		return ended(ctx, op, s.name())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.canceledCall != "" {
		return invalid(op, "id", "its context ended the "+s.canceledCall+" before: close the id and begin with a new one")
	}
	return nil
}

// canceled returns the error of a call that ctx has ended, after which calls that wait return an error.
func (s *SyncID) canceled(ctx context.Context, op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.canceledCall = op
	return ended(ctx, op, s.name())
}

// await waits for the event that ends a call, and processes it.
func (s *SyncID) await(ctx context.Context, op string, fits func(*record) bool) (*Event, error) {
	for {
		r, err := s.nextFit(ctx, fits)
		if err != nil {
			if ctx.Err() != nil {
				return nil, s.canceled(ctx, op)
			}
			return nil, withOp(op, err)
		}
		e := s.ID.process(r)
		if e == nil {
			continue // the id has been closed
		}
		if e.withdrawn {
			e = s.awaitReason(ctx, e)
		}
		s.mu.Lock()
		s.lastEvent = e
		s.mu.Unlock()
		if e.Type == EventEstablished || e.Type == EventMulticastJoin {
			s.terminateQueued()
		}
		return e, e.Err()
	}
}

// reasonTime limits how long awaitReason waits. Tests shorten it.
var reasonTime = 5 * time.Second

// awaitReason waits for the event that says why the peer has ended the handshake, which
// the kernel usually has queued already. If there is none, it returns the event that
// found out.
func (s *SyncID) awaitReason(ctx context.Context, found *Event) *Event {
	ctx, cancel := context.WithTimeout(ctx, reasonTime)
	defer cancel()
	if r, err := s.nextFit(ctx, connectResults); err == nil {
		if e := s.ID.process(r); e != nil {
			e.unconfirmed = true
			return e
		}
	}
	s.life.enter(phaseFailed)
	return found
}

// Event returns the event that the last call waited for: rdma_cm_id.event. It has the
// peer's private data and the parameters that the peer requests. It is nil before the
// first such call.
func (s *SyncID) Event() *Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastEvent
}
