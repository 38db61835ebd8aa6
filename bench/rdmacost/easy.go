package main

import (
	"context"
	"errors"
	"io"

	"github.com/goverbs/goverbs/bench/measure"
	"github.com/goverbs/goverbs/rdma"
)

const (
	smallSize = measure.SmallSize
	largeSize = measure.LargeSize
)

// easy does the work with package rdma.
type easy struct {
	ctx    context.Context
	l      *rdma.Listener
	region *rdma.Region
	data   []byte
	served chan error // of each connection
}

// An easyConn is the client's end of a connection.
type easyConn struct {
	*rdma.Conn
	of  *easy
	buf rdma.Buffer // of the first
}

func newEasy(ctx context.Context, addr string, o *rdma.ListenOptions) (*measure.Level, error) {
	e := &easy{ctx: ctx, data: make([]byte, largeSize), region: rdma.NewRegion(4096), served: make(chan error)}
	o.MaxConns, o.MaxConnsPerPeer = -1, -1
	var err error
	if e.l, err = rdma.Listen(addr+":0", o); err != nil {
		return nil, err
	}
	go e.accept()
	dial := func(addr string) (easyConn, error) {
		c, err := rdma.Dial(ctx, addr, &o.Options)
		return easyConn{Conn: c, of: e}, err
	}
	at := e.l.Addr().String()
	client, err := dial(at)
	if err != nil {
		return nil, err
	}
	token, err := client.token()
	if err != nil {
		return nil, err
	}
	client.buf, err = client.Alloc(smallSize)
	return &measure.Level{
		Conn:   client,
		Dial:   func() (measure.Conn, error) { return dial(at) },
		Read:   func() error { return client.ReadBuffer(ctx, client.buf, token, 0) },
		Write:  func() error { return client.WriteBuffer(ctx, client.buf, token, 0) },
		Close:  func() error { return errors.Join(e.region.Close(), e.l.Close()) },
		Addr:   at,
		DialAt: func(addr string) (measure.Conn, error) { return dial(addr) },
	}, err
}

func (c easyConn) token() (t rdma.Token, err error) {
	if err := c.Send(0); err != nil { // asks for the token
		return t, err
	}
	m, err := c.Conn.Recv(c.of.ctx)
	if err != nil {
		return t, err
	}
	defer m.Release()
	return t, t.UnmarshalBinary(m.Bytes())
}

func (c easyConn) Send(n int) error { return c.Conn.Send(c.of.ctx, c.of.data[:n]) }

func (c easyConn) Recv() error {
	m, err := c.Conn.Recv(c.of.ctx)
	if err == nil {
		m.Release()
	}
	return err
}

func (c easyConn) Close() error {
	c.buf.Release()
	return errors.Join(c.Conn.Close(), <-c.of.served)
}

func (e *easy) accept() {
	for {
		c, err := e.l.Accept(e.ctx)
		if err != nil {
			return
		}
		go func() { e.served <- errors.Join(e.serve(c), c.Close()) }()
	}
}

// serve sends the start of each message back, and the token for an empty one.
func (e *easy) serve(c *rdma.Conn) error {
	for {
		m, err := c.Recv(e.ctx)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case len(m.Bytes()) == 0:
			err = e.share(c)
		default:
			err = c.Send(e.ctx, m.Bytes()[:smallSize])
		}
		m.Release()
		if err != nil {
			return err
		}
	}
}

func (e *easy) share(c *rdma.Conn) error {
	s, err := c.Share(e.ctx, e.region, rdma.CanRead|rdma.CanWrite)
	if err != nil {
		return err
	}
	token, err := s.Token().MarshalBinary()
	if err != nil {
		return err
	}
	return c.Send(e.ctx, token)
}
