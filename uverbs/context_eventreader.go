package uverbs

import (
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

// An eventReader reads the asynchronous events of a context in its own goroutine. The library
// itself handles some of them, whether or not the program calls NextEvent: after the device's
// failure or an overrun of a CQ, waits end, and polls of an empty CQ return the error; it knows
// which ports are down. All events are kept for NextEvent.
type eventReader struct {
	c     *Context
	file  *os.File      // nil if epoll refuses it: there are no events
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
	r := &eventReader{c: c, fd: fd, ready: make(chan struct{}, 1), ended: make(chan struct{})}
	var err error
	if r.file, err = pollable(fd, "open event file", c.name); errors.Is(err, unix.EPERM) {
		// Linux never refuses this, but gVisor does. A Context is useful without events.
		r.end(&Error{Op: "read events", Object: c.name, Kind: ErrNotSupported, Err: err})
		return r, nil
	}
	return r, err
}

// run reads events until the file returns an error.
func (r *eventReader) run() {
	if r.file == nil {
		return
	}
	var buf [asyncEventSize]byte
	for {
		n, err := r.file.Read(buf[:])
		if err != nil {
			r.end(r.readError(explainRead(r.file, err)))
			return
		}
		e, ok := parseAsyncEvent(buf[:n])
		if !ok {
			r.end(&Error{Op: "read event", Object: r.c.name, Detail: "the kernel sent a record of " + sitoa(n) + " bytes"})
			return
		}
		if !r.handle(e) {
			r.keep(e)
		}
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
	return r.c.wrap("read events", r.c.name, err, "")
}

// handle carries out the library's own reaction to an event. It reports whether the event is not for the program.
func (r *eventReader) handle(e asyncRecord) bool {
	switch e.typ {
	case EventDeviceFatal:
		r.c.markDeviceGone()
	case EventPortErr:
		r.c.portsDown.Or(portBit(e.element))
	case EventPortActive:
		r.c.portsDown.And(^portBit(e.element))
	case EventCQErr:
		if q, ok := r.c.lookup(e.element).(interface{ overran() }); ok {
			q.overran()
		}
	case EventSRQLimitReached:
		if q, ok := r.c.lookup(e.element).(interface{ limitReached() bool }); ok {
			return q.limitReached()
		}
	}
	return false
}

// portBit returns the bit of a port in portsDown. Adapters have fewer ports than it has bits.
func portBit(port uint64) uint64 { return 1 << (port - 1) }

// keep stores an event for NextEvent, unless its object has been closed.
func (r *eventReader) keep(e asyncRecord) {
	r.mu.Lock()
	if !r.current(e) {
		r.mu.Unlock()
		return
	}
	if len(r.unread) < manyUnread || !slices.Contains(r.unread, e) {
		r.unread = append(r.unread, e)
	}
	r.mu.Unlock()
	r.wake()
}

// current reports whether the object of an event has not been closed.
func (r *eventReader) current(e asyncRecord) bool {
	return !e.typ.ofQueue() || r.c.lookup(e.element) != nil
}

// forget drops the unread events of a closed object. A program that does not call NextEvent
// would keep them otherwise.
func (r *eventReader) forget(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unread) == 0 {
		return
	}
	r.unread = slices.DeleteFunc(r.unread, func(e asyncRecord) bool {
		return e.element == id && e.typ.ofQueue()
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
func (r *eventReader) take() (e asyncRecord, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.unread) > 0 {
		e = r.unread[0]
		r.unread = r.unread[1:]
		// The object may be in the middle of its Close, which removes its id before its events.
		if r.current(e) {
			if len(r.unread) > 0 {
				r.wake()
			}
			return e, true, nil
		}
	}
	r.unread = nil
	return asyncRecord{}, false, r.err
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

// close makes run end, and so every NextEvent.
func (r *eventReader) close() error {
	if r.file == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = ErrClosed
		return nil
	}
	err := r.file.Close()
	<-r.ended
	return err
}

// nameEvents adds the file for an object's events to cmd if the kernel would use another
// Context's file otherwise.
func (c *Context) nameEvents(cmd *ioctl.Cmd, attr uint16) {
	if c.imported && c.events.file != nil {
		cmd.FD(attr, c.events.fd)
	}
}
