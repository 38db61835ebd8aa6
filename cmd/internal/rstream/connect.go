package rstream

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// A connector returns the connection of a series.
type connector func(context.Context, optimization) (net.Conn, error)

// config returns the configuration that the C program sets.
func (o *options) config(opt optimization) rsocket.Config {
	c := rsocket.Config{RecvBuffer: 1 << 20, SendBuffer: 1 << 20, KeepAlive: o.keepAlive, Mappings: o.mappings,
		Linger: 10 * time.Second} // the program ends after Close
	if o.bufSize > 0 {
		c.RecvBuffer, c.SendBuffer = 2*o.bufSize, 2*o.bufSize
	}
	switch {
	case opt == latency && o.inline > 0:
		c.Inline = o.inline
	case opt != mixed:
		c.Inline = -1
	}
	if !o.blocking {
		c.Polling = 24 * time.Hour // calls do not sleep
	}
	return c
}

func (o *options) dial(ctx context.Context, opt optimization) (net.Conn, error) {
	var local net.Addr
	if o.bind != "" {
		a, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(o.bind, "0"))
		if err != nil {
			return nil, err
		}
		local = a
	}
	addr := net.JoinHostPort(o.server, o.port)
	if o.sockets {
		return (&net.Dialer{LocalAddr: local}).DialContext(ctx, "tcp", addr)
	}
	return (&rsocket.Dialer{Config: o.config(opt), LocalAddr: local}).DialContext(ctx, "tcp", addr)
}

type listener struct{ net.Listener }

// listen listens for the connections of all series, whose buffers have the sizes of the first one.
func (o *options) listen(ctx context.Context) (*listener, error) {
	addr := net.JoinHostPort(o.bind, o.port)
	var l net.Listener
	var err error
	if o.sockets {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	} else {
		l, err = (&rsocket.ListenConfig{Config: o.config(o.series()[0].optimization)}).Listen(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	return &listener{l}, nil
}

// accept waits for a client, until ctx ends.
func (l *listener) accept(ctx context.Context, _ optimization) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	c, err := l.Accept()
	if ctx.Err() != nil {
		var closed error // of the connection, if one has come
		if err == nil {
			closed = c.Close()
		}
		return nil, errors.Join(context.Cause(ctx), closed)
	}
	return c, err
}
