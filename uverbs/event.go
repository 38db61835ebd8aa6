package uverbs

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An EventType is the type of an [AsyncEvent]. The values are those of ibv_event_type.
type EventType uint32

// The events of ibv_get_async_event(3).
const (
	EventCQErr            EventType = 0 // the CQ overran, or failed
	EventQPFatal          EventType = 1
	EventQPReqErr         EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4 // the first packet arrived while the QP was in RTR
	EventSQDrained        EventType = 5
	EventPathMig          EventType = 6
	EventPathMigErr       EventType = 7
	EventDeviceFatal      EventType = 8
	EventPortActive       EventType = 9
	EventPortErr          EventType = 10
	EventLIDChange        EventType = 11
	EventPKeyChange       EventType = 12
	EventSMChange         EventType = 13
	EventSRQErr           EventType = 14
	EventSRQLimitReached  EventType = 15
	EventQPLastWQEReached EventType = 16
	EventClientReregister EventType = 17
	EventGIDChange        EventType = 18
	EventWQFatal          EventType = 19
	EventSpeedChange      EventType = 20
)

// String returns the same text as ibv_event_type_str(3).
func (t EventType) String() string {
	names := [...]string{"CQ error", "local work queue catastrophic error", "invalid request local work queue error",
		"local access violation work queue error", "communication established", "send queue drained", "path migrated",
		"path migration request error", "local catastrophic error", "port active", "port error", "LID change",
		"P_Key change", "SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached",
		"client reregistration", "GID table change", "WQ fatal", "device speed change"}
	if int(t) < len(names) {
		return names[t]
	}
	return "unknown event " + itoa(uint64(t))
}

// An AsyncEvent is an event of a queue, a port or the device. The type determines which of the
// fields is set. Events of objects that were closed before the event was read are dropped. An
// event of a type that this package does not know has only its Type set.
type AsyncEvent struct {
	Type EventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
	WQ   *WQ
	Port int
}

// An eventReader reads the asynchronous events of a context in its own goroutine. The library
// itself handles two of them, whether or not the program calls NextEvent: after the device's
// failure or an overrun of a CQ, waits and polls return errors. All events are kept for
// NextEvent.
type eventReader struct {
	c     *Context
	file  *os.File
	fd    int           // the descriptor of file
	ready chan struct{} // contains a token if there may be an event for one NextEvent
	ended chan struct{} // closed when no more events will arrive

	mu     sync.Mutex
	unread []asyncRecord
	err    error // why no more events will arrive; set before ended is closed
}

// An asyncRecord is struct ib_uverbs_async_event_desc. The object that element identifies is
// looked up when the program reads the event.
type asyncRecord struct {
	element uint64
	typ     EventType
}

// manyUnread is how many unread events are kept without comparing them. Beyond that, an event
// that equals an unread one is dropped. So a program that does not call NextEvent has at most
// this many unread events, plus one of each type for each object.
const manyUnread = 1024

func newEventReader(c *Context) (*eventReader, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC)
	cmd.NewHandle(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
	if err := c.dev.Do(cmd); err != nil {
		return nil, c.wrap("open event file", c.name, err, explainFDs(err))
	}
	fd := int(cmd.Made(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE))
	file, err := pollable(fd, "open event file", c.name)
	if err != nil {
		return nil, err
	}
	return &eventReader{c: c, file: file, fd: fd, ready: make(chan struct{}, 1), ended: make(chan struct{})}, nil
}

// run reads events until the file returns an error.
func (r *eventReader) run() {
	var buf [asyncEventSize]byte
	for {
		n, err := r.file.Read(buf[:])
		if err != nil {
			r.end(r.readError(err))
			return
		}
		e, ok := parseAsyncEvent(buf[:n])
		if !ok {
			r.end(&Error{Op: "read event", Object: r.c.name, Detail: "the kernel sent a record of " + sitoa(n) + " bytes"})
			return
		}
		r.handle(e)
		r.keep(e)
	}
}

// readError returns the reason why the file cannot be read. The kernel ends it with EIO if the
// device has been removed, and for no other reason.
func (r *eventReader) readError(err error) error {
	switch {
	case errors.Is(err, os.ErrClosed):
		return ErrClosed
	case errors.Is(err, unix.EIO), errors.Is(err, io.EOF):
		r.c.markDeviceGone()
		return ErrDeviceGone
	}
	return r.c.wrap("read events of", r.c.name, err, "")
}

// handle carries out the library's own reaction to an event.
func (r *eventReader) handle(e asyncRecord) {
	switch e.typ {
	case EventDeviceFatal:
		r.c.markDeviceGone()
	case EventCQErr:
		if q, ok := r.c.lookup(e.element).(*CQ); ok {
			q.overran()
		}
	}
}

// keep stores an event for NextEvent, unless its object has been closed.
func (r *eventReader) keep(e asyncRecord) {
	r.mu.Lock()
	if _, ok := r.c.asyncEvent(e.element, e.typ); !ok {
		r.mu.Unlock()
		return
	}
	if len(r.unread) < manyUnread || !slices.Contains(r.unread, e) {
		r.unread = append(r.unread, e)
	}
	r.mu.Unlock()
	r.wake()
}

// forget drops the unread events of a closed object. A program that does not call NextEvent
// would keep them otherwise.
func (r *eventReader) forget(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread = slices.DeleteFunc(r.unread, func(e asyncRecord) bool {
		return e.element == id && !aboutPort(e.typ) && e.typ <= EventSpeedChange
	})
}

// wake wakes one NextEvent.
func (r *eventReader) wake() {
	select {
	case r.ready <- struct{}{}:
	default: // a token is already there
	}
}

// take removes and returns the oldest event whose object has not been closed.
func (r *eventReader) take() (e AsyncEvent, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.unread) > 0 {
		next := r.unread[0]
		r.unread = r.unread[1:]
		// The object may be in the middle of its Close, which removes its id before its events.
		if e, ok = r.c.asyncEvent(next.element, next.typ); ok {
			if len(r.unread) > 0 {
				r.wake()
			}
			return e, true, nil
		}
	}
	r.unread = nil
	return AsyncEvent{}, false, r.err
}

// end makes NextEvent return err after the remaining events.
func (r *eventReader) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	if err == ErrClosed {
		r.unread = nil
	}
	close(r.ended)
}

const asyncEventSize = 16

// parseAsyncEvent decodes a record.
func parseAsyncEvent(b []byte) (e asyncRecord, ok bool) {
	if len(b) != asyncEventSize {
		return e, false
	}
	return asyncRecord{binary.LittleEndian.Uint64(b), EventType(binary.LittleEndian.Uint32(b[8:]))}, true
}

// aboutPort reports whether an event concerns a port or the whole device.
func aboutPort(typ EventType) bool {
	switch typ {
	case EventDeviceFatal, EventPortActive, EventPortErr, EventLIDChange, EventPKeyChange, EventSMChange,
		EventClientReregister, EventGIDChange, EventSpeedChange:
		return true
	}
	return false
}

// asyncEvent looks up the object of an event. It returns false if the object has been closed.
func (c *Context) asyncEvent(element uint64, typ EventType) (AsyncEvent, bool) {
	e := AsyncEvent{Type: typ}
	switch {
	case aboutPort(typ):
		e.Port = int(element)
		return e, true
	case typ > EventSpeedChange:
		return e, true // of a newer kernel: it is unknown what element identifies
	}
	switch o := c.lookup(element).(type) {
	case *QP:
		e.QP = o
	case *CQ:
		e.CQ = o
	case *SRQ:
		e.SRQ = o
	case *WQ:
		e.WQ = o
	default:
		return e, false
	}
	return e, true
}

// NextEvent waits for the next asynchronous event, and acknowledges it: ibv_get_async_event(3),
// ibv_ack_async_event(3). Several goroutines may wait; each event is returned to one of them.
// It returns an error that wraps context.Cause(ctx) when ctx ends, [ErrClosed] after Close of
// the Context, and [ErrDeviceGone] if the device is gone.
//
// Events are kept until NextEvent returns them. While 1024 or more are unread, an event that
// equals one of them is dropped.
func (c *Context) NextEvent(ctx context.Context) (AsyncEvent, error) {
	r := c.events
	for {
		if e, ok, err := r.take(); ok || err != nil {
			return e, err
		}
		select {
		case <-r.ready:
		case <-r.ended:
		case <-ctx.Done():
			return AsyncEvent{}, &Error{Op: "wait for an asynchronous event", Object: c.name, Err: context.Cause(ctx)}
		}
	}
}

// close makes run end, and so every NextEvent.
func (r *eventReader) close() error {
	err := r.file.Close()
	<-r.ended
	return err
}
