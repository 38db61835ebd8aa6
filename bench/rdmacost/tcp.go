package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/goverbs/goverbs/bench/measure"
)

// overTCP does the work with package net. A message begins with its length.
type overTCP struct {
	net.Listener
	data   []byte
	served chan error // of each connection
}

// A tcpConn is the client's end of a connection.
type tcpConn struct {
	net.Conn
	of *overTCP
}

func newTCP(addr string) (*measure.Level, error) {
	l, err := net.Listen("tcp", addr+":0")
	if err != nil {
		return nil, err
	}
	t := &overTCP{l, make([]byte, largeSize), make(chan error)}
	go t.accept()
	dial := func() (measure.Conn, error) {
		c, err := net.Dial("tcp", l.Addr().String())
		return tcpConn{c, t}, err
	}
	client, err := dial()
	return &measure.Level{Conn: client, Dial: dial, Close: l.Close}, err
}

func (t *overTCP) accept() {
	for {
		c, err := t.Accept()
		if err != nil {
			return
		}
		go func() { t.served <- errors.Join(serveTCP(c), c.Close()) }()
	}
}

// serveTCP sends the start of each message back.
func serveTCP(c net.Conn) error {
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

func (c tcpConn) Send(n int) error {
	binary.LittleEndian.PutUint32(c.of.data, uint32(n))
	_, err := c.Write(c.of.data[:n])
	return err
}

func (c tcpConn) Recv() error {
	_, err := io.ReadFull(c, c.of.data[:smallSize])
	return err
}

func (c tcpConn) Close() error { return errors.Join(c.Conn.Close(), <-c.of.served) }
