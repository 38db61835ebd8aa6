package cm

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A pump is the node of the synchronous ids, with the goroutine that reads its
// events. It exists as long as it has members. The goroutine only passes events on:
// it issues no command and acquires no lock that is held during a command.
type pump struct {
	node
	done    chan struct{}
	members map[*SyncID]struct{} // guarded by pumps
	err     error                // guarded by pumps: if set, no more events are read
}

// pumps has the pump of the process.
var pumps struct {
	sync.Mutex
	running *pump
}

// joinPump adds a new SyncID to the pump of the process.
func joinPump(s *SyncID) error {
	pumps.Lock()
	defer pumps.Unlock()
	if pumps.running == nil {
		file, err := openFile()
		if err != nil {
			return explainOpen(err)
		}
		pumps.running = &pump{node: node{file: file}, done: make(chan struct{}), members: make(map[*SyncID]struct{})}
		go pumps.running.run()
	}
	pumps.running.enter(s)
	return nil
}

// join adds the SyncID of a request to its listener's pump.
func (p *pump) join(s *SyncID) {
	pumps.Lock()
	defer pumps.Unlock()
	p.enter(s)
	if p.err != nil {
		s.stopEvents(p.err)
	}
}

func (p *pump) enter(s *SyncID) {
	s.pump = p
	p.members[s] = struct{}{}
}

// leave removes a SyncID, if it is a member, and ends the pump with its last member.
// It must not be called from the pump's goroutine.
func (p *pump) leave(s *SyncID) error {
	pumps.Lock()
	_, member := p.members[s]
	delete(p.members, s)
	if !member || len(p.members) > 0 {
		pumps.Unlock()
		return nil
	}
	if pumps.running == p {
		pumps.running = nil
	}
	pumps.Unlock()
	err := p.file.SetReadDeadline(time.Unix(1, 0))
	<-p.done
	p.rejects.wait()
	return wrap("close", "rdma_cm", errors.Join(err, p.file.Close()), "")
}

func (p *pump) run() {
	defer close(p.done)
	for {
		p.rejects.waitRoom(context.Background(), nil)
		r, err := p.read(nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return // there are no members left
		}
		if err != nil {
			p.fail(err)
			return
		}
		if r != nil {
			r.id.forward(r)
		}
	}
}

// fail ends the waits of all members with an error. New ids get a new pump.
func (p *pump) fail(err error) {
	pumps.Lock()
	defer pumps.Unlock()
	if pumps.running == p {
		pumps.running = nil
	}
	p.err = wrap("wait on", "rdma_cm", err, "")
	if e, ok := p.err.(*Error); ok && e.Kind == nil {
		e.Kind, e.Errno, e.Detail = uverbs.ErrDeviceGone, unix.EIO, err.Error()
	}
	for s := range p.members {
		s.stopEvents(p.err)
		s.stopWaits()
	}
}

// forward passes an event to the destination of the id's events.
func (id *ID) forward(r *record) {
	id.dest.Lock()
	refused := id.deliver(r)
	id.dest.Unlock()
	if refused {
		r.discard()
	}
}

// deliver adds an event to the destination of the id's events, or reports that the
// request must be rejected. The caller holds id.dest.
func (id *ID) deliver(r *record) (refused bool) {
	switch {
	case id.dest.moving:
		id.dest.deferred = append(id.dest.deferred, r)
	case id.dest.sync != nil:
		return id.dest.sync.push(r)
	default:
		id.dest.channel.push(r)
	}
	return false
}

// claim reports whether the reader of ch must process an event. Otherwise it passes
// the event on. If waited is set, the event was pending in ch, and may have moved
// with its id.
func (id *ID) claim(ch *EventChannel, r *record, waited bool) bool {
	id.dest.Lock()
	defer id.dest.Unlock()
	if waited {
		return len(ch.removePending(func(w *record) bool { return w == r })) > 0
	}
	// Pending events are older.
	if !id.dest.moving && id.dest.channel == ch && !ch.hasPending(id) {
		return true
	}
	id.deliver(r) // it is not a request: an id that listens does not move
	return false
}

// syncID returns the id's SyncID. It is nil for an asynchronous id.
func (id *ID) syncID() *SyncID {
	id.dest.Lock()
	defer id.dest.Unlock()
	return id.dest.sync
}

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
		return nil, errors.Join(err, s.pump.leave(s))
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
	if _, err := to.file.MigrateID(id.kernel, id.node.file); err != nil {
		id.endMove(nil, old, id.dest.channel)
		to.release()
		return id.wrap(op, id.describe(), err, "")
	}
	id.node.release()
	id.node = to
	var waiting []*record
	if old != nil {
		old.stopEvents(&Error{Op: "wait on", Object: id.describe(), Kind: uverbs.ErrClosed, Errno: unix.EBADF,
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
	err := old.pump.leave(old)
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
