package s3rdma

import (
	"net/http"
	"time"
)

// Memory returns the memory that requests use, and what is kept for later ones.
func (t *Transport) Memory() (used int64, spare [][]byte) {
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	for _, s := range t.memory.spare {
		spare = append(spare, s...)
	}
	return t.memory.used, spare
}

// Targets returns the number of targets of new requests.
func (t *Transport) Targets() int {
	t.targets.mu.Lock()
	defer t.targets.mu.Unlock()
	return len(t.targets.current)
}

// InUse returns the number of transfers and sessions in progress.
func (h *Handler) InUse() (transfers, sessions int) {
	h.movers.mu.Lock()
	defer h.movers.mu.Unlock()
	h.sessions.mu.Lock()
	defer h.sessions.mu.Unlock()
	return len(h.movers.slots), h.sessions.active
}

// ExpireSessions ends the sessions that wait, as after their time.
func (h *Handler) ExpireSessions() {
	h.sessions.mu.Lock()
	var waiting []*session
	for _, s := range h.sessions.byID {
		waiting = append(waiting, s)
	}
	h.sessions.mu.Unlock()
	for _, s := range waiting {
		h.sessions.expire(s)
	}
}

// ParseRCToken parses a token and returns its text.
func ParseRCToken(text string) (string, error) {
	t, err := parseRCToken(text)
	return t.String(), err
}

// MostTargets limits what Targets returns.
const MostTargets = mostTargets

var (
	ReadChunked = readChunked
	ParseSpan   = func(text string) (start, end int64, ok bool) {
		s, ok := parseSpan(text)
		return s.start, s.end, ok
	}
)

// Sign signs a request that has been signed before.
func Sign(r *http.Request, secret string, now time.Time) {
	auth, _ := parseAuthorization(r.Header.Get(headerAuth))
	auth.sign(r, secret, now)
}
