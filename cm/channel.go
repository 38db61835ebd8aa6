package cm

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A node is an open rdma_cm descriptor: a queue of events, and the commands of
// the ids that are on it.
type node struct {
	file *rdmacm.File

	refusals refusals

	mu     sync.Mutex
	closed bool
	ids    int
}

// openFile opens a descriptor. Hermetic tests put a kernel of their own here.
var openFile = rdmacm.Open

func explainOpen(err error) error {
	e := &Error{Op: "open", Object: "rdma_cm", Detail: err.Error()}
	switch {
	case errors.Is(err, rdmacm.ErrABI):
		e.Kind = uverbs.ErrABI
	case errors.Is(err, rdmacm.ErrNoNode), errors.Is(err, os.ErrNotExist):
		e.Kind = uverbs.ErrNoNode
		e.Detail += ": load the module with `modprobe rdma_ucm`, and let udev make /dev/infiniband/rdma_cm"
	case errors.Is(err, os.ErrPermission):
		e.Kind = os.ErrPermission
		e.Detail += ": the node is world-writable by rdma-core's udev rules; `chmod 666 /dev/infiniband/rdma_cm` does it by hand"
	}
	errors.As(err, &e.Errno)
	return e
}

// hold enters an id.
func (n *node) hold() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return closed("use", "event channel")
	}
	n.ids++
	return nil
}

func (n *node) drop() {
	n.mu.Lock()
	n.ids--
	n.mu.Unlock()
}

// A record is an event as it was read, and whose it is.
type record struct {
	node *node
	id   *ID
	mc   *Membership // of events of a membership
	raw  uapi.RdmaUcmEventResp
}

func (r *record) typ() EventType { return EventType(r.raw.Event) }

// read waits for an event of an id that is open. r is where it is put; nil
// stands for a new one.
func (n *node) read(r *record) (*record, error) {
	if r == nil {
		r = &record{}
	}
	for {
		r.node, r.id, r.mc = n, nil, nil
		if err := n.file.NextEvent(&r.raw); err != nil {
			return nil, err
		}
		switch v := lookup(r.raw.Uid).(type) {
		case *ID:
			r.id = v
			return r, nil
		case *Membership:
			r.id, r.mc = v.id, v
			return r, nil
		}
		r.drop()
	}
}

// An EventChannel is a queue of the events of asynchronous ids: struct
// rdma_event_channel. Its methods may be called from any number of goroutines.
type EventChannel struct {
	node
	lead chan struct{} // holds a token while nobody reads
	done chan struct{} // closed by Close

	pendingMu sync.Mutex
	pending   []*record // events that were read elsewhere, before their ids came here

	// With the lead: whose end interrupts the reader, and what ends that; and a
	// record to read into.
	watched <-chan struct{}
	unwatch func()
	spare   *record
}

// NewEventChannel opens an event channel: rdma_create_event_channel(3). The
// errors: [uverbs.ErrNoNode] where the module rdma_ucm is missing,
// os.ErrPermission, [uverbs.ErrABI], or what the kernel says.
func NewEventChannel() (*EventChannel, error) {
	file, err := openFile()
	if err != nil {
		return nil, explainOpen(err)
	}
	ch := &EventChannel{node: node{file: file}, lead: make(chan struct{}, 1), done: make(chan struct{}), unwatch: func() {}}
	ch.lead <- struct{}{}
	return ch, nil
}

// Next waits for the next event: rdma_get_cm_event(3). It parks without holding
// a thread, and ends early with the cause of the context's end, or with
// [uverbs.ErrClosed] when the channel is closed. The event is acknowledged by
// being returned. The library does what C's does on the way: a QP that it made
// moves to RTS before EventEstablished is returned, and is attached to its
// group before EventMulticastJoin is.
func (ch *EventChannel) Next(ctx context.Context) (*Event, error) {
	select {
	case <-ch.lead:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-ch.done:
		return nil, closed("wait on", "event channel")
	}
	defer func() { ch.lead <- struct{}{} }()
	for {
		select {
		case <-ch.done: // nobody would end the watch
			return nil, closed("wait on", "event channel")
		default:
		}
		ch.watch(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r, waited, err := ch.nextRecord()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The end of this context, or of an earlier one whose goroutine was
			// late, or an event that was read elsewhere.
			err = ch.file.SetReadDeadline(time.Time{})
		}
		if err != nil {
			return nil, wrap("wait on", "event channel", err, "")
		}
		if r == nil || !r.id.claim(ch, r, waited) {
			continue
		}
		e := r.id.process(r)
		ch.spare = r // the event holds copies
		if e != nil {
			return e, nil
		}
	}
}

// nextRecord answers an event that waits here, without taking it, or else waits
// for one of the kernel's.
func (ch *EventChannel) nextRecord() (r *record, waited bool, err error) {
	ch.pendingMu.Lock()
	if len(ch.pending) > 0 {
		r = ch.pending[0]
	}
	ch.pendingMu.Unlock()
	if r != nil {
		return r, true, nil
	}
	spare := ch.spare
	ch.spare = nil // read elsewhere, the record may be kept
	r, err = ch.read(spare)
	return r, false, err
}

// yield gives up the events that wait here and are to go elsewhere.
func (ch *EventChannel) yield(which func(*record) bool) (records []*record) {
	ch.pendingMu.Lock()
	defer ch.pendingMu.Unlock()
	ch.pending = slices.DeleteFunc(ch.pending, func(r *record) bool {
		if !which(r) {
			return false
		}
		records = append(records, r)
		return true
	})
	return records
}

// holds tells whether events of the id wait here.
func (ch *EventChannel) holds(i *ID) bool {
	ch.pendingMu.Lock()
	defer ch.pendingMu.Unlock()
	return slices.ContainsFunc(ch.pending, func(r *record) bool { return r.id == i })
}

// push takes events that were read elsewhere.
func (ch *EventChannel) push(records ...*record) {
	if len(records) == 0 {
		return
	}
	ch.pendingMu.Lock()
	ch.pending = append(ch.pending, records...)
	ch.pendingMu.Unlock()
	ch.interrupt()
}

// watch lets the end of ctx interrupt the reader. A reader that comes back with
// the same context finds it watched already.
func (ch *EventChannel) watch(ctx context.Context) {
	if ch.watched == ctx.Done() {
		return
	}
	ch.unwatch()
	ch.watched, ch.unwatch = ctx.Done(), func() {}
	if ch.watched != nil {
		stop := context.AfterFunc(ctx, ch.interrupt)
		ch.unwatch = func() { stop() }
	}
}

// interrupt makes the reader look at its context, and at what is pending.
func (ch *EventChannel) interrupt() {
	// It fails on a closed file alone, whose reader has ended.
	_ = ch.file.SetReadDeadline(time.Unix(1, 0))
}

// Close closes the channel: rdma_destroy_event_channel(3). It answers
// [uverbs.ErrBusy] while ids use it. It is idempotent.
func (ch *EventChannel) Close() error {
	if done, err := ch.shut(); done || err != nil {
		return err
	}
	close(ch.done)
	ch.interrupt()
	<-ch.lead // the reader, if there is one, has ended
	ch.refusals.wait()
	err := ch.file.Close()
	ch.unwatch()
	ch.lead <- struct{}{} // those who still come find the channel closed
	return wrap("close", "event channel", err, "")
}

// shut takes no more ids. It answers whether that was so before.
func (ch *EventChannel) shut() (done bool, err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.closed && ch.ids > 0 {
		return false, &Error{Op: "close", Object: "event channel", Kind: uverbs.ErrBusy, Errno: unix.EBUSY,
			Detail: "ids still use it: close or migrate them first"}
	}
	done, ch.closed = ch.closed, true
	return done, nil
}
