package cm

import (
	"errors"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// Sync makes the id synchronous: rdma_migrate_id(3) without a channel. Its events are
// no longer read from its event channel. An id that listens cannot be moved, so call
// Sync before Listen. It returns [uverbs.ErrInvalid] if the id listens or is already
// synchronous, and [uverbs.ErrClosed] after Close. Otherwise the errors are those of
// [NewEventChannel].
func (id *ID) Sync() (*SyncID, error) {
	s := newSync(id)
	if err := joinPump(s); err != nil {
		return nil, err
	}
	if err := id.migrate(&s.pump.node, s, nil); err != nil {
		return nil, errors.Join(err, s.pump.remove(s))
	}
	return s, nil
}

// Migrate moves the id to an event channel, where its events are read from then on:
// rdma_migrate_id(3). These include the event that has ended the connection, unless
// [SyncID.Disconnect] has waited for it. Waiting calls of its SyncID return an error,
// but the ID remains usable. An id that listens cannot be moved, so call Migrate before
// Listen.
// It returns [uverbs.ErrInvalid] if the id listens, [uverbs.ErrClosed] after Close
// of the id or the channel, or what the kernel says.
func (id *ID) Migrate(ch *EventChannel) error { return id.migrate(&ch.node, nil, ch) }

// migrate moves the id to a node. Its events then go to s or to ch.
func (id *ID) migrate(to *node, s *SyncID, ch *EventChannel) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	const op = "migrate"
	old := id.syncID()
	switch {
	case id.isClosed():
		return closed(op, id.describe())
	case id.life.current() == phaseListening:
		// The kernel would not move the ids of connection requests.
		return invalid(op, id.describe(), "the id listens: migrate it before Listen")
	case s != nil && old != nil:
		return invalid(op, id.describe(), "the id is synchronous already")
	}
	if err := to.addRef("migrate to"); err != nil {
		return err
	}
	id.beginMove()
	if _, err := to.file.MigrateID(id.kernelID, id.node.file); err != nil {
		id.endMove(nil, old, id.dest.channel)
		to.release()
		return id.wrap(op, id.describe(), err, "")
	}
	id.node.release()
	id.node = to
	var waiting []*record
	if old != nil {
		old.stopEvents(&Error{Op: opWait, Object: id.describe(), Kind: uverbs.ErrClosed, Errno: unix.EBADF,
			Detail: "the id has been migrated: its events come through its event channel"})
		waiting = old.removeAll()
	}
	id.endMove(waiting, s, ch)
	switch {
	case s == nil:
	case id.life.endCause() != nil:
		s.closeDone() // the event that ended the id may have been read before
	case id.life.current() == phaseEstablished:
		s.terminateQueued()
	}
	if old == nil {
		return nil
	}
	err := old.pump.remove(old)
	if id.life.err() == nil {
		id.endCQWaits() // a failure of the pump no longer affects the id
	}
	return err
}

// beginMove sets new events aside, whichever node they are read from, behind those
// that are pending in the channel.
func (id *ID) beginMove() {
	id.dest.Lock()
	defer id.dest.Unlock()
	id.dest.moving = true
	if id.dest.channel != nil {
		id.dest.deferred = id.dest.channel.removePending(func(r *record) bool { return r.id == id })
	}
}

// endMove sets the new destination of the id's events. It passes on the events in
// waiting and those that were set aside.
func (id *ID) endMove(waiting []*record, s *SyncID, ch *EventChannel) {
	id.dest.Lock()
	defer id.dest.Unlock()
	all := append(waiting, id.dest.deferred...)
	id.dest.sync, id.dest.channel, id.dest.moving, id.dest.deferred = s, ch, false, nil
	if s == nil {
		ch.push(all...)
		return
	}
	for _, r := range all {
		s.push(r) // it is not a request: an id that listens does not move
	}
}
