package cm

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A pump is the node of the synchronous ids, with the goroutine that reads it.
// It lives as long as it has members. The goroutine hands events on and does
// nothing else: it issues no command, and takes no lock that is held during one.
type pump struct {
	node
	done    chan struct{}
	members map[*SyncID]struct{} // guarded by pumps
	err     error                // guarded by pumps: nothing will be read any more
}

// pumps holds the pump of the process.
var pumps struct {
	sync.Mutex
	running *pump
}

// joinPump enters a new SyncID at the pump of the process.
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

// join enters the SyncID of a request at its listener's pump.
func (p *pump) join(s *SyncID) {
	pumps.Lock()
	defer pumps.Unlock()
	p.enter(s)
	if p.err != nil {
		s.end(p.err)
	}
}

func (p *pump) enter(s *SyncID) {
	s.pump = p
	p.members[s] = struct{}{}
}

// leave lets a SyncID go, once, and ends the pump with the last one. It must
// not be called from the pump's goroutine.
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
	p.refusals.wait()
	return wrap("close", "rdma_cm", errors.Join(err, p.file.Close()), "")
}

func (p *pump) run() {
	defer close(p.done)
	for {
		r, err := p.read(nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return // all have left
		}
		if err != nil {
			p.fail(err)
			return
		}
		r.id.forward(r)
	}
}

// fail tells the members that no event will come any more. New ids get a new
// pump.
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
		s.end(p.err)
	}
}

// forward hands an event to where the id's events go.
func (i *ID) forward(r *record) {
	i.to.Lock()
	defer i.to.Unlock()
	i.hand(r)
}

// hand is forward. The caller holds i.to.
func (i *ID) hand(r *record) {
	switch {
	case i.to.moving:
		i.to.aside = append(i.to.aside, r)
	case i.to.sync != nil:
		i.to.sync.push(r)
	default:
		i.to.events.push(r)
	}
}

// claim answers whether an event is for the reader of ch to process, and hands
// it on otherwise. waited says that it waits in ch: it may have gone with its id.
func (i *ID) claim(ch *EventChannel, r *record, waited bool) bool {
	i.to.Lock()
	defer i.to.Unlock()
	if waited {
		return len(ch.yield(func(w *record) bool { return w == r })) > 0
	}
	// What waits has come before.
	if !i.to.moving && i.to.events == ch && !ch.holds(i) {
		return true
	}
	i.hand(r)
	return false
}

// synced returns the id's SyncID, nil for an asynchronous id.
func (i *ID) synced() *SyncID {
	i.to.Lock()
	defer i.to.Unlock()
	return i.to.sync
}

// Sync makes the id a synchronous one: rdma_migrate_id(3) without a channel.
// Its events no longer come through its event channel. An id that listens
// cannot be moved: do it before Listen. [uverbs.ErrInvalid] for one that does,
// and for one that is synchronous; [uverbs.ErrClosed] after Close; else the
// errors are those of [NewEventChannel].
func (i *ID) Sync() (*SyncID, error) {
	s := newSync(i)
	if err := joinPump(s); err != nil {
		return nil, err
	}
	if err := i.migrate(&s.pump.node, s, nil); err != nil {
		return nil, errors.Join(err, s.pump.leave(s))
	}
	return s, nil
}

// Migrate moves the id to an event channel, where its events come from then on:
// rdma_migrate_id(3). What a SyncID waits for ends with an error then; the ID
// itself goes on. An id that listens cannot be moved: do it before Listen.
// [uverbs.ErrInvalid] for one that does, [uverbs.ErrClosed] after Close of the
// id or of the channel, or what the kernel says.
func (i *ID) Migrate(ch *EventChannel) error { return i.migrate(&ch.node, nil, ch) }

// migrate moves the id to a node, and its events to s or to ch.
func (i *ID) migrate(to *node, s *SyncID, ch *EventChannel) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	const op = "migrate"
	old := i.synced()
	switch {
	case i.closed:
		return closed(op, i.describe())
	case i.listening:
		// The kernel would leave the ids of requests behind.
		return invalid(op, i.describe(), "the id listens: migrate it before Listen")
	case s != nil && old != nil:
		return invalid(op, i.describe(), "the id is synchronous already")
	}
	if err := to.hold(); err != nil {
		return err
	}
	i.depart()
	if _, err := to.file.MigrateID(i.kernel, i.node.file); err != nil {
		i.arrive(nil, old, i.to.events)
		to.drop()
		return wrap(op, i.describe(), err, "")
	}
	i.node.drop()
	i.node = to
	var waiting []*record
	if old != nil {
		waiting = old.take(&Error{Op: "wait on", Object: i.describe(), Kind: uverbs.ErrClosed, Errno: unix.EBADF,
			Detail: "the id has been migrated: its events come through its event channel"})
	}
	i.arrive(waiting, s, ch)
	switch {
	case s == nil:
	case i.over != nil:
		s.end(i.over) // no event will tell it once more
	case i.connected:
		s.settle()
	}
	if old != nil {
		return old.pump.leave(old)
	}
	return nil
}

// depart sets events aside, whichever node they are read from, after those that
// wait in the channel.
func (i *ID) depart() {
	i.to.Lock()
	defer i.to.Unlock()
	i.to.moving = true
	if i.to.events != nil {
		i.to.aside = i.to.events.yield(func(r *record) bool { return r.id == i })
	}
}

// arrive says where events go from now on, and sends those there that came
// before and those that were set aside.
func (i *ID) arrive(waiting []*record, s *SyncID, ch *EventChannel) {
	i.to.Lock()
	defer i.to.Unlock()
	all := append(waiting, i.to.aside...)
	i.to.sync, i.to.events, i.to.moving, i.to.aside = s, ch, false, nil
	if s == nil {
		ch.push(all...)
		return
	}
	for _, r := range all {
		s.push(r)
	}
}
