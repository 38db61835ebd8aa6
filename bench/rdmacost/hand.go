package main

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/goverbs/goverbs/bench/measure"
	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

const slots = 4

// A side is one end of a connection, with package cm, without flow control: each side knows what the other does.
type side struct {
	ctx    context.Context
	conn   *cm.Conn
	recvs  *uverbs.MR // slots for receives of size bytes
	sends  *uverbs.MR // of most bytes
	size   int
	most   int
	sent   int
	data   []byte     // of a client
	served chan error // of a client, the result of the other side
}

// hand listens for connections whose client sends messages of up to size bytes.
type hand struct {
	ctx    context.Context
	l      *cm.Listener
	size   int
	sides  sync.Map // by connection
	shared *uverbs.MR
	served chan error
}

func newHand(ctx context.Context, addr string) (*measure.Level, error) {
	large, small := &hand{ctx: ctx, size: largeSize}, &hand{ctx: ctx, size: smallSize}
	if err := errors.Join(large.listen(addr), small.listen(addr)); err != nil {
		return nil, err
	}
	client, err := large.dial(large.l.Addr().String())
	if err != nil {
		return nil, err
	}
	b := client.conn.PrivateData()
	at, rkey := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])
	data := client.sends.SGE(0, smallSize)
	l := &measure.Level{
		Conn:   client,
		Read:   func() error { return client.wait(client.conn.PostRead(0, uverbs.Signaled, at, rkey, data)) },
		Write:  func() error { return client.wait(client.conn.PostWrite(0, uverbs.Signaled, at, rkey, data)) },
		Close:  func() error { return errors.Join(large.shared.Close(), large.l.Close(), small.l.Close()) },
		Addr:   small.l.Addr().String(),
		DialAt: func(addr string) (measure.Conn, error) { return small.dial(addr) },
	}
	l.Dial = func() (measure.Conn, error) { return l.DialAt(l.Addr) }
	return l, nil
}

func (h *hand) listen(addr string) (err error) {
	h.served = make(chan error)
	o := &cm.ListenOptions{MaxConns: -1, MaxConnsPerPeer: -1}
	o.QP.MaxInline = smallSize
	o.Setup = func(c *cm.Conn) error {
		s := &side{ctx: h.ctx, size: h.size, most: smallSize}
		h.sides.Store(c, s)
		return s.setUp(c)
	}
	if h.size == largeSize {
		o.Prepare = h.share
	}
	if h.l, err = cm.Listen(addr+":0", o); err == nil {
		go h.accept()
	}
	return err
}

func (h *hand) dial(addr string) (*side, error) {
	s := &side{ctx: h.ctx, size: smallSize, most: h.size, data: make([]byte, h.size), served: h.served}
	_, err := cm.Dial(h.ctx, addr, &cm.Options{QP: uverbs.QPConfig{MaxInline: smallSize}, Setup: s.setUp})
	return s, err
}

// share tells the client where it may read and write.
func (h *hand) share(c *cm.Conn, _ *uverbs.QPConfig) (err error) {
	if h.shared, err = c.PD().Alloc(4096, uverbs.LocalWrite|uverbs.RemoteRead|uverbs.RemoteWrite); err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint64(nil, h.shared.Addr())
	c.SetPrivateData(binary.LittleEndian.AppendUint32(b, h.shared.RKey()))
	return nil
}

func (h *hand) accept() {
	for {
		c, err := h.l.Accept(h.ctx)
		if err != nil {
			return
		}
		s, _ := h.sides.LoadAndDelete(c)
		go func() { h.served <- errors.Join(s.(*side).serve(), s.(*side).close()) }()
	}
}

func (s *side) setUp(c *cm.Conn) (err error) {
	s.conn = c
	if s.recvs, err = c.AllocMsgs(slots * s.size); err != nil {
		return err
	}
	if s.sends, err = c.AllocMsgs(s.most); err != nil {
		return err
	}
	for i := range slots {
		if err := s.post(uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) post(i uint64) error { return s.conn.PostRecv(i, s.recvs.SGE(int(i)*s.size, s.size)) }

// wait waits for the completion of a send that has been posted.
func (s *side) wait(err error) error {
	if err == nil {
		_, err = s.conn.SendComp(s.ctx)
	}
	return err
}

// send sends b, and takes the completions of earlier sends.
func (s *side) send(b []byte) error {
	var flags uverbs.SendFlags
	if s.sent++; s.sent%8 == 0 || len(b) > smallSize {
		flags = uverbs.Signaled
	}
	var err error
	if len(b) <= smallSize {
		err = s.conn.PostSendInline(0, flags, b)
	} else {
		copy(s.sends.Bytes(), b)
		err = s.conn.PostSend(0, flags, s.sends.SGE(0, len(b)))
	}
	if flags == 0 {
		return err
	}
	return s.wait(err)
}

// recv receives a message and returns its slot.
func (s *side) recv() (uint64, []byte, error) {
	wc, err := s.conn.RecvComp(s.ctx)
	if err != nil {
		return 0, nil, err
	}
	return wc.WRID, s.recvs.Bytes()[int(wc.WRID)*s.size:][:wc.ByteLen], nil
}

// serve sends the start of each message back.
func (s *side) serve() error {
	for {
		i, b, err := s.recv()
		if errors.Is(err, cm.ErrDisconnected) {
			return nil
		}
		if err == nil {
			err = s.send(b[:smallSize])
		}
		if err == nil {
			err = s.post(i)
		}
		if err != nil {
			return err
		}
	}
}

func (s *side) Send(n int) error { return s.send(s.data[:n]) }

func (s *side) Recv() error {
	i, _, err := s.recv()
	if err != nil {
		return err
	}
	return s.post(i)
}

func (s *side) close() error { return errors.Join(s.conn.Close(), s.recvs.Close(), s.sends.Close()) }

// Close waits until the other side has closed, too.
func (s *side) Close() error { return errors.Join(s.close(), <-s.served) }
