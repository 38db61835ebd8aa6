package s3rdma

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// prepareTime is how long a session waits for the client's second request.
const prepareTime = 10 * time.Second

// A session is a transfer by reliable connection at the server, from the client's first request to the end of its
// second one.
type session struct {
	id     string
	owner  string        // the access key
	size   int64         // of its memory
	object *http.Request // that the session stands for
	peer   rcToken
	cookie uint32
	b      []byte
	end    *rcEnd
	header http.Header // of the response to a GET
	expiry *time.Timer
	ended  bool
}

// sessions are the sessions of a Handler that wait for the client's second request, and the memory of all.
type sessions struct {
	mu     sync.Mutex
	byID   map[string]*session
	active int              // also those in transfer
	owned  map[string]int64 // bytes of the sessions of an owner
	closed bool
	memory memory
}

// A refusal is an error with the status of the response.
type refusal struct {
	status int
	err    error
}

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

func refuse(status int, err error) error { return &refusal{status, err} }

// serveRC serves the requests of the form for reliable connections.
func (h *Handler) serveRC(w http.ResponseWriter, r *http.Request) {
	err := h.controlRC(w, r)
	if err == nil {
		return
	}
	h.observe(r, 0, err)
	status := http.StatusInternalServerError
	if e := (*refusal)(nil); errors.As(err, &e) {
		status = e.status
	}
	if status == http.StatusNotImplemented {
		w.Header().Set(headerStatus, "unsupported")
	}
	w.Header().Del(headerReply)
	writeError(w, status, err)
}

func (h *Handler) controlRC(w http.ResponseWriter, r *http.Request) error {
	if h.Device == nil || h.RC == nil || r.Header.Get(headerProtocol) != rcProtocol {
		return refuse(http.StatusNotImplemented, fmt.Errorf("%w: this server has no %s", ErrDeclined, rcProtocol))
	}
	if err := tokensSigned(r); err != nil {
		return refuse(http.StatusForbidden, err)
	}
	w.Header().Set(headerProtocol, rcProtocol)
	switch r.URL.Path {
	case rcPrepare:
		return h.prepareRC(w, r)
	case rcReady:
		return h.readyRC(w, r)
	case rcCancel:
		s, err := h.sessions.take(r, nil)
		if err == nil {
			err = h.sessions.end(s)
		} else if e := (*refusal)(nil); errors.As(err, &e) && e.status == http.StatusNotFound {
			err = nil // it has ended
		}
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
		return err
	}
	return refuse(http.StatusNotFound, fmt.Errorf("%w: no such request of %s: %.100s", ErrDeclined, rcProtocol,
		r.URL.Path))
}

// prepareRC serves the first request: it creates a session, and for a GET reads the object.
func (h *Handler) prepareRC(w http.ResponseWriter, r *http.Request) (err error) {
	s, size, psn, err := h.parsePrepare(r)
	if err != nil {
		return err
	}
	if err := h.RC(r, s.object); err != nil {
		return refuse(http.StatusForbidden, fmt.Errorf("%w: Handler.RC: %w", ErrDeclined, err))
	}
	if err := h.allow(r, s.peer.lid, s.peer.gid); err != nil {
		return refuse(http.StatusForbidden, err)
	}
	if err := h.sessions.begin(h, s, size); err != nil {
		return err
	}
	published := false
	defer func() { // also if Next panics
		if !published {
			err = errors.Join(err, h.sessions.end(s))
		}
	}()
	if err := h.stage(s, psn); err != nil {
		return err
	}
	reply := w.Header()
	token := s.end.token()
	reply.Set(headerReply, rcReplyOK+token.String())
	reply.Set(headerSession, s.id)
	reply.Set(headerPSN, formatPSN(s.end.local.PSN))
	reply.Set(headerQPN, formatHex(token.qpn))
	reply.Set(headerMRAddr, formatHex(token.addr))
	reply.Set(headerMRKey, formatHex(token.rkey))
	if err := h.sessions.publish(s); err != nil {
		return err
	}
	published = true
	w.WriteHeader(http.StatusOK)
	return nil
}

// parsePrepare parses the headers of the first request.
func (h *Handler) parsePrepare(r *http.Request) (s *session, size int, psn uint32, err error) {
	bad := func(err error) (*session, int, uint32, error) {
		return nil, 0, 0, refuse(http.StatusBadRequest, err)
	}
	token, err := parseRCToken(r.Header.Get(headerToken))
	if err != nil {
		return bad(err)
	}
	psn64, err1 := hexHeader(r.Header, headerPSN, maxQPN)
	cookie, err2 := hexHeader(r.Header, headerCookie, 1<<32-1)
	size64, err3 := numberHeader(r.Header, headerSize, 10, 1, 1<<63-1)
	var offset uint64
	var err4 error
	if r.Header.Get(headerOffset) != "" {
		offset, err4 = numberHeader(r.Header, headerOffset, 10, 0, 1<<62)
	}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return bad(err)
	}
	if limit := min(h.maxSize(), rcMaxSize); size64 > uint64(limit) {
		return nil, 0, 0, refuse(http.StatusRequestEntityTooLarge, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge,
			size64, limit))
	}
	object, err := objectOf(r, int64(offset), int64(size64))
	if err != nil {
		return bad(err)
	}
	auth, _ := parseAuthorization(r.Header.Get(headerAuth))
	return &session{owner: auth.accessKey, object: object, peer: token, cookie: uint32(cookie)}, int(size64),
		uint32(psn64), nil
}

// objectOf returns the request that a session stands for, without a body.
func objectOf(r *http.Request, offset, size int64) (*http.Request, error) {
	op, target := r.Header.Get(headerOp), r.Header.Get(headerTarget)
	if op != http.MethodGet && op != http.MethodPut || len(target) < 2 || target[0] != '/' || target[1] == '/' {
		return nil, fmt.Errorf("%w: %.100s %.100q, want a GET or PUT of an object", ErrProtocol, op, target)
	}
	if op == http.MethodPut && offset != 0 {
		return nil, fmt.Errorf("%w: a PUT at offset %d, want 0", ErrProtocol, offset)
	}
	object, err := http.NewRequestWithContext(r.Context(), op, target, nil)
	if err != nil {
		return nil, err
	}
	if !objectQuery(object.URL) {
		return nil, fmt.Errorf("%w: %s %.100q does not move an object", ErrProtocol, op, target)
	}
	object.Host, object.RemoteAddr, object.TLS, object.RequestURI = r.Host, r.RemoteAddr, r.TLS, target
	if op == http.MethodGet {
		setRange(object.Header, offset, offset+size)
		return object, nil
	}
	object.ContentLength = size
	object.Header.Set("Content-Length", strconv.FormatInt(size, 10))
	for _, name := range digests(r.Header) {
		if v := r.Header.Get(name); v != "" {
			object.Header.Set(name, v)
		}
	}
	return object, nil
}

// stage creates the server's end of the connection. The memory of a GET has the object.
func (h *Handler) stage(s *session, psn uint32) (err error) {
	right := uverbs.Access(uverbs.RemoteWrite)
	if s.object.Method == http.MethodGet {
		right = 0
		if err := h.read(s); err != nil {
			return err
		}
	}
	if s.end, err = newRCEnd(h.Device, s.b, right); err != nil {
		return err
	}
	if err := s.end.connect(s.peer, psn); err != nil {
		return fmt.Errorf("%w: no connection to the client: %w", ErrTransfer, err)
	}
	return nil
}

// read reads the object of a GET into the memory of the session.
func (h *Handler) read(s *session) error {
	c := &collector{header: http.Header{}, b: s.b}
	h.Next.ServeHTTP(c, s.object)
	if err := c.failed(); err != nil {
		return err
	}
	if c.code != http.StatusPartialContent && c.code != http.StatusOK || c.n != len(s.b) || c.overflow {
		return refuse(http.StatusRequestedRangeNotSatisfiable, fmt.Errorf("%w: the object has %d of the %d bytes",
			ErrDeclined, c.n, len(s.b)))
	}
	s.header = c.header
	return nil
}

// readyRC serves the second request: it moves the data, and for a PUT stores the object.
func (h *Handler) readyRC(w http.ResponseWriter, r *http.Request) (err error) {
	cookie, err := hexHeader(r.Header, headerCookie, 1<<32-1)
	if err != nil {
		return refuse(http.StatusBadRequest, err)
	}
	s, err := h.sessions.take(r, func(s *session) error {
		qpn, err := hexHeader(r.Header, headerQPN, maxQPN)
		switch {
		case err != nil:
			return refuse(http.StatusBadRequest, err)
		case uint32(cookie) != s.cookie:
			return refuse(http.StatusForbidden, fmt.Errorf("%w: the cookie is not that of the session", ErrProtocol))
		case uint32(qpn) != s.peer.qpn:
			return refuse(http.StatusConflict, fmt.Errorf("%w: QP %#x, the session's token has %#x", ErrProtocol, qpn,
				s.peer.qpn))
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer h.sessions.end(s) // if Next panics; otherwise it has ended
	limit := fmt.Errorf("%w: more than %v: see Handler.Timeout", ErrTimeout, h.timeout())
	ctx, cancel := context.WithTimeoutCause(r.Context(), h.timeout(), limit)
	defer cancel()
	if s.object.Method == http.MethodGet {
		err = h.writeRC(ctx, s, r.Header)
	} else {
		err = h.storeRC(ctx, r, s)
	}
	n := len(s.b)
	if err = errors.Join(err, h.sessions.end(s)); err != nil {
		return err
	}
	h.observe(s.object, int64(n), nil)
	reply := w.Header()
	reply.Set(headerCookie, formatCookie(s.cookie))
	reply.Set(headerBytes, strconv.Itoa(n))
	for from, to := range map[string]string{"Etag": headerETag, "X-Amz-Version-Id": headerVersion} {
		if v := s.header.Get(from); v != "" {
			reply.Set(to, v)
		}
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// writeRC writes the object to the client's memory.
func (h *Handler) writeRC(ctx context.Context, s *session, header http.Header) error {
	addr, err1 := hexHeader(header, headerMRAddr, 1<<64-1)
	rkey, err2 := hexHeader(header, headerMRKey, 1<<32-1)
	if err := errors.Join(err1, err2); err != nil {
		return refuse(http.StatusBadRequest, err)
	}
	return s.end.write(ctx, addr, uint32(rkey), s.cookie)
}

// storeRC waits for the client's data until ctx ends, and stores it when the client can no longer change it. r is the
// second request.
func (h *Handler) storeRC(ctx context.Context, r *http.Request, s *session) error {
	if err := s.end.written(ctx, s.cookie); err != nil {
		return err
	}
	end := s.end
	s.end = nil
	if err := end.close(); err != nil {
		h.sessions.lose(s)
		return err
	}
	c := &collector{header: http.Header{}}
	object := s.object.WithContext(r.Context())
	body := &receiver{left: s.b, cancel: func() {}}
	defer body.end() // before other sessions use the memory
	object.Body = body
	h.Next.ServeHTTP(c, object)
	if err := c.failed(); err != nil {
		return err
	}
	s.header = c.header
	return nil
}

// A collector is the ResponseWriter of a request that a session stands for.
type collector struct {
	header   http.Header
	code     int
	b        []byte
	n        int
	overflow bool
}

func (c *collector) Header() http.Header { return c.header }

func (c *collector) WriteHeader(code int) {
	if c.code == 0 && code >= http.StatusOK {
		c.code = code
	}
}

// failed returns an error if the status is not one of success. That of a redirection would have no body.
func (c *collector) failed() error {
	c.WriteHeader(http.StatusOK) // unless Next has
	code := c.code
	switch {
	case code/100 == 2:
		return nil
	case code < http.StatusBadRequest:
		code = http.StatusBadGateway
	}
	return refuse(code, fmt.Errorf("%w: status %d", ErrDeclined, c.code))
}

func (c *collector) Write(p []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	n := copy(c.b[c.n:], p)
	c.n += n
	if n < len(p) && c.code/100 == 2 {
		c.overflow = true
		return n, io.ErrShortWrite
	}
	return len(p), nil // the text of an error is dropped
}

// begin gives a session its memory and its name.
func (s *sessions) begin(h *Handler, x *session, size int) error {
	limit := positiveOr(h.MaxMemory, defaultMaxMemory)
	if err := s.enter(x, int64(size), h.maxTransfers(), limit/ownersShare); err != nil {
		return refuse(http.StatusServiceUnavailable, err)
	}
	if x.b = s.memory.take(size, limit); x.b == nil {
		return errors.Join(refuse(http.StatusServiceUnavailable, fmt.Errorf("%w: %d bytes more: raise Handler.MaxMemory",
			ErrBusy, size)), s.end(x))
	}
	var random [sessionDigits / 2]byte
	rand.Read(random[:]) // never fails
	x.id = hex.EncodeToString(random[:])
	return nil
}

// ownersShare is the part of Handler.MaxMemory that the sessions of one owner may use: a quarter.
const ownersShare = 4

// enter counts a session.
func (s *sessions) enter(x *session, size int64, limit int, most int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.active >= limit:
		return fmt.Errorf("%w: %d sessions: raise Handler.MaxTransfers", ErrBusy, limit)
	case size > most-s.owned[x.owner]:
		return fmt.Errorf("%w: %d bytes more for access key %.100q, which has %d of %d: raise Handler.MaxMemory", ErrBusy,
			size, x.owner, s.owned[x.owner], most)
	case s.owned == nil:
		s.owned = map[string]int64{}
	}
	s.active++
	s.owned[x.owner] += size
	x.size = size
	return nil
}

// publish makes a session known to the client's second request, for a while.
func (s *sessions) publish(x *session) error {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		if s.byID == nil {
			s.byID = map[string]*session{}
		}
		s.byID[x.id] = x
		x.expiry = time.AfterFunc(prepareTime, func() { s.expire(x) })
	}
	s.mu.Unlock()
	if closed {
		return refuse(http.StatusServiceUnavailable, ErrClosed)
	}
	return nil
}

func (s *sessions) expire(x *session) {
	s.mu.Lock()
	waits := s.byID[x.id] == x
	delete(s.byID, x.id)
	s.mu.Unlock()
	if waits {
		s.end(x) // an error leaves its memory out of use
	}
}

// take returns the session of a request, which no other request takes then. If ok returns an error, the session stays.
func (s *sessions) take(r *http.Request, ok func(*session) error) (*session, error) {
	id := r.Header.Get(headerSession)
	auth, _ := parseAuthorization(r.Header.Get(headerAuth))
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.byID[id]
	if x == nil || x.owner != auth.accessKey {
		return nil, refuse(http.StatusNotFound, fmt.Errorf("%w: no session %.100q, or it has expired", ErrProtocol, id))
	}
	if ok != nil {
		if err := ok(x); err != nil {
			return nil, err
		}
	}
	delete(s.byID, id)
	x.expiry.Stop()
	return x, nil
}

// end releases what a session has. It may be called again.
func (s *sessions) end(x *session) (err error) {
	if x.ended {
		return nil
	}
	x.ended = true
	if x.end != nil {
		err = x.end.close()
		x.end = nil
	}
	if x.b != nil {
		s.memory.put(x.b, err != nil)
		x.b = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if s.owned[x.owner] -= x.size; s.owned[x.owner] == 0 {
		delete(s.owned, x.owner)
	}
	return err
}

// lose leaves the memory of a session to the device.
func (s *sessions) lose(x *session) {
	s.memory.put(x.b, true)
	x.b = nil
}

// close ends the sessions that wait.
func (s *sessions) close() (err error) {
	s.mu.Lock()
	waiting := s.byID
	s.byID, s.closed = nil, true
	s.mu.Unlock()
	for _, x := range waiting {
		x.expiry.Stop()
		err = errors.Join(err, s.end(x))
	}
	return err
}
