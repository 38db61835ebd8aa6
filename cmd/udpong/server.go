package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/goverbs/goverbs/cmd/internal/program"
)

// serve counts and echoes datagrams until ctx ends.
func serve(ctx context.Context, opt *options, out io.Writer) error {
	c, err := opt.listen(ctx)
	if err != nil {
		return err
	}
	return serveOn(ctx, c, out)
}

// serveOn serves at a socket, and closes it.
func serveOn(ctx context.Context, c packetConn, out io.Writer) (err error) {
	defer closeWith(c, &err)
	defer endWith(ctx, c)()
	s := &server{conn: c.(serverConn), out: out}
	if err := cause(ctx, s.run()); !errors.Is(err, program.ErrInterrupted) {
		return err
	}
	return nil
}

// A serverConn is the socket of a server.
type serverConn interface {
	ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
}

// A server counts the datagrams of up to 256 clients.
type server struct {
	conn    serverConn
	out     io.Writer
	clients [256]uint32 // what each has sent
	next    byte        // number of the next client
}

func (s *server) run() error {
	buf := make([]byte, maxMessage)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return err
		}
		if n < headerLen {
			continue // not one of a client
		}
		m := message(buf[:n])
		reply, err := s.handle(m, from)
		if err != nil {
			return err
		}
		if reply {
			if _, err := s.conn.WriteToUDPAddrPort(m, from); err != nil {
				return err
			}
		}
	}
}

// handle changes a message into its reply, and reports whether it has one.
func (s *server) handle(m message, from netip.AddrPort) (bool, error) {
	switch m.op() {
	case opLogin:
		if _, err := fmt.Fprintf(s.out, "client login from %s\n", from.Addr().Unmap().WithZone("")); err != nil {
			return false, err
		}
		m.setClient(s.next)
		s.next++
		s.clients[m.client()] = 0
	case opStart:
		s.clients[m.client()] = 0
	case opEcho:
		s.clients[m.client()]++
	case opEnd:
		m.setCount(s.clients[m.client()])
	default:
		s.clients[m.client()]++
		return false, nil
	}
	return true, nil
}
