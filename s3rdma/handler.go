package s3rdma

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	defaultTransfers = 64
	defaultBuffer    = 1 << 20
	defaultWait      = time.Second
	defaultTimeout   = time.Minute
)

// A Handler is the server's side of the wire: it wraps the http.Handler of an S3 server. Next sees ordinary requests,
// whose bodies are read from the client's memory as Next reads them, and its responses are written there. So Next, or a
// handler in front of it, authenticates a request before data moves.
//
// Requests without a token, and those that the Handler declines, travel by HTTP. A PUT that it declines has no data: it
// has status 501, and does not reach Next.
//
// The Content-Length that Next sees is that of the data. A signature that includes the Content-Length of the request,
// which is 0, must be checked by a handler in front of this one. Transport signs none.
//
// The fields must not be changed after the first request.
type Handler struct {
	Next   http.Handler
	Device *Device // nil: every token is declined
	// MaxTransfers limits the transfers in progress; 0: 64. Others wait for at most MaxWait, 0: 1 second, and are then
	// declined. Each transfer has a buffer of BufferSize bytes, 0: 1 MiB, and a queue pair.
	MaxTransfers int
	MaxWait      time.Duration
	BufferSize   int
	// MaxSize limits the data of a PUT, in bytes; 0: what a token can name, 4 GiB - 1.
	MaxSize int64
	// Timeout limits the time that the device takes for one request; 0: 1 minute. The time of Next does not count.
	Timeout time.Duration
	// DCKey is the access key of the clients' DCTs; 0: the key of the wire, 0xffeeddcc.
	DCKey uint64
	// RC makes the Handler serve the form of the wire for reliable connections too. In this form a POST stands for a
	// request on an object, with which Next is called when RC returns nil. A handler in front of this one checks the
	// signature of the POST; object has none, but the same context. Next decides whether the caller may do what object
	// asks for, or RC does, which may change its headers. If RC is nil, such POSTs are declined.
	RC func(post, object *http.Request) error
	// MaxMemory limits the memory of sessions of this form, in bytes; 0: 1 GiB. Those of one access key may use a quarter
	// of it.
	MaxMemory int64
	// Allow decides whether the server connects to the address that a token names, which the client chooses. If it
	// returns an error, the request is declined. Nil allows every address. On InfiniBand the address is a GID.
	Allow func(r *http.Request, peer netip.Addr) error
	// Observe is called after each transfer and each decline. Its errors have the cause; those that clients receive only
	// say what is wrong with their request, or that the server has failed.
	Observe func(Transfer)

	movers   movers
	sessions sessions
}

// Close closes what requests have shared. Call it after http.Server.Shutdown. It does not close Device.
func (h *Handler) Close() error { return errors.Join(h.movers.close(), h.sessions.close()) }

func (h *Handler) observe(r *http.Request, bytes int64, err error) {
	if h.Observe != nil {
		h.Observe(Transfer{Method: r.Method, Path: r.URL.Path, Bytes: bytes, RDMA: err == nil, Err: err})
	}
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, rcPrefix) {
		h.serveRC(w, r)
		return
	}
	text := r.Header.Get(headerToken)
	if text == "" {
		h.Next.ServeHTTP(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPut { // a client asks whether this server knows the wire
		w.Header().Set(headerReply, declined)
		h.Next.ServeHTTP(w, r)
		return
	}
	token, err := h.accept(r, text)
	if err == nil {
		x := &transfer{h: h, r: r, token: token}
		if r.Method == http.MethodPut {
			x.servePut(w)
		} else {
			x.serveGet(w)
		}
		return
	}
	h.observe(r, 0, err)
	w.Header().Set(headerReply, declined)
	if r.Method == http.MethodPut && r.ContentLength == 0 {
		writeError(w, http.StatusNotImplemented, err)
		return
	}
	h.Next.ServeHTTP(w, r)
}

// accept returns the token of a request that may travel by RDMA.
func (h *Handler) accept(r *http.Request, text string) (t Token, err error) {
	switch {
	case h.Device == nil:
		return t, errNoDevice
	case r.ContentLength != 0:
		return t, fmt.Errorf("%w: the request has a body of its own, of %d bytes", ErrDeclined, r.ContentLength)
	case len(r.Header.Values(headerToken)) != 1:
		return t, tokenError("the request has more than one")
	}
	if t, err = ParseToken(text); err != nil {
		return t, err
	}
	if err := tokensSigned(r); err != nil {
		return t, err
	}
	if limit := h.maxSize(); r.Method == http.MethodPut && int64(t.Size) > limit {
		return t, fmt.Errorf("%w: a PUT of %d bytes, Handler.MaxSize is %d", ErrTooLarge, t.Size, limit)
	}
	return t, h.allow(r, t.LID, t.GID)
}

// allow calls Allow.
func (h *Handler) allow(r *http.Request, lid uint16, gid uverbs.GID) error {
	if h.Allow == nil {
		return nil
	}
	if lid != 0 {
		return fmt.Errorf("%w: the token has LID %#x, which Handler.Allow cannot judge: leave Allow unset on InfiniBand",
			ErrDeclined, lid)
	}
	if err := h.Allow(r, gid.Addr()); err != nil {
		return fmt.Errorf("%w: Handler.Allow: %w", ErrDeclined, err)
	}
	return nil
}

// tokensSigned returns an error if a signed request has headers of this wire that are not part of the signature, or
// that may not be.
func tokensSigned(r *http.Request) error {
	text := r.Header.Get(headerAuth)
	auth, signed := parseAuthorization(text)
	if query := r.URL.Query(); text != "" && !signed || query.Has("X-Amz-Signature") || query.Has("Signature") {
		return fmt.Errorf("%w: the request is not signed with the header of %s", ErrToken, algorithm)
	}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if signed && strings.HasPrefix(lower, "x-amz-rdma-") && !slices.Contains(auth.headers, lower) {
			return fmt.Errorf("%w: the signature does not include %s", ErrToken, lower)
		}
	}
	return nil
}

func (h *Handler) maxSize() int64         { return positiveOr(h.MaxSize, maxSize) }
func (h *Handler) maxTransfers() int      { return positiveOr(h.MaxTransfers, defaultTransfers) }
func (h *Handler) timeout() time.Duration { return positiveOr(h.Timeout, defaultTimeout) }

// positiveOr returns the default of a value that is not set.
func positiveOr[T int | int64 | time.Duration](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

// writeError sends an error as S3 does, without what concerns only the server.
func writeError(w http.ResponseWriter, status int, err error) {
	code := strings.ReplaceAll(http.StatusText(status), " ", "")
	if status == http.StatusInternalServerError {
		code = "InternalError"
	}
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	var message bytes.Buffer
	xml.EscapeText(&message, []byte(publicText(err))) // a Buffer accepts all
	fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>%s</Message></Error>\n", xml.Header, code, &message)
}

// servePut serves a PUT, whose body is the client's memory.
func (x *transfer) servePut(w http.ResponseWriter) {
	size := int64(x.token.Size)
	r := x.r.Clone(x.r.Context())
	ctx, cancel := context.WithCancel(x.r.Context())
	x.r = x.r.WithContext(ctx)
	b := &receiver{x: x, cancel: cancel}
	r.Body, r.ContentLength = b, size
	r.Header.Set("Content-Length", strconv.FormatInt(size, 10))
	rw := &putWriter{ResponseWriter: w, b: b}
	defer b.end() // also if Next panics
	x.h.Next.ServeHTTP(rw, r)
	b.Close()                     // ends a Read that is still in progress
	rw.WriteHeader(http.StatusOK) // unless Next has
	x.h.observe(x.r, b.moved(), b.result())
}

// A receiver is the body of a PUT. Next may read and close it from several goroutines, and also after ServeHTTP has
// returned: then the buffer has the data of another request.
type receiver struct {
	x      *transfer          // nil if left is all there is
	cancel context.CancelFunc // ends a transfer in progress

	mu   sync.Mutex
	left []byte // of the buffer
	err  error
}

// moved returns the number of bytes that the device has read.
func (b *receiver) moved() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.x.done)
}

// result returns why Next has not read the data as a whole.
func (b *receiver) result() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	read := int64(b.x.done) - int64(len(b.left))
	switch {
	case read == int64(b.x.token.Size):
		return nil
	case b.err != nil && b.err != http.ErrBodyReadAfterClose:
		return b.err
	}
	return fmt.Errorf("%w: the server has read %d of %d bytes", ErrDeclined, read, b.x.token.Size)
}

// fill reads the next part of the client's memory if none is left.
func (b *receiver) fill() error {
	switch {
	case b.err != nil:
		return b.err
	case len(b.left) > 0:
		return nil
	case b.x == nil || b.x.done == b.x.token.Size:
		return io.EOF
	}
	b.left, b.err = b.x.receive()
	return b.err
}

func (b *receiver) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.fill(); err != nil {
		return 0, err
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

// Close ends the reading, also of a Read in progress.
func (b *receiver) Close() error {
	b.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = http.ErrBodyReadAfterClose
	}
	return nil
}

// end closes the body and releases the transfer. No Read touches the buffer any more.
func (b *receiver) end() {
	b.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = nil
	if b.x != nil {
		b.x.end()
	}
}

// A putWriter is the ResponseWriter of a PUT. It adds the reply.
type putWriter struct {
	http.ResponseWriter
	b     *receiver
	wrote bool
}

func (w *putWriter) Unwrap() http.ResponseWriter { return unhijacked{w.ResponseWriter} }

// Flush implements http.Flusher.
func (w *putWriter) Flush() { w.FlushError() }

// FlushError is Flush for http.ResponseController. The header that it sends has the reply.
func (w *putWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *putWriter) WriteHeader(code int) {
	if w.wrote {
		return
	}
	if code < http.StatusOK { // more headers follow
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.wrote = true
	if code >= http.StatusMultipleChoices { // a Read may be in progress, for which result would wait
		w.Header().Set(headerReply, declined)
		w.ResponseWriter.WriteHeader(code)
		return
	}
	why := w.b.result()
	switch {
	case why != nil: // although Next says that it has stored the object
		w.Header().Set(headerReply, declined)
		writeError(w.ResponseWriter, http.StatusInternalServerError, why)
		return
	case code == http.StatusNoContent:
		w.Header().Set(headerReply, "204")
	default:
		w.Header().Set(headerReply, "200")
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *putWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.ResponseWriter.Write(p)
}
