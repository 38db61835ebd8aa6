package main

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/goverbs/goverbs/bench/measure"
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
	return newStream(l, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) })
}

func newStream(l net.Listener, connect func() (net.Conn, error)) (*measure.Level, error) {
	t := &overStream{l, make([]byte, largeSize), make(chan error)}
	go t.accept()
	dial := func() (measure.Conn, error) {
		c, err := connect()
		return streamConn{c, t}, err
	}
	client, err := dial()
	return &measure.Level{Conn: client, Dial: dial, Close: l.Close}, err
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
