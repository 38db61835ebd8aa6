package cm

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

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
		return nil, ended(ctx, opWait, "event channel")
	case <-ch.done:
		return nil, closed(opWait, "event channel")
	}
	defer func() { ch.lead <- struct{}{} }()
	for {
		select {
		case <-ch.done: // no goroutine would end the watch
			return nil, closed(opWait, "event channel")
		default:
		}
		ch.watch(ctx)
		if ctx.Err() != nil {
			return nil, ended(ctx, opWait, "event channel")
		}
		r, waited, err := ch.nextRecord(ctx)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The deadline was set because this context ended, because an earlier one
			// did and its goroutine was slow, or because an event was read elsewhere.
			err = ch.file.SetReadDeadline(time.Time{})
		}
		if err != nil {
			return nil, wrap(opWait, "event channel", err, "")
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

// watch makes the end of ctx interrupt the reader. It does nothing if the last call
// had the same context.
func (ch *EventChannel) watch(ctx context.Context) {
	if ch.watchedDone == ctx.Done() {
		return
	}
	ch.stopWatch()
	ch.watchedDone, ch.stopWatch = ctx.Done(), func() {}
	if ch.watchedDone != nil {
		stop := context.AfterFunc(ctx, ch.interrupt)
		ch.stopWatch = func() { stop() }
	}
}

// WriteEvent adds an event to the id's channel, where Next returns it as EventUser
// with arg: rdma_write_cm_event(3). It returns [uverbs.ErrInvalid] for a synchronous
// id, whose calls would not read it, [uverbs.ErrNotSupported] on kernels before 7.0,
// and [uverbs.ErrClosed] after Close.
func (id *ID) WriteEvent(status int32, arg uint64) error {
	const op = "write event to"
	return id.command(op, nil, func() error {
		if id.syncID() != nil {
			return invalid(op, id.describe(),
				"the id is synchronous, and no call returns such an event: migrate it to an EventChannel first")
		}
		err := id.node.file.WriteCMEvent(id.kernelID, uint32(EventUser), status, arg)
		if errors.Is(err, unix.EINVAL) { // the kernel does not know the command
			return unix.ENOSYS
		}
		return err
	})
}
