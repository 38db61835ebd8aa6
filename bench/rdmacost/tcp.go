package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/goverbs/goverbs/bench/measure"
	"github.com/goverbs/goverbs/rsocket"
)

// overStream does the work on connections of package net. A message begins with its length.
type overStream struct {
	net.Listener
	data   []byte
	served chan error // of each connection
}

// A streamConn is the client's end of a connection.
type streamConn struct {
	net.Conn
	of *overStream
}

func newTCP(addr string) (*measure.Level, error) {
	l, err := net.Listen("tcp", addr+":0")
	if err != nil {
		return nil, err
	}
	return newStream(l, func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) })
}

func newRsocket(addr string) (*measure.Level, error) {
	config := rsocket.Config{RecvBuffer: *buffer, SendBuffer: *buffer, KeepAlive: *keepAlive}
	lc := rsocket.ListenConfig{Config: config, MaxConns: -1, MaxConnsPerPeer: -1}
	l, err := lc.Listen(context.Background(), "tcp", addr+":0")
	if err != nil {
		return nil, err
	}
	d := rsocket.Dialer{Config: config}
	return newStream(l, func(addr string) (net.Conn, error) { return d.DialContext(context.Background(), "tcp", addr) })
}

func newStream(l net.Listener, connect func(addr string) (net.Conn, error)) (*measure.Level, error) {
	t := &overStream{l, make([]byte, largeSize), make(chan error)}
	go t.accept()
	at := l.Addr().String()
	dial := func(addr string) (measure.Conn, error) {
		c, err := connect(addr)
		return streamConn{c, t}, err
	}
	client, err := dial(at)
	return &measure.Level{Conn: client, Dial: func() (measure.Conn, error) { return dial(at) }, Close: l.Close, Addr: at,
		DialAt: dial}, err
}

func (t *overStream) accept() {
	for {
		c, err := t.Accept()
		if err != nil {
			return
		}
		go func() { t.served <- errors.Join(serveStream(c), c.Close()) }()
	}
}

// serveStream sends the start of each message back.
func serveStream(c net.Conn) error {
	b := make([]byte, smallSize)
	for {
		_, err := io.ReadFull(c, b[:smallSize])
		if err == io.EOF {
			return nil
		}
		if n := int(binary.LittleEndian.Uint32(b)); err == nil && n > smallSize {
			if n > len(b) {
				b = append(b, make([]byte, n-len(b))...)
			}
			_, err = io.ReadFull(c, b[smallSize:n])
		}
		if err == nil {
			_, err = c.Write(b[:smallSize])
		}
		if err != nil {
			return err
		}
	}
}

func (c streamConn) Send(n int) error {
	binary.LittleEndian.PutUint32(c.of.data, uint32(n))
	_, err := c.Write(c.of.data[:n])
	return err
}

func (c streamConn) Recv() error {
	_, err := io.ReadFull(c, c.of.data[:smallSize])
	return err
}

func (c streamConn) Close() error {
	if t, ok := c.Conn.(*tls.Conn); ok {
		err := t.CloseWrite()
		if err == nil { // the other side closes after the end of TLS, and sends its own
			_, err = io.Copy(io.Discard, t)
		}
		return errors.Join(err, <-c.of.served, t.Close())
	}
	return errors.Join(c.Conn.Close(), <-c.of.served)
}
