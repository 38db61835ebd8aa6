package onesided

import (
	"errors"
	"fmt"
	"sync"
)

// maxLinks limits the QPs that clients can make a server create.
const maxLinks = 256

// links are a server's links, by transport and peer. A client whose link was closed to make
// room for others connects again.
type links struct {
	mu     sync.Mutex
	closed bool
	clock  uint64 // of uses
	byPeer map[string]*cached
}

type cached struct {
	link
	key  string
	used uint64
	busy bool
}

var errClosed = errors.New("onesided: the handler is closed")

// take returns the link to the token's peer, for one request. If there was none it creates one
// and returns the address that the client must connect to first.
func (s *links) take(p *Pool, t Token) (c *cached, reply string, err error) {
	key := t.Transport + ";" + t.Peer
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, "", errClosed
	}
	s.clock++
	if c := s.byPeer[key]; c != nil {
		if c.busy {
			return nil, "", fmt.Errorf("onesided: another request uses %s", t.Peer)
		}
		c.busy, c.used = true, s.clock
		return c, "", nil
	}
	if err := s.makeRoom(); err != nil {
		return nil, "", err
	}
	tr, err := transportOf(t.Transport)
	if err != nil {
		return nil, "", err
	}
	l, reply, err := tr.accept(p, t.Peer)
	if err != nil {
		return nil, "", err
	}
	if s.byPeer == nil {
		s.byPeer = map[string]*cached{}
	}
	c = &cached{link: l, key: key, used: s.clock, busy: reply == ""}
	s.byPeer[key] = c
	return c, reply, nil
}

// makeRoom closes the link that was not used for longest, if there are maxLinks.
func (s *links) makeRoom() error {
	if len(s.byPeer) < maxLinks {
		return nil
	}
	var oldest *cached
	for _, c := range s.byPeer {
		if !c.busy && (oldest == nil || c.used < oldest.used) {
			oldest = c
		}
	}
	if oldest == nil {
		return fmt.Errorf("onesided: all %d links are in use", maxLinks)
	}
	delete(s.byPeer, oldest.key)
	return oldest.Close()
}

// put returns a link after a request.
func (s *links) put(c *cached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.busy = false
}

// drop closes a link after an error.
func (s *links) drop(c *cached) error {
	s.mu.Lock()
	delete(s.byPeer, c.key)
	s.mu.Unlock()
	return c.Close()
}

// close closes all links. No request may be in progress.
func (s *links) close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.byPeer {
		err = errors.Join(err, c.Close())
	}
	s.byPeer = nil
	return err
}
