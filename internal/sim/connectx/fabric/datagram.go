package fabric

import (
	"errors"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// datagrams implements wire for -netdev dgram.
type datagrams struct {
	net.PacketConn
	connected net.Conn // nil if not connected
	peer      atomic.Pointer[net.Addr]
	buf       []byte
}

func newDatagrams(conn net.PacketConn) *datagrams {
	d := &datagrams{PacketConn: conn, buf: make([]byte, MaxFrame+1)}
	if c, ok := conn.(net.Conn); ok && c.RemoteAddr() != nil {
		d.connected = c
	}
	return d
}

func (d *datagrams) read() (frame, error) {
	n, from, err := d.ReadFrom(d.buf)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, errorf(ErrParam, "no peer received the last frame") // it may come back
	}
	if err != nil {
		return nil, ended(err)
	}
	if d.connected == nil && from != nil {
		d.peer.Store(&from)
	}
	if n > MaxFrame {
		return nil, errorf(ErrParam, "a datagram of more than %d bytes", MaxFrame)
	}
	return append(frame(nil), d.buf[:n]...), nil
}

var errNoPeer = errors.New("no peer has sent a datagram yet")

func (d *datagrams) write(f frame) error {
	if d.connected != nil {
		_, err := d.connected.Write(f)
		return err
	}
	peer := d.peer.Load()
	if peer == nil {
		return errNoPeer
	}
	_, err := d.WriteTo(f, *peer)
	return err
}

// ended returns io.EOF for errors that mean that the peer has closed.
func ended(err error) error {
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return net.ErrClosed
	}
	return err
}
