package fabric

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Sockets of QEMU's network backends:
//   - `-netdev stream`: each frame follows its length, four bytes, big-endian;
//   - `-netdev dgram`: each frame is a datagram.
//
// See QEMU's documentation of these options (net/stream.c and net/dgram.c).

// sockets are a switch's sockets and their goroutines.
type sockets struct {
	open    map[io.Closer]bool
	closed  bool
	running sync.WaitGroup
}

var errSwitchClosed = errorf(ErrClosed, "the switch's Close was called")

// serve adds a socket and starts its goroutines. It is called in a step.
func (s *sockets) serve(c io.Closer, run ...func()) error {
	if s.closed {
		return errSwitchClosed
	}
	if s.open == nil {
		s.open = make(map[io.Closer]bool)
	}
	s.open[c] = true
	for _, f := range run {
		s.running.Go(f)
	}
	return nil
}

// close closes a socket, once. It is called in a step.
func (s *sockets) close(c io.Closer) error {
	if !s.open[c] {
		return nil
	}
	delete(s.open, c)
	return c.Close()
}

// Close closes the switch's sockets and listeners, and waits for their
// goroutines. It must not be called in a step of the loop.
func (s *Switch) Close() error {
	var err error
	s.loop.Run(func() {
		s.sockets.closed = true
		for c := range s.sockets.open {
			err = errors.Join(err, s.sockets.close(c))
		}
	})
	s.sockets.running.Wait()
	return err
}

// A SocketPort is a port whose device is at the other end of a socket. When the
// socket is closed, the port is detached.
type SocketPort struct {
	*Port
	conn wire
	out  chan frame
	done chan struct{}
	err  error
}

// A wire reads and writes frames. The caller owns the frame returned by Read.
// An error of kind ErrParam means that the data was not a frame; the next Read
// may succeed.
type wire interface {
	read() (frame, error)
	write(f frame) error
	io.Closer
}

// queuedFrames is the maximum number of frames queued for a socket.
const queuedFrames = 1024

// Stream creates a port for a stream socket, as of QEMU's -netdev stream. It
// must not be called in a step of the loop. The switch becomes the owner of the
// socket, even if Stream fails.
func (s *Switch) Stream(name string, conn net.Conn) (*SocketPort, error) {
	return s.socket(name, &stream{Conn: conn, r: bufio.NewReaderSize(conn, 1<<16)})
}

// Datagram creates a port for a datagram socket, as of QEMU's -netdev dgram. It
// must not be called in a step of the loop. A socket that is not connected
// sends to the last sender. The switch becomes the owner of the socket, even if
// Datagram fails.
func (s *Switch) Datagram(name string, conn net.PacketConn) (*SocketPort, error) {
	return s.socket(name, newDatagrams(conn))
}

func (s *Switch) socket(name string, conn wire) (*SocketPort, error) {
	p := &SocketPort{conn: conn, out: make(chan frame, queuedFrames), done: make(chan struct{})}
	var err error
	s.loop.Run(func() {
		if p.Port, err = s.Attach(name, p.queue, nil); err != nil {
			return
		}
		if err = s.sockets.serve(conn, p.readAll, p.writeAll); err != nil {
			p.Detach()
		}
	})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return p, nil
}

// queue queues a frame for the writer. It is called in a step.
func (p *SocketPort) queue(b []byte) {
	select {
	case p.out <- b:
	default:
		p.counters.Overflow++
	}
}

// Done returns a channel that is closed when the socket is closed and the port
// detached.
func (p *SocketPort) Done() <-chan struct{} { return p.done }

// Err returns, after Done is closed, the error that ended the socket. It is nil
// if either side closed it normally.
func (p *SocketPort) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Close closes the socket and detaches the port. It must not be called in a
// step of the loop.
func (p *SocketPort) Close() error {
	var err error
	p.sw.loop.Run(func() { err = p.sw.sockets.close(p.conn) })
	<-p.done
	return err
}

// readAll forwards frames from the socket until it is closed.
func (p *SocketPort) readAll() {
	for {
		f, err := p.conn.read()
		if errors.Is(err, ErrParam) {
			p.sw.loop.Run(func() { p.counters.Malformed++ })
			continue
		}
		if err != nil {
			p.end(err)
			return
		}
		p.sw.loop.Run(func() { p.Frame(f) })
	}
}

func (p *SocketPort) end(err error) {
	if err != io.EOF && !errors.Is(err, net.ErrClosed) {
		p.err = err
	}
	p.sw.loop.Run(func() {
		if err := p.sw.sockets.close(p.conn); p.err == nil {
			p.err = err
		}
		p.Detach()
	})
	close(p.done)
}

// writeAll writes queued frames until the socket is closed.
func (p *SocketPort) writeAll() {
	for {
		select {
		case <-p.done:
			return
		case f := <-p.out:
			if err := p.conn.write(f); err != nil {
				p.sw.loop.Run(func() { p.counters.LinkDown++ }) // the reader gets the error
			}
		}
	}
}

// stream implements wire for -netdev stream.
type stream struct {
	net.Conn
	r   *bufio.Reader
	buf []byte
}

func (s *stream) read() (frame, error) {
	var length [4]byte
	if _, err := io.ReadFull(s.r, length[:]); err != nil {
		return nil, broken(err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > MaxFrame {
		return nil, errorf(ErrProtocol, "a frame of %d bytes, the maximum is %d: is the other end a -netdev stream?", n,
			MaxFrame)
	}
	f := make(frame, n)
	if _, err := io.ReadFull(s.r, f); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, broken(err)
	}
	return f, nil
}

// broken returns the error for a stream that ends within a frame.
func broken(err error) error {
	if err == io.ErrUnexpectedEOF {
		return errorf(ErrProtocol, "the stream ended within a frame")
	}
	return ended(err)
}

func (s *stream) write(f frame) error {
	s.buf = binary.BigEndian.AppendUint32(s.buf[:0], uint32(len(f)))
	s.buf = append(s.buf, f...)
	_, err := s.Conn.Write(s.buf)
	return err
}

// Listen creates a port for each connection to l, as of -netdev stream: name#1,
// name#2 and so on. It must not be called in a step of the loop. The switch
// becomes the owner of l. If failed is not nil, it is called from a goroutine
// if the listener fails.
func (s *Switch) Listen(name string, l net.Listener, failed func(error)) error {
	accept := func() {
		for i := 1; ; i++ {
			conn, err := l.Accept()
			if err == nil {
				_, err = s.Stream(fmt.Sprintf("%s#%d", name, i), conn)
			}
			if err == nil {
				continue
			}
			if !errors.Is(err, net.ErrClosed) && !errors.Is(err, ErrClosed) && failed != nil {
				failed(err)
			}
			return
		}
	}
	var err error
	s.loop.Run(func() { err = s.sockets.serve(l, accept) })
	if err != nil {
		err = errors.Join(err, l.Close())
	}
	return err
}
