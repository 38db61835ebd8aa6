package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// cmLines connects QPs with package cm. Hellos are private data.
type cmLines struct {
	p *peer
	l *cm.Listener
}

func (c *cmLines) listen(addr string) (err error) {
	c.l, err = cm.Listen(addr, &cm.ListenOptions{ManualAccept: true})
	return err
}

func (c *cmLines) close() error {
	if c.l == nil {
		return nil
	}
	return c.l.Close()
}

func (c *cmLines) next(ctx context.Context) (line, error) {
	cq, err := c.p.newCQ()
	if err != nil {
		return nil, err
	}
	l := &cmLine{q: queues{cq: cq}}
	if l.conn, err = c.connect(ctx, cq); err == nil {
		l.q.qp = l.conn.QP()
		err = l.remote.decode(l.conn.PrivateData())
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (c *cmLines) connect(ctx context.Context, cq *uverbs.CQ) (*cm.Conn, error) {
	if c.l == nil {
		ctx, cancel := context.WithTimeout(ctx, connectLimit)
		defer cancel()
		return cm.Dial(ctx, c.p.options.call, c.options(cq))
	}
	r, err := c.l.Request(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	return r.Accept(ctx, c.options(cq))
}

func (c *cmLines) options(cq *uverbs.CQ) *cm.Options {
	// On rxe, 7 retries mean infinitely many.
	param := &cm.ConnParam{ResponderResources: cm.MaxRespRes, InitiatorDepth: cm.MaxInitDepth, RetryCount: 6,
		RNRRetryCount: 7}
	return &cm.Options{Param: param, PD: c.p.pd, QP: qpConfig(cq), PrivateData: c.p.hello().encode(),
		Setup: func(conn *cm.Conn) error { return c.p.receiveAll(conn.QP()) }}
}

func (h hello) encode() []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, h) // writing to a Buffer cannot fail
	return b.Bytes()
}

func (h *hello) decode(b []byte) error {
	return binary.Read(bytes.NewReader(b), binary.LittleEndian, h)
}

type cmLine struct {
	conn   *cm.Conn
	q      queues
	remote hello
}

func (l *cmLine) remoteHello() hello            { return l.remote }
func (l *cmLine) queues() *queues               { return &l.q }
func (l *cmLine) disconnected() <-chan struct{} { return l.conn.Disconnected() }

func (l *cmLine) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	return l.conn.Disconnect(ctx)
}

func (l *cmLine) close() error {
	var err error
	if l.conn != nil {
		err = l.conn.Close()
	}
	return errors.Join(err, l.q.cq.Close())
}
