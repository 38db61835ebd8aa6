package rdma

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
)

// The connections of a listener with ListenOptions.SharedReceives share receives at each device: an SRQ, whose receives
// any of them may use. Each has a few credits from the beginning, and gets more while there is room: see widen.
// All credits together may be for more messages than there are receives. Memory for each of them is counted in
// ListenOptions.MaxMemory, but it is allocated only when receives are short, and is not registered: then the sweeper, a
// goroutine, handles what has arrived on connections on which no call waits, and copies messages that no program has
// received out of the receives. Programs have at most half of the receives, and copies of further messages. So there
// are always receives for messages and for what the protocol sends, and a peer whose SEND finds none waits for the
// sweeper, not for a program.

func newSharedSet(o *ListenOptions, b *budget) *sharedSet {
	return &sharedSet{options: o, budget: b, all: map[*uverbs.PD]*shared{}}
}

// join returns the receives of a PD. The caller leaves them.
func (t *sharedSet) join(c *Conn) (*shared, error) {
	pd := c.cm.PD()
	t.mu.Lock()
	s := t.all[pd]
	if s == nil {
		s = &shared{set: t, pd: pd, kept: !t.closed, conns: map[*Conn]struct{}{}, wake: make(chan struct{}, 1),
			ending: make(chan struct{})}
		if s.kept {
			s.refs = 1
		}
		t.all[pd] = s
	}
	s.refs++
	t.mu.Unlock()
	s.once.Do(func() { s.err = s.create(c.pool) })
	if s.err != nil {
		return nil, errors.Join(s.err, t.leave(s))
	}
	return s, nil
}

// leave drops a reference. The last one, and one after a failure, closes what was created. A call after one that has
// failed tries again.
func (t *sharedSet) leave(s *shared) error {
	t.mu.Lock()
	s.refs = max(s.refs-1, 0)
	if s.kept && (s.err != nil || s.gone.Load()) {
		s.kept = false
		s.refs--
	}
	last := s.refs == 0
	if (last || s.err != nil || s.gone.Load()) && t.all[s.pd] == s {
		delete(t.all, s.pd)
	}
	t.mu.Unlock()
	if !last {
		return nil
	}
	return s.close()
}

// close drops the references of the listener. A call after one that has failed tries again.
func (t *sharedSet) close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	t.closed = true
	all := slices.Collect(maps.Values(t.all))
	t.mu.Unlock()
	var errs []error
	for _, s := range all {
		t.mu.Lock()
		kept := s.kept
		s.kept = false
		t.mu.Unlock()
		if kept {
			errs = append(errs, t.leave(s))
		}
	}
	return errors.Join(errs...)
}

// create registers and posts the receives.
func (s *shared) create(p *pool) error {
	o := s.set.options
	n, size := o.SharedReceives, o.receiveLen()
	if b := s.set.budget; b != nil {
		if err := b.used.Reserve(o.sharedMemory()); err != nil {
			return memoryLimit(cm.ErrServerLimit, err)
		}
		s.reserved = o.sharedMemory()
	}
	s.held.Store(1)
	err := p.retry(func() (err error) {
		if s.mr == nil {
			s.mr, err = alloc(s.pd, n*size, uverbs.LocalWrite)
		}
		if err == nil {
			s.srq, err = s.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: n})
		}
		return err
	})
	if err != nil {
		return err
	}
	s.slots = make([]memory, n)
	verbs.WatchSRQ(s.srq, s.limitReached, s.drop)
	for i := range s.slots {
		m, off := &s.slots[i], i*size
		m.bytes, m.size, m.mr, m.off = s.mr.Bytes()[off:off+size:off+size], size, s.mr, off
		m.shared, m.slot = s, i
		if err := s.post(m); err != nil {
			return err
		}
	}
	if err := s.arm(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go s.runSweeper()
	return nil
}

// close closes what create has created. No connection uses it.
func (s *shared) close() error {
	s.ends.Do(func() { close(s.ending) })
	if s.ended != nil {
		<-s.ended
	}
	if s.srq != nil {
		if err := s.srq.Close(); err != nil {
			return err
		}
	}
	if s.mr != nil && !s.closed {
		if err := s.mr.Close(); err != nil {
			return err
		}
		s.closed = true
		s.unhold(s.mr)
	}
	if b := s.set.budget; b != nil {
		b.unreserve(s.reserved)
		s.reserved = 0
	}
	return nil
}

// unhold removes a user of the memory. It is used for something else after the last one.
func (s *shared) unhold(mr *uverbs.MR) {
	if s.held.Add(-1) == 0 {
		verbs.FreeReused(mr)
	}
}

// post posts a receive.
func (s *shared) post(m *memory) error {
	_, err := s.srq.PostRecv(uverbs.RecvWR{WRID: recvBit | uint64(m.slot), SGL: []uverbs.SGE{m.sge(len(m.bytes))}})
	switch {
	case err == nil:
		s.posted.Add(1)
	case errors.Is(err, uverbs.ErrDeviceGone):
		s.gone.Store(true)
	}
	return err
}

// arm has limitReached called when a quarter of the receives is left.
func (s *shared) arm() error {
	return s.srq.Modify(uverbs.SRQAttr{Limit: max(len(s.slots)/4, 1)}, uverbs.SRQMaskLimit)
}

// limitReached is called when few receives are left.
func (s *shared) limitReached() {
	s.short.Store(true)
	s.wakeSweeper()
}

func (s *shared) wakeSweeper() {
	select {
	case s.wake <- struct{}{}:
	default: // it will run
	}
}

// drop is called with a receive whose completion was dropped.
func (s *shared) drop(wrID uint64) {
	s.posted.Add(-1)
	s.mu.Lock()
	s.dropped = append(s.dropped, wrID)
	s.mu.Unlock()
	s.wakeSweeper()
}

// Times after which the sweeper sweeps again, until it finds nothing.
const (
	sweepSoon  = 5 * time.Millisecond
	sweepLater = time.Second
)

// runSweeper sweeps when few receives are left, and then again until there was nothing to do: an SRQ that is empty
// raises no event.
func (s *shared) runSweeper() {
	defer close(s.ended)
	timer := time.NewTimer(sweepLater)
	timer.Stop()
	sweeping := false
	for pause := sweepSoon; ; {
		select {
		case <-s.ending:
			return
		case <-s.wake:
			pause = sweepSoon
		case <-timer.C:
			pause = min(2*pause, sweepLater)
		}
		s.postDropped()
		if sweeping = sweeping || s.short.Load(); !sweeping {
			continue
		}
		s.sweep()
		armed := s.arm() == nil // otherwise time decides
		found := s.sweep() > 0
		if 2*int(s.posted.Load()) >= len(s.slots) {
			s.short.Store(false)
		}
		if sweeping = found || !armed && !s.gone.Load() || pause < sweepLater; sweeping {
			timer.Reset(pause)
		} else {
			s.freeSpares()
		}
	}
}

// postDropped posts the receives whose completions were dropped.
func (s *shared) postDropped() {
	s.mu.Lock()
	dropped := s.dropped
	s.dropped = nil
	s.mu.Unlock()
	for _, wrID := range dropped {
		// The device may be gone, which the connections notice.
		_ = s.post(&s.slots[wrID&^recvBit])
	}
}

// sweep sweeps the connections. It returns how much it has found.
func (s *shared) sweep() (found int) {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range conns {
		found += c.sweep()
	}
	return found
}

// add has the sweeper sweep a connection.
func (s *shared) add(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

func (s *shared) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// getSpare returns memory for a copy.
func (s *shared) getSpare() *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.spares
	if m == nil {
		size := s.set.options.receiveLen()
		return &memory{bytes: make([]byte, size), size: size, shared: s}
	}
	s.spares, m.next = m.next, nil
	s.spare--
	return m
}

// freeSpares frees the spares.
func (s *shared) freeSpares() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spares, s.spare = nil, 0
}

// putSpare takes back memory of getSpare. As many are kept as there are receives.
func (s *shared) putSpare(m *memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare < len(s.slots) {
		m.next, s.spares = s.spares, m
		s.spare++
	}
}
