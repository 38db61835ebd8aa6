package s3rdma

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// mostHosts limits what a Transport remembers.
	mostHosts = 1000
	// forgetTime is how long PUTs to a server that does not know the wire travel by HTTP before the Transport asks again.
	forgetTime = time.Minute
)

// hosts remembers which servers know the wire. A server that does not ignores the token of a PUT, and replaces the
// object by one without data: a PUT has a token only if the server has sent the reply header before.
type hosts struct {
	mu    sync.Mutex
	until map[string]time.Time // PUTs travel by HTTP until then; the zero time: the server knows the wire
}

// knows reports whether a server knows the wire, and whether to ask it.
func (s *hosts) knows(host string) (knows, ask bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.until[host]
	return ok && until.IsZero(), !ok || !until.IsZero() && time.Now().After(until)
}

// learn remembers whether a server knows the wire.
func (s *hosts) learn(host string, knows bool) {
	var until time.Time
	if !knows {
		until = time.Now().Add(forgetTime)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.until[host]; s.until == nil || !ok && len(s.until) >= mostHosts {
		s.until = map[string]time.Time{}
	}
	s.until[host] = until
}

// known returns an error if the server of a PUT may not know the wire. It asks with a HEAD
// that has a token of no memory.
func (t *Transport) known(r *http.Request, s *signer) error {
	host := r.URL.Host
	knows, ask := t.hosts.knows(host)
	if ask && !knows && !t.AcceptETag {
		if err := t.ask(r, s); err != nil {
			return err
		}
		knows, _ = t.hosts.knows(host)
	}
	if knows || ask && t.AcceptETag {
		return nil
	}
	return fmt.Errorf("%w: %s has sent no %s so far, and could store an empty object", ErrDeclined, host, headerReply)
}

func (t *Transport) ask(r *http.Request, s *signer) error {
	head := offering(r.Context(), r, Token{})
	head.Method = http.MethodHead
	head.Header = http.Header{headerSHA256: {unsignedPayload}, headerToken: {Token{}.String()}}
	u := *r.URL
	u.RawQuery = ""
	head.URL = &u
	for _, name := range []string{"X-Amz-Security-Token", "User-Agent"} {
		if v := r.Header.Get(name); v != "" {
			head.Header.Set(name, v)
		}
	}
	s.sign(head)
	resp, _, err := t.exchange(head)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.Header.Get(headerReply) == "" {
		t.hosts.learn(r.URL.Host, false)
	}
	return nil
}
