package cm

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

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
	watchedDone <-chan struct{}
	stopWatch   func()
	spare       *record
}

// NewEventChannel opens an event channel: rdma_create_event_channel(3). It returns
// [uverbs.ErrNoNode] if the module rdma_ucm is not loaded, os.ErrPermission,
// [uverbs.ErrABI], or what the kernel says.
func NewEventChannel() (*EventChannel, error) {
	file, err := openFile()
	if err != nil {
		return nil, explainOpen(err)
	}
	ch := &EventChannel{
		node:      node{file: file},
		lead:      make(chan struct{}, 1),
		done:      make(chan struct{}),
		stopWatch: func() {},
	}
	ch.lead <- struct{}{}
	return ch, nil
}

// CreateID creates an id whose events are read from the channel: rdma_create_id(3).
// Its QP will be RC in PSTCP and PSIB, and UD otherwise. The errors are those of
// [EventChannel.CreateIDFor].
func (ch *EventChannel) CreateID(ps PortSpace) (*ID, error) {
	return ch.CreateIDFor(ps, ps.qpType())
}

// CreateIDFor is CreateID for a QP of another type, which only PSIB allows. It
// returns [uverbs.ErrInvalid] for an unknown port space or for another type in the
// other port spaces, [uverbs.ErrClosed] after Close of the channel, or what the
// kernel says.
func (ch *EventChannel) CreateIDFor(ps PortSpace, typ uverbs.QPType) (*ID, error) {
	id, err := newID(ps, typ)
	if err != nil {
		return nil, err
	}
	id.dest.channel = ch
	if err := id.create(&ch.node); err != nil {
		return nil, err
	}
	return id, nil
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

// interrupt makes the reader check its context and the pending events.
func (ch *EventChannel) interrupt() {
	// It only fails if the file is closed, and then the reader has returned.
	_ = ch.file.SetReadDeadline(time.Unix(1, 0))
}

// Close closes the channel: rdma_destroy_event_channel(3). It returns
// [uverbs.ErrBusy] while ids use the channel, and the error of the kernel if it has not destroyed
// the id of a request that was rejected. It is idempotent.
func (ch *EventChannel) Close() error {
	if done, err := ch.markClosed(); done || err != nil {
		return err
	}
	close(ch.done)
	ch.interrupt()
	<-ch.lead // a reader has returned
	err := errors.Join(ch.rejects.wait(), ch.file.Close())
	ch.stopWatch()
	ch.lead <- struct{}{} // later readers find the channel closed
	return wrap("close", "event channel", err, "")
}

// markClosed marks the channel as closed, so that no ids can be added. It reports
// whether it was closed before.
func (ch *EventChannel) markClosed() (done bool, err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.closed && ch.idCount > 0 {
		return false, &Error{Op: "close", Object: "event channel", Kind: uverbs.ErrBusy, Errno: unix.EBUSY,
			Detail: "ids still use it: close or migrate them first"}
	}
	done, ch.closed = ch.closed, true
	return done, nil
}
