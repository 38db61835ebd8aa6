package uverbs

import (
	"context"

	"github.com/goverbs/goverbs/internal/ctxerr"
)

// An AsyncEvent is an event of a queue, a port or the device. The type determines which of the
// fields is set. Events of objects that were closed before the event was read are dropped. An
// event of a type that this package does not know has only its Type set.
type AsyncEvent struct {
	Type EventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
	Port int
	// Object is a queue of another package: the *ether.WQ of an EventWQFatal.
	Object any
}

// asyncEvent looks up the object of an event. It returns false if the object has been closed.
func (c *Context) asyncEvent(r asyncRecord) (AsyncEvent, bool) {
	e := AsyncEvent{Type: r.typ}
	switch {
	case r.typ.ofPort():
		e.Port = int(r.element)
		return e, true
	case !r.typ.ofQueue():
		return e, true
	}
	switch o := c.lookup(r.element).(type) {
	case *QP:
		e.QP = o
	case *CQ:
		e.CQ = o
	case *SRQ:
		e.SRQ = o
	case *extension:
		e.Object = o.cfg.Object
	default:
		return e, false
	}
	return e, true
}

// NextEvent waits for the next asynchronous event, and acknowledges it: ibv_get_async_event(3),
// ibv_ack_async_event(3). Several goroutines may wait; each event is returned to one of them.
// It returns an error that matches ctx.Err() and context.Cause(ctx) when ctx ends, [ErrClosed] after Close of
// the Context, [ErrDeviceGone] if the device is gone, and [ErrNotSupported] if epoll refuses the kernel's file of
// events, as in gVisor.
//
// Events are kept until NextEvent returns them. While 1024 or more are unread, an event that
// equals one of them is dropped.
func (c *Context) NextEvent(ctx context.Context) (AsyncEvent, error) {
	const op = "wait for an asynchronous event"
	r := c.events
	for {
		record, ok, err := r.take()
		if err != nil {
			return AsyncEvent{}, named(op, c.name, err)
		}
		if ok {
			if e, ok := c.asyncEvent(record); ok {
				return e, nil
			}
			continue // the object has been closed meanwhile
		}
		select {
		case <-r.ready:
		case <-r.ended:
		case <-ctx.Done():
			return AsyncEvent{}, &Error{Op: op, Object: c.name, Err: ctxerr.Of(ctx)}
		}
	}
}
