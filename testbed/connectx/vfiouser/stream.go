package vfiouser

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// stream reads messages from a socket.
type stream struct {
	conn *net.UnixConn
	buf  []byte // the current message
	oob  [256]byte
	fds  []int // came with the current message; -1 if taken
}

// next reads the next message. It returns io.EOF at the end of the stream
// between two messages.
//
// It reads exactly the missing bytes of the message, so that descriptors, which
// arrive with any of the bytes, belong to the message.
func (s *stream) next() (header, []byte, error) {
	s.grow(headerSize)
	if err := s.fill(s.buf[:headerSize], true); err != nil {
		return header{}, nil, err
	}
	h := parseHeader(s.buf)
	switch {
	case h.size < headerSize || h.size > maxMessage:
		return h, nil, malformed(h.command, "a message of %d bytes", h.size)
	case h.flags&flagType != 0:
		return h, nil, malformed(h.command, "a message of type %d: want a command", h.flags&flagType)
	}
	s.grow(int(h.size))
	body := s.buf[headerSize:h.size]
	return h, body, s.fill(body, false)
}

// grow grows the buffer to n bytes, and keeps the header.
func (s *stream) grow(n int) {
	if n > len(s.buf) {
		b := make([]byte, max(n, 4096))
		copy(b, s.buf)
		s.buf = b
	}
}

// fill reads bytes of the current message.
func (s *stream) fill(b []byte, start bool) error {
	for len(b) > 0 {
		n, oobn, flags, _, err := s.conn.ReadMsgUnix(b, s.oob[:])
		// ECONNRESET: the client did not read our replies
		if start && (errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)) {
			return io.EOF
		}
		if err != nil {
			return &Error{Kind: ErrLost, Detail: "reading a message", Err: err}
		}
		if err := s.collect(s.oob[:oobn], flags); err != nil {
			return err
		}
		b, start = b[n:], false
	}
	return nil
}

// collect stores the descriptors of a control message.
func (s *stream) collect(oob []byte, flags int) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return &Error{Kind: ErrMalformed, Detail: "control message", Err: err}
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // of another kind
		}
		s.fds = append(s.fds, fds...)
	}
	if len(s.fds) > maxFDs || flags&unix.MSG_CTRUNC != 0 {
		return malformed(0, "more than %d descriptors with a message", maxFDs)
	}
	return nil
}

// descriptor returns a descriptor of the message. The caller becomes its owner.
func (s *stream) descriptor(i int) int {
	fd := s.fds[i]
	s.fds[i] = -1
	return fd
}

// closeRest closes the descriptors that no caller owns.
func (s *stream) closeRest() error {
	var err error
	for _, fd := range s.fds {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	s.fds = s.fds[:0]
	return err
}
