package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// serve serves one client after the other, until ctx ends.
func serve(ctx context.Context, port string, out io.Writer) error {
	l, err := rsocket.Listen("tcp", net.JoinHostPort("", port))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		fmt.Fprint(out, "waiting for connection...")
		conn, err := l.Accept()
		if ctx.Err() != nil {
			var closed error // of the connection, if one has come
			if err == nil {
				closed = conn.Close()
			}
			return errors.Join(context.Cause(ctx), closed, l.Close())
		}
		if err != nil {
			return errors.Join(err, l.Close())
		}
		fmt.Fprintf(out, "client: %v\n", conn.RemoteAddr().(*net.TCPAddr).IP)
		s := &session{conn: conn, out: out}
		end := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
		err = s.run()
		end()
		if err = errors.Join(err, s.close(), conn.Close()); err != nil && ctx.Err() == nil {
			fmt.Fprintf(out, "...%v\n", err) // the next client may do better
		}
	}
}

// A session is the server's part of a connection.
type session struct {
	conn net.Conn
	out  io.Writer
	file *os.File // nil if no file is open
}

func (s *session) close() (err error) {
	if s.file != nil {
		err = s.file.Close()
		s.file = nil
	}
	return err
}

// run serves a client until it disconnects.
func (s *session) run() error {
	for {
		h, err := readHeader(s.conn)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch h.command {
		case cmdOpen:
			err = s.open(h)
		case cmdWrite:
			err = s.write(h)
		case cmdClose:
			fmt.Fprint(s.out, "closing...")
			err = s.close()
		default:
			err = fmt.Errorf("unknown command %#x: %w", h.command, syscall.EINVAL)
		}
		h.command, h.length, h.data = h.command|reply, headerLen, uint32(errno(err))
		if _, replyErr := s.conn.Write(h.bytes()); err != nil || replyErr != nil {
			return errors.Join(err, replyErr)
		}
		if h.command == cmdClose|reply {
			fmt.Fprint(s.out, "done\n")
		}
	}
}

// errno returns what the client is told.
func errno(err error) syscall.Errno {
	var n syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &n):
		return n
	}
	return syscall.EIO
}

// open opens the file that a client asks for.
func (s *session) open(h header) error {
	fmt.Fprint(s.out, "opening: ")
	n := int(h.length) - headerLen
	switch {
	case s.file != nil:
		return fmt.Errorf("a file is open already: %w", syscall.EBUSY)
	case n == 0 || n > maxPath:
		return fmt.Errorf("a path of %d bytes, not of 1 to %d: %w", n, maxPath, syscall.ENAMETOOLONG)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(s.conn, b); err != nil {
		return err
	}
	path, _, _ := bytes.Cut(b, []byte{0})
	fmt.Fprintf(s.out, "%s, ", path)
	f, err := os.OpenFile(string(path), os.O_RDWR|os.O_CREATE|os.O_TRUNC, os.FileMode(h.data).Perm())
	if err != nil {
		return err
	}
	s.file = f
	return nil
}

// write receives the contents of the file.
func (s *session) write(h header) error {
	fmt.Fprint(s.out, "transferring")
	switch {
	case s.file == nil:
		return fmt.Errorf("no file is open: %w", syscall.EINVAL)
	case h.length != headerLen+sizeLen:
		return fmt.Errorf("a message of %d bytes, not %d: %w", h.length, headerLen+sizeLen, syscall.EINVAL)
	}
	var b [sizeLen]byte
	if _, err := io.ReadFull(s.conn, b[:]); err != nil {
		return err
	}
	size := binary.NativeEndian.Uint64(b[:])
	if size > math.MaxInt64 {
		return fmt.Errorf("a file of %d bytes, more than %d: %w", size, uint64(math.MaxInt64), syscall.EFBIG)
	}
	fmt.Fprintf(s.out, "...%d bytes...", size)
	_, err := io.CopyN(s.file, s.conn, int64(size))
	if err == io.EOF {
		return fmt.Errorf("the client has disconnected: %w", io.ErrUnexpectedEOF)
	}
	return err
}
