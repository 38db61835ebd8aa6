package rdma

import (
	"maps"
	"sync"
)

// served are the connections of Serve.
type served struct {
	mu    sync.Mutex
	conns map[*Conn]chan struct{} // with what is closed when Serve has closed it
	drain bool                    // Shutdown was called
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

// all returns the connections. Further ones are drained.
func (s *served) all() map[*Conn]chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain = true
	return maps.Clone(s.conns)
}
