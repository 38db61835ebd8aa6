package s3rdma

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/goverbs/goverbs/uverbs"
)

// A sender is the ResponseWriter of a GET: it moves the body to the client's memory through the transfer's buffer. What
// is not the data of an object, or is longer than the memory, is sent by HTTP.
type sender struct {
	http.ResponseWriter
	x      *transfer
	code   int   // 0: Next has sent no header
	length int64 // of the data; -1: unknown
	staged int   // bytes in the buffer
	byHTTP bool
	err    error // the response is incomplete
}

// serveGet serves a GET, whose response is written to the client's memory.
func (x *transfer) serveGet(w http.ResponseWriter) {
	s := &sender{ResponseWriter: w, x: x}
	defer x.end() // also if Next panics
	x.h.Next.ServeHTTP(s, x.r)
	s.finish()
}

func (s *sender) Unwrap() http.ResponseWriter { return unhijacked{s.ResponseWriter} }

// An unhijacked is what http.ResponseController finds of the server's ResponseWriter: its deadlines, but no way past
// the reply.
type unhijacked struct{ http.ResponseWriter }

func (u unhijacked) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// Hijack implements http.Hijacker.
func (unhijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// Flush implements http.Flusher. Nothing is sent before the data is in the client's memory.
func (s *sender) Flush() {
	if f, ok := s.ResponseWriter.(http.Flusher); ok && s.byHTTP {
		f.Flush()
	}
}

func (s *sender) WriteHeader(code int) {
	if code < http.StatusOK { // more headers follow
		s.ResponseWriter.WriteHeader(code)
		return
	}
	if s.code != 0 {
		return
	}
	s.code, s.length = code, -1
	if n, err := strconv.ParseInt(s.Header().Get("Content-Length"), 10, 64); err == nil {
		s.length = n
	}
	if reply := s.Header().Get(headerReply); reply != "" && reply != declined {
		s.pass()
		return
	}
	if err := s.check(); err != nil {
		s.decline(err)
	}
}

// check returns why the response does not travel by RDMA.
func (s *sender) check() error {
	if s.code != http.StatusOK && s.code != http.StatusPartialContent {
		return fmt.Errorf("%w: status %d", ErrDeclined, s.code)
	}
	if s.length > int64(s.x.token.Size) {
		return fmt.Errorf("%w: %d bytes, the client's memory has room for %d", ErrTooLarge, s.length, s.x.token.Size)
	}
	if s.length == 0 {
		return nil
	}
	return s.x.begin()
}

// pass passes a response by whose data another server behind Next has moved.
func (s *sender) pass() {
	s.byHTTP = true
	s.x.h.observe(s.x.r, 0, fmt.Errorf("%w: a server behind this one has moved the data", ErrDeclined))
	s.ResponseWriter.WriteHeader(s.code)
}

// decline sends the header by HTTP, and what is in the buffer.
func (s *sender) decline(why error) {
	s.byHTTP = true
	s.x.h.observe(s.x.r, 0, why)
	s.Header().Set(headerReply, declined)
	s.ResponseWriter.WriteHeader(s.code)
	if s.staged > 0 {
		_, s.err = s.ResponseWriter.Write(s.x.m.mr.Bytes()[:s.staged])
		s.staged = 0
	}
	s.x.end()
}

func (s *sender) Write(p []byte) (total int, err error) {
	s.WriteHeader(http.StatusOK)
	for len(p) > 0 {
		if s.err != nil {
			return total, s.err
		}
		if s.byHTTP {
			n, err := s.ResponseWriter.Write(p)
			return total + n, err
		}
		room, err := s.room()
		if err != nil {
			return total, err
		}
		n := copy(room, p)
		s.staged += n
		total += n
		p = p[n:]
	}
	return total, nil
}

// ReadFrom reads into the buffer, so that files are not copied.
func (s *sender) ReadFrom(r io.Reader) (total int64, err error) {
	s.WriteHeader(http.StatusOK)
	for !s.byHTTP && s.err == nil {
		room, err := s.room()
		if err != nil {
			return total, err
		}
		if len(room) == 0 { // it has declined
			break
		}
		n, err := r.Read(room)
		s.staged += n
		total += int64(n)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
	if s.err != nil {
		return total, s.err
	}
	n, err := io.Copy(s.ResponseWriter, r)
	return total + n, err
}

// room returns the free part of the buffer, which is empty only if the response now travels by HTTP.
func (s *sender) room() ([]byte, error) {
	if s.x.m == nil { // Next writes more than its Content-Length of 0
		return nil, s.fail(http.ErrContentLength)
	}
	b := s.x.m.mr.Bytes()
	if s.staged < len(b) {
		return b[s.staged:], nil
	}
	if s.length < 0 && s.x.done == 0 {
		s.decline(fmt.Errorf("%w: the response has no Content-Length, and more than Handler.BufferSize bytes", ErrTooLarge))
		return nil, s.err
	}
	if err := s.send(); err != nil {
		return nil, err
	}
	if s.byHTTP {
		return nil, nil
	}
	return b, nil
}

// send writes what is in the buffer to the client's memory. If the first part fails, the response travels by HTTP.
func (s *sender) send() error {
	if s.staged == 0 {
		return nil
	}
	err := s.x.move(uverbs.OpWrite, s.staged)
	switch {
	case err == nil:
		s.staged = 0
		return nil
	case s.x.done == 0:
		s.decline(err)
		return s.err
	}
	return s.fail(err)
}

// fail remembers that a part of the data is lost.
func (s *sender) fail(err error) error {
	s.err = err
	return err
}

// finish sends the rest, and the header of a response whose data has moved.
func (s *sender) finish() {
	s.WriteHeader(http.StatusOK) // unless Next has
	if s.byHTTP {
		return
	}
	if s.err == nil {
		s.send()
	}
	if s.byHTTP {
		return
	}
	moved := int64(s.x.done)
	if s.err == nil && s.length >= 0 && s.length != moved {
		s.err = fmt.Errorf("%w: the server has written %d bytes of %d", ErrDeclined, moved, s.length)
	}
	s.x.h.observe(s.x.r, moved, s.err)
	if s.err != nil {
		s.Header().Set(headerReply, declined)
		writeError(s.ResponseWriter, http.StatusInternalServerError, s.err)
		return
	}
	s.Header().Set("Content-Length", "0")
	s.Header().Set(headerReply, strconv.Itoa(s.code))
	s.Header().Set(headerBytes, strconv.FormatInt(moved, 10))
	s.ResponseWriter.WriteHeader(s.code)
}
