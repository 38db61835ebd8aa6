package rdma

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"

	"github.com/goverbs/goverbs/uverbs"
)

// Serve accepts connections and calls handle for each, in a separate goroutine, until ctx ends or the listener is
// closed. It closes each connection when handle returns. Serve closes the listener, and returns when all handlers have
// returned. It returns nil if ctx has ended or the listener was closed, and otherwise the error of [Listener.Close], or
// that the device was removed. [Listener.Shutdown] ends it without breaking off what handlers have begun.
//
// Errors of handlers, of closing connections and of single handshakes are logged to Options.Logger, or without it to
// slog.Default, at level warn; those of handlers only until ctx has ended. If handle panics, Serve logs this with the
// stack at level error, and ends the connection: the peer's calls return an error that matches io.ErrUnexpectedEOF.
func (l *Listener) Serve(ctx context.Context, handle func(ctx context.Context, c *Conn) error) error {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	defer l.served.accept()()
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
		if l.served.add(c) {
			c.drain()
		}
		handlers.Go(func() { l.serve(ctx, c, handle) })
	}
}

// serve calls a handler, and closes and removes its connection.
func (l *Listener) serve(ctx context.Context, c *Conn, handle func(ctx context.Context, c *Conn) error) {
	var err error
	returned := false
	defer l.served.remove(c)
	defer func() {
		if p := recover(); p != nil {
			l.logger().Error("rdma: a handler has panicked", "local", l.Addr(), "peer", c.RemoteAddr(), "panic", p,
				"stack", string(debug.Stack()))
		}
		if !returned {
			c.abort()
		}
		if ctx.Err() != nil || errors.Is(err, ErrShutdown) || errors.Is(err, net.ErrClosed) && c.isDraining() {
			err = nil // ctx or Shutdown ends handlers
		}
		if err = errors.Join(err, c.refuseAll(ctx), c.Close()); err != nil {
			l.warn("rdma: serve "+c.RemoteAddr().String(), err)
		}
	}()
	err = handle(ctx, c)
	returned = true
}

func (l *Listener) logger() *slog.Logger {
	if l.options.Logger != nil {
		return l.options.Logger
	}
	return slog.Default()
}

func (l *Listener) warn(text string, err error) {
	l.logger().Warn(text, "local", l.Addr(), "error", err)
}

// ServeCalls receives messages, calls f for each, one after the other, and replies with what f returns if the message
// is a call. f must not use the request after it has returned, but may return a part of it. ServeCalls returns nil when
// the peer has closed the connection, and otherwise the error of [Conn.Recv] or [Message.Reply]. If f panics,
// ServeCalls ends the connection, so that the peer does not wait, and panics.
func (c *Conn) ServeCalls(ctx context.Context, f func(request []byte) (reply []byte)) error {
	return c.serveCalls(ctx, func(m Message) []byte { return f(m.Bytes()) })
}

// ServeCallsContext is [Conn.ServeCalls] for calls that take long. The context of f ends with ctx, and when the peer
// cancels the call or the connection ends: see [Message.Context]. It also ends when f has returned.
func (c *Conn) ServeCallsContext(ctx context.Context,
	f func(ctx context.Context, request []byte) (reply []byte)) error {
	return c.serveCalls(ctx, func(m Message) []byte {
		x := m.serveContext(ctx)
		defer c.endContext(x, errReturned)
		return f(x, m.Bytes())
	})
}

func (c *Conn) serveCalls(ctx context.Context, f func(m Message) (reply []byte)) error {
	panics := true
	defer func() {
		if panics {
			c.abort()
		}
	}()
	for {
		m, err := c.Recv(ctx)
		if err == nil {
			err = m.serve(ctx, f)
		}
		if err != nil {
			panics = false
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, ErrShutdown): // also of a reply that the peer does not wait for
			return nil
		case err != nil:
			return err
		}
	}
}

// serve replies to a message with what f returns, and releases it.
func (m Message) serve(ctx context.Context, f func(m Message) (reply []byte)) error {
	defer m.Release()
	if reply := f(m); m.IsCall() {
		return m.Reply(ctx, reply)
	}
	return nil
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
