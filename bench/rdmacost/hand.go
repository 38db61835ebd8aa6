package main

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// hand does the work with package cm, without flow control: each side knows what the other does.
type hand struct {
	ctx            context.Context
	l              *cm.Listener
	client, server *side
	shared         *uverbs.MR
	addr           uint64
	rkey           uint32
	data           []byte
	served         chan error
}

const slots = 4

// A side is one end of the connection.
type side struct {
	conn  *cm.Conn
	recvs *uverbs.MR // slots for receives of size bytes
	sends *uverbs.MR
	size  int
	sent  int
}

func newHand(ctx context.Context, addr string) (*hand, error) {
	h := &hand{ctx: ctx, data: make([]byte, largeSize), served: make(chan error, 1), server: &side{size: largeSize},
		client: &side{size: smallSize}}
	var err error
	if h.l, err = cm.Listen(addr+":0", &cm.ListenOptions{Options: cm.Options{
		QP: uverbs.QPConfig{MaxInline: smallSize}, Prepare: h.share, Setup: h.server.setUp}}); err != nil {
		return nil, err
	}
	go func() { h.served <- h.serve() }()
	h.client.conn, err = cm.Dial(ctx, h.l.Addr().String(), &cm.Options{
		QP: uverbs.QPConfig{MaxInline: smallSize}, Setup: h.client.setUp})
	if err != nil {
		return nil, err
	}
	b := h.client.conn.PrivateData()
	h.addr, h.rkey = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])
	return h, nil
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

func (s *side) setUp(c *cm.Conn) (err error) {
	s.conn = c
	if s.recvs, err = c.AllocMsgs(slots * s.size); err != nil {
		return err
	}
	if s.sends, err = c.AllocMsgs(largeSize); err != nil {
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

// send sends b, and takes the completions of earlier sends.
func (s *side) send(ctx context.Context, b []byte) error {
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
	if err == nil && flags != 0 {
		_, err = s.conn.SendComp(ctx)
	}
	return err
}

// recv receives a message and returns its slot.
func (s *side) recv(ctx context.Context) (uint64, []byte, error) {
	wc, err := s.conn.RecvComp(ctx)
	if err != nil {
		return 0, nil, err
	}
	return wc.WRID, s.recvs.Bytes()[int(wc.WRID)*s.size:][:wc.ByteLen], nil
}

func (h *hand) serve() error {
	if _, err := h.l.Accept(h.ctx); err != nil {
		return err
	}
	for {
		i, b, err := h.server.recv(h.ctx)
		if errors.Is(err, cm.ErrDisconnected) {
			return h.server.close()
		}
		if err == nil {
			err = h.server.send(h.ctx, b[:smallSize])
		}
		if err == nil {
			err = h.server.post(i)
		}
		if err != nil {
			return errors.Join(err, h.server.close())
		}
	}
}

func (h *hand) read() error {
	err := h.client.conn.PostRead(0, uverbs.Signaled, h.addr, h.rkey, h.client.sends.SGE(0, smallSize))
	if err == nil {
		_, err = h.client.conn.SendComp(h.ctx)
	}
	return err
}

func (h *hand) write() error {
	err := h.client.conn.PostWrite(0, uverbs.Signaled, h.addr, h.rkey, h.client.sends.SGE(0, smallSize))
	if err == nil {
		_, err = h.client.conn.SendComp(h.ctx)
	}
	return err
}

func (h *hand) small() error { return h.echo(smallSize) }
func (h *hand) large() error { return h.echo(largeSize) }

func (h *hand) echo(n int) error {
	if err := h.client.send(h.ctx, h.data[:n]); err != nil {
		return err
	}
	i, _, err := h.client.recv(h.ctx)
	if err != nil {
		return err
	}
	return h.client.post(i)
}

func (s *side) close() error {
	return errors.Join(s.conn.Close(), s.recvs.Close(), s.sends.Close())
}

func (h *hand) close() error {
	return errors.Join(h.client.close(), <-h.served, h.shared.Close(), h.l.Close())
}
