package rdma

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"

	"github.com/goverbs/goverbs/uverbs"
)

// Serve accepts connections and calls handle for each, in a goroutine of its own, until ctx ends or the listener is
// closed. It closes each connection when handle returns. Serve closes the listener, and returns when all handlers have
// returned. It returns nil if ctx has ended or the listener was closed, and otherwise the error of [Listener.Close], or
// that the device was removed.
//
// Errors of handlers and of single handshakes are logged to Options.Logger, or without it to slog.Default, at level
// warn, unless ctx has ended.
func (l *Listener) Serve(ctx context.Context, handle func(ctx context.Context, c *Conn) error) error {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	for {
		c, err := l.Accept(ctx)
		switch {
		case ctx.Err() != nil:
			if c != nil {
				err = c.Close()
			} else {
				err = nil
			}
			return errors.Join(err, l.Close())
		case errors.Is(err, net.ErrClosed) && errors.Is(err, uverbs.ErrDeviceGone):
			return errors.Join(err, l.Close())
		case errors.Is(err, net.ErrClosed):
			return l.Close()
		case err != nil:
			l.warn("rdma: accept", err)
			continue
		}
		handlers.Go(func() {
			if err := errors.Join(handle(ctx, c), c.Close()); err != nil && ctx.Err() == nil {
				l.warn("rdma: serve "+c.PeerAddr().String(), err)
			}
		})
	}
}

func (l *Listener) warn(text string, err error) {
	log := l.options.Logger
	if log == nil {
		log = slog.Default()
	}
	log.Warn(text, "local", l.Addr(), "error", err)
}

// ServeCalls receives messages, calls f for each, one after the other, and replies with what f returns if the message
// is a call. f must not use the request after it has returned, but may return a part of it. ServeCalls returns nil when
// the peer has closed the connection, and otherwise the error of [Conn.Recv] or [Message.Reply].
func (c *Conn) ServeCalls(ctx context.Context, f func(request []byte) (reply []byte)) error {
	for {
		m, err := c.Recv(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if reply := f(m.Bytes()); m.IsCall() {
			err = m.Reply(ctx, reply)
		}
		m.Release()
		if err != nil {
			return err
		}
	}
}

// SendToken shares a region with the peer, as [Conn.Share] does, and sends the token as a message. The peer receives it
// with [RecvToken].
func (c *Conn) SendToken(ctx context.Context, r *Region, rights Rights) (*Share, error) {
	s, err := c.Share(ctx, r, rights)
	if err != nil {
		return nil, err
	}
	b, err := s.token.MarshalBinary()
	if err == nil {
		err = c.Send(ctx, b)
	}
	if err != nil {
		return nil, errors.Join(err, s.Revoke())
	}
	return s, nil
}

// RecvToken receives a message that is a token. It can be the Setup of a [Client]. It returns [ErrProtocol] if the
// message is not a token.
func RecvToken(ctx context.Context, c *Conn) (t Token, err error) {
	m, err := c.Recv(ctx)
	if err != nil {
		return t, err
	}
	defer m.Release()
	if err := t.UnmarshalBinary(m.Bytes()); err != nil {
		return t, c.opError("receive a token from", err)
	}
	return t, nil
}
