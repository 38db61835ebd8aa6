package uverbs

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// An EventType says what an [AsyncEvent] reports. The values are those of
// ibv_event_type.
type EventType uint32

// The events of ibv_get_async_event(3).
const (
	EventCQErr            EventType = 0 // the CQ overran, or failed
	EventQPFatal          EventType = 1
	EventQPReqErr         EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4 // the first packet came while the QP was in RTR
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

// String is what ibv_event_type_str(3) answers.
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

// An AsyncEvent is something that happened to a queue, a port or the device.
// Which of the fields is set depends on the type. Events of objects that were
// closed before the event was read are dropped. An event of a type that this package does
// not know has its Type alone.
type AsyncEvent struct {
	Type EventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
	WQ   *WQ
	Port int
}

// An eventReader reads the asynchronous events of a context. Its goroutine
// starts with the first NextEvent; until then the kernel keeps them.
type eventReader struct {
	c      *Context
	file   *os.File
	fd     int // of file
	events chan AsyncEvent
	ended  chan struct{} // closed when no event will come any more
	stop   chan struct{}
	err    error // why, set before ended is closed

	mu      sync.Mutex
	started bool
}

func newEventReader(c *Context) (*eventReader, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC)
	cmd.NewHandle(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
	if err := c.dev.Do(cmd); err != nil {
		return nil, c.wrap("open event file", c.name, err, explainFDs(err))
	}
	fd := int(cmd.Made(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE))
	file, err := pollable(fd, "async events")
	if err != nil {
		return nil, err
	}
	return &eventReader{c: c, file: file, fd: fd, events: make(chan AsyncEvent), ended: make(chan struct{}), stop: make(chan struct{})}, nil
}

func (r *eventReader) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started {
		r.started = true
		go r.pump()
	}
}

func (r *eventReader) pump() {
	defer close(r.ended)
	var buf [asyncEventSize]byte
	for {
		n, err := r.file.Read(buf[:])
		if err != nil {
			r.err = ErrDeviceGone
			if errors.Is(err, os.ErrClosed) {
				r.err = ErrClosed
			} else {
				r.c.lose()
			}
			return
		}
		element, typ, ok := parseAsyncEvent(buf[:n])
		if !ok {
			r.err = &Error{Op: "read event", Object: r.c.name, Detail: "the kernel sent a record of " + sitoa(n) + " bytes"}
			return
		}
		if typ == EventDeviceFatal {
			r.c.lose()
		}
		e, alive := r.c.asyncEvent(element, typ)
		if !alive {
			continue
		}
		select {
		case r.events <- e:
		case <-r.stop:
			r.err = ErrClosed
			return
		}
	}
}

const asyncEventSize = 16

// parseAsyncEvent decodes a record: struct ib_uverbs_async_event_desc.
func parseAsyncEvent(b []byte) (element uint64, typ EventType, ok bool) {
	if len(b) != asyncEventSize {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint64(b), EventType(binary.LittleEndian.Uint32(b[8:])), true
}

// asyncEvent finds what the event is about. It answers false for an object
// that has been closed.
func (c *Context) asyncEvent(element uint64, typ EventType) (AsyncEvent, bool) {
	e := AsyncEvent{Type: typ}
	switch typ {
	case EventDeviceFatal, EventPortActive, EventPortErr, EventLIDChange, EventPKeyChange, EventSMChange,
		EventClientReregister, EventGIDChange, EventSpeedChange:
		e.Port = int(element)
		return e, true
	}
	if typ > EventSpeedChange {
		return e, true // of a newer kernel: what element names is not known
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

// NextEvent waits for the next asynchronous event: ibv_get_async_event(3). It
// is acknowledged by being returned. Several goroutines may wait; each event
// goes to one of them. The end of ctx gives context.Cause(ctx), that of the
// Context [ErrClosed], and that of the device [ErrDeviceGone].
func (c *Context) NextEvent(ctx context.Context) (AsyncEvent, error) {
	c.events.start()
	select {
	case e := <-c.events.events:
		return e, nil
	case <-ctx.Done():
		return AsyncEvent{}, context.Cause(ctx)
	case <-c.events.ended:
		return AsyncEvent{}, c.events.err
	}
}

func (r *eventReader) close() error {
	close(r.stop)
	err := r.file.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		<-r.ended
		return err
	}
	r.started, r.err = true, ErrClosed
	close(r.ended)
	return err
}
