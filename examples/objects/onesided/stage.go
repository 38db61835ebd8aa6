package onesided

import (
	"io"
	"net/http"
)

// A stage is the ResponseWriter of a handler whose response the server moves by RDMA. It
// collects the body in a registered buffer. A body that does not fit is sent over TCP.
type stage struct {
	http.ResponseWriter
	mem    []byte
	n      int
	code   int
	passed bool
	// passing is called before the response is sent over TCP.
	passing func()
}

func (s *stage) WriteHeader(code int) {
	if code < http.StatusOK { // more headers follow
		s.ResponseWriter.WriteHeader(code)
	} else if s.code == 0 {
		s.code = code
	}
}

func (s *stage) Write(p []byte) (int, error) {
	if !s.passed && len(p) <= len(s.mem)-s.n {
		s.n += copy(s.mem[s.n:], p)
		return len(p), nil
	}
	if err := s.pass("the response is longer than the buffer"); err != nil {
		return 0, err
	}
	return s.ResponseWriter.Write(p)
}

// ReadFrom reads into the registered memory, so that files are not copied.
func (s *stage) ReadFrom(r io.Reader) (total int64, err error) {
	for !s.passed && s.n < len(s.mem) {
		n, err := r.Read(s.mem[s.n:])
		s.n += n
		total += int64(n)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
	n, err := io.Copy(struct{ io.Writer }{s}, r)
	return total + n, err
}

// pass sends the response over TCP: what is in the buffer, and what follows.
func (s *stage) pass(reason string) error {
	if s.passed {
		return nil
	}
	s.passed = true
	s.passing()
	s.Header().Set(headerRefused, reason)
	if s.code == 0 {
		s.code = http.StatusOK
	}
	s.ResponseWriter.WriteHeader(s.code)
	_, err := s.ResponseWriter.Write(s.mem[:s.n])
	return err
}
