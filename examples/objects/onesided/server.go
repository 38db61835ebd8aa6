package onesided

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	headerToken    = "Rdma-Token"
	headerLength   = "Rdma-Length"
	headerCRC      = "Rdma-Crc32c"
	headerEndpoint = "Rdma-Endpoint"
	headerRefused  = "Rdma-Refused"
)

// transferTime limits how long a client's memory may take.
const transferTime = 30 * time.Second

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli)) }

var errNoDevice = errors.New("onesided: the server has no RDMA device")

// A Handler moves the bodies of Next's requests and responses by RDMA, if the client offers it.
type Handler struct {
	Next  http.Handler
	Pool  *Pool // nil: bodies travel over TCP
	links links
}

// Close closes the links to clients. Call it after http.Server.Shutdown, and before Pool.Close.
func (h *Handler) Close() error { return h.links.close() }

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text := r.Header.Get(headerToken)
	if text == "" {
		h.Next.ServeHTTP(w, r)
		return
	}
	if err := h.serve(w, r, text); err != nil {
		w.Header().Set(headerRefused, err.Error())
		if writes(r.Method) { // the request has no body: the client repeats it with one
			w.WriteHeader(http.StatusPreconditionRequired)
			return
		}
		h.Next.ServeHTTP(w, r)
	}
}

// writes reports whether the body belongs to the request.
func writes(method string) bool { return method == http.MethodPut || method == http.MethodPost }

// serve returns an error if it has not responded.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, text string) error {
	if h.Pool == nil {
		return errNoDevice
	}
	t, err := ParseToken(text)
	if err != nil {
		return err
	}
	if writes(r.Method) && t.Length > h.Pool.size {
		return fmt.Errorf("onesided: %d bytes are longer than the server's buffers", t.Length)
	}
	b, err := h.Pool.get(r.Context())
	if err != nil {
		return err
	}
	defer func() { b.release() }()
	l, reply, err := h.links.take(h.Pool, t)
	if err != nil {
		return err
	}
	if reply != "" {
		w.Header().Set(headerEndpoint, reply)
		w.WriteHeader(http.StatusPreconditionRequired)
		return nil
	}
	x := &exchange{h: h, b: b, l: l, t: t}
	defer x.end()
	if writes(r.Method) {
		return x.receive(w, r)
	}
	x.send(w, r)
	return nil
}

// An exchange is a request in progress at the server.
type exchange struct {
	h *Handler
	b *buffer
	l *cached // nil after the transfer
	t Token
}

// end returns the link, before the client can use it for its next request.
func (x *exchange) end() {
	if x.l != nil {
		x.h.links.put(x.l)
		x.l = nil
	}
}

// receive reads the request's body from the client's memory, and runs the handler.
func (x *exchange) receive(w http.ResponseWriter, r *http.Request) error {
	if err := x.transfer(r.Context(), uverbs.OpRead, x.t.Length); err != nil {
		return err
	}
	body := x.b.mem[:x.t.Length]
	if want := r.Header.Get(headerCRC); checksum(body) != want {
		return fmt.Errorf("onesided: the CRC is %s, the client sent %q", checksum(body), want)
	}
	w.Header().Set(headerLength, strconv.Itoa(len(body)))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	x.h.Next.ServeHTTP(w, r)
	return nil
}

// send runs the handler, and writes the response's body to the client's memory.
func (x *exchange) send(w http.ResponseWriter, r *http.Request) {
	s := &stage{ResponseWriter: w, mem: x.b.mem[:min(len(x.b.mem), x.t.Length)], passing: x.end}
	x.h.Next.ServeHTTP(s, r)
	if s.passed {
		return
	}
	if err := x.transfer(r.Context(), uverbs.OpWrite, s.n); err != nil {
		s.pass(err.Error()) // an error ends the connection, which the client notices
		return
	}
	w.Header().Del("Content-Length")
	w.Header().Set(headerLength, strconv.Itoa(s.n))
	w.Header().Set(headerCRC, checksum(s.mem[:s.n]))
	if s.code != 0 {
		w.WriteHeader(s.code)
	}
}

// transfer moves n bytes. When it returns, the device uses neither the buffer nor the client's
// memory.
func (x *exchange) transfer(ctx context.Context, op uverbs.Opcode, n int) error {
	if n == 0 {
		x.end()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	err := x.l.transfer(ctx, op, x.b.mr.SGE(0, n), x.t)
	if err == nil {
		x.end()
		return nil
	}
	if cerr := x.h.links.drop(x.l); cerr != nil {
		x.b.replace()
		err = errors.Join(err, cerr)
	}
	x.l = nil
	return err
}
