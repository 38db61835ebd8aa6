package main

import (
	"context"
	"errors"
	"io"

	"github.com/goverbs/goverbs/rdma"
)

// easy does the work with package rdma.
type easy struct {
	ctx    context.Context
	client *rdma.Conn
	l      *rdma.Listener
	region *rdma.Region
	token  rdma.Token
	buf    rdma.Buffer
	data   []byte
	served chan error
}

func newEasy(ctx context.Context, addr string, o *rdma.Options) (*easy, error) {
	e := &easy{ctx: ctx, data: make([]byte, largeSize), region: rdma.NewRegion(4096), served: make(chan error, 1)}
	var err error
	if e.l, err = rdma.Listen(addr+":0", &rdma.ListenOptions{Options: *o}); err != nil {
		return nil, err
	}
	go func() { e.served <- e.serve() }()
	if e.client, err = rdma.Dial(ctx, e.l.Addr().String(), o); err != nil {
		return nil, err
	}
	m, err := e.client.Recv(ctx)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	if err := e.token.UnmarshalBinary(m.Bytes()); err != nil {
		return nil, err
	}
	e.buf, err = e.client.Alloc(smallSize)
	return e, err
}

// serve sends the token, and then the start of each message back.
func (e *easy) serve() error {
	c, err := e.l.Accept(e.ctx)
	if err != nil {
		return err
	}
	s, err := c.Share(e.ctx, e.region, rdma.CanRead|rdma.CanWrite)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	token, err := s.Token().MarshalBinary()
	if err != nil {
		return errors.Join(err, c.Close())
	}
	if err := c.Send(e.ctx, token); err != nil {
		return errors.Join(err, c.Close())
	}
	for {
		m, err := c.Recv(e.ctx)
		if err == io.EOF {
			return c.Close()
		}
		if err != nil {
			return errors.Join(err, c.Close())
		}
		err = c.Send(e.ctx, m.Bytes()[:smallSize])
		m.Release()
		if err != nil {
			return errors.Join(err, c.Close())
		}
	}
}

func (e *easy) read() error  { return e.client.ReadBuffer(e.ctx, e.buf, e.token, 0) }
func (e *easy) write() error { return e.client.WriteBuffer(e.ctx, e.buf, e.token, 0) }
func (e *easy) small() error { return e.echo(smallSize) }
func (e *easy) large() error { return e.echo(largeSize) }

func (e *easy) echo(n int) error {
	if err := e.client.Send(e.ctx, e.data[:n]); err != nil {
		return err
	}
	m, err := e.client.Recv(e.ctx)
	if err != nil {
		return err
	}
	m.Release()
	return nil
}

func (e *easy) close() error {
	e.buf.Release()
	return errors.Join(e.client.Close(), <-e.served, e.region.Close(), e.l.Close())
}
