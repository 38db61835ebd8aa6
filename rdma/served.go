package rdma

import (
	"context"
	"maps"
	"sync"
)

// served are the connections of Serve.
type served struct {
	mu    sync.Mutex
	loops map[chan struct{}]struct{} // closed when a Serve accepts no more
	conns map[*Conn]chan struct{}    // with what is closed when Serve has closed it
	drain bool                       // Shutdown was called
}

// accept records that a Serve accepts connections until it calls end.
func (s *served) accept() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loops == nil {
		s.loops = map[chan struct{}]struct{}{}
	}
	loop := make(chan struct{})
	s.loops[loop] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(loop)
		delete(s.loops, loop)
	}
}

// add adds a connection. The caller calls remove, and drains it if add returns true.
func (s *served) add(c *Conn) (drain bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = map[*Conn]chan struct{}{}
	}
	s.conns[c] = make(chan struct{})
	return s.drain
}

func (s *served) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.conns[c])
	delete(s.conns, c)
}

// all waits until no Serve accepts any more, or ctx ends, and returns the connections. Further ones are drained. The
// listener is closed.
func (s *served) all(ctx context.Context) map[*Conn]chan struct{} {
	s.mu.Lock()
	s.drain = true
	loops := maps.Clone(s.loops)
	s.mu.Unlock()
	for loop := range loops {
		select {
		case <-loop:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.conns)
}
