package cm

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A node is an open rdma_cm descriptor. Commands of its ids are issued on it, and
// their events are read from it.
type node struct {
	file *rdmacm.File

	rejects rejectQueue

	mu     sync.Mutex
	closed bool
	ids    int
}

// openFile opens a descriptor. Hermetic tests replace it with a fake kernel.
var openFile = rdmacm.Open

func explainOpen(err error) error {
	e := &Error{Op: "open", Object: "rdma_cm", Detail: err.Error(), Err: err}
	switch {
	case errors.Is(err, rdmacm.ErrABI):
		e.Kind = uverbs.ErrABI
	case errors.Is(err, unix.EMFILE):
		e.Detail = nldev.NoDescriptor
	case errors.Is(err, nldev.ErrNoRDMA): // no kernel module provides a device
		e.Kind, e.Detail = uverbs.ErrNoNode, nldev.NoRDMA
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

// addRef counts an id that uses the node. op is the operation that needs it.
func (n *node) addRef(op string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return closed(op, "event channel")
	}
	n.ids++
	return nil
}

func (n *node) release() {
	n.mu.Lock()
	n.ids--
	n.mu.Unlock()
}

// A record is an event as it was read, with the id that it is for.
type record struct {
	node *node
	id   *ID
	mc   *Membership // if the event is for a membership
	raw  uapi.RdmaUcmEventResp

	terminal bool // the event has ended a SyncID
}

func (r *record) typ() EventType { return EventType(r.raw.Event) }

// read waits for an event and stores it in r. If r is nil, it allocates a record. For an
// event of a closed id, which it discards, read returns nil.
func (n *node) read(r *record) (*record, error) {
	if r == nil {
		r = &record{}
	}
	r.node, r.id, r.mc, r.terminal = n, nil, nil, false
	if err := n.file.NextEvent(&r.raw); err != nil {
		return nil, err
	}
	switch v := lookup(r.raw.Uid).(type) {
	case *ID:
		r.id = v
	case *Membership:
		r.id, r.mc = v.id, v
	default:
		r.discard()
		return nil, nil
	}
	return r, nil
}

// An EventChannel is a queue of the events of asynchronous ids: struct
// rdma_event_channel. Its methods may be called concurrently.
type EventChannel struct {
	node
	lead chan struct{} // holds a token while no goroutine reads
	done chan struct{} // closed by Close

	pendingMu sync.Mutex
	pending   []*record // events that were read elsewhere before their ids moved here

	// Only the holder of lead uses these: the Done channel of the ctx that interrupts
	// the reader, the function that undoes this, and a record to read into.
	watched <-chan struct{}
	unwatch func()
	spare   *record
}

// NewEventChannel opens an event channel: rdma_create_event_channel(3). It returns
// [uverbs.ErrNoNode] if the module rdma_ucm is not loaded, os.ErrPermission,
// [uverbs.ErrABI], or what the kernel says.
func NewEventChannel() (*EventChannel, error) {
	file, err := openFile()
	if err != nil {
		return nil, explainOpen(err)
	}
	ch := &EventChannel{node: node{file: file}, lead: make(chan struct{}, 1), done: make(chan struct{}), unwatch: func() {}}
	ch.lead <- struct{}{}
	return ch, nil
}

// Next waits for the next event: rdma_get_cm_event(3). A waiting call does not block
// a thread. Next returns context.Cause(ctx) if ctx ends first, and
// [uverbs.ErrClosed] if the channel is closed. A returned event is already
// acknowledged. Before it returns EventEstablished, Next moves the QP of
// [ID.CreateQP] to RTS, and before it returns EventMulticastJoin, it attaches the QP
// to the group, as librdmacm does.
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
		case <-ch.done: // no goroutine would end the watch
			return nil, closed("wait on", "event channel")
		default:
		}
		ch.watch(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r, waited, err := ch.nextRecord(ctx)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The deadline was set because this context ended, because an earlier one
			// did and its goroutine was slow, or because an event was read elsewhere.
			err = ch.file.SetReadDeadline(time.Time{})
		}
		if err != nil {
			return nil, wrap("wait on", "event channel", err, "")
		}
		if r == nil || !r.id.claim(ch, r, waited) {
			continue
		}
		e := r.id.process(r)
		ch.spare = r // the event has copies of its contents
		if e != nil {
			return e, nil
		}
	}
}

// nextRecord returns a pending event without removing it, or waits for an event from
// the kernel. It returns nil if the event is discarded or ctx ends.
func (ch *EventChannel) nextRecord(ctx context.Context) (r *record, waited bool, err error) {
	ch.pendingMu.Lock()
	if len(ch.pending) > 0 {
		r = ch.pending[0]
	}
	ch.pendingMu.Unlock()
	if r != nil {
		return r, true, nil
	}
	if !ch.rejects.waitRoom(ctx, ch.done) {
		return nil, false, nil
	}
	spare := ch.spare
	ch.spare = nil // if the event is for an id that has moved, its record may be kept
	r, err = ch.read(spare)
	return r, false, err
}

// removePending removes and returns the pending events that which selects.
func (ch *EventChannel) removePending(which func(*record) bool) (records []*record) {
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

// hasPending reports whether events of the id are pending.
func (ch *EventChannel) hasPending(id *ID) bool {
	ch.pendingMu.Lock()
	defer ch.pendingMu.Unlock()
	return slices.ContainsFunc(ch.pending, func(r *record) bool { return r.id == id })
}

// push appends events that were read elsewhere.
func (ch *EventChannel) push(records ...*record) {
	if len(records) == 0 {
		return
	}
	ch.pendingMu.Lock()
	ch.pending = append(ch.pending, records...)
	ch.pendingMu.Unlock()
	ch.interrupt()
}

// watch makes the end of ctx interrupt the reader. It does nothing if the last call
// had the same context.
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

// interrupt makes the reader check its context and the pending events.
func (ch *EventChannel) interrupt() {
	// It only fails if the file is closed, and then the reader has returned.
	_ = ch.file.SetReadDeadline(time.Unix(1, 0))
}

// Close closes the channel: rdma_destroy_event_channel(3). It returns
// [uverbs.ErrBusy] while ids use the channel. It is idempotent.
func (ch *EventChannel) Close() error {
	if done, err := ch.markClosed(); done || err != nil {
		return err
	}
	close(ch.done)
	ch.interrupt()
	<-ch.lead // a reader has returned
	ch.rejects.wait()
	err := ch.file.Close()
	ch.unwatch()
	ch.lead <- struct{}{} // later readers find the channel closed
	return wrap("close", "event channel", err, "")
}

// markClosed marks the channel as closed, so that no ids can be added. It reports
// whether it was closed before.
func (ch *EventChannel) markClosed() (done bool, err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.closed && ch.ids > 0 {
		return false, &Error{Op: "close", Object: "event channel", Kind: uverbs.ErrBusy, Errno: unix.EBUSY,
			Detail: "ids still use it: close or migrate them first"}
	}
	done, ch.closed = ch.closed, true
	return done, nil
}
