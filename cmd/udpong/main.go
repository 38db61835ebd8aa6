// Udpong measures latency and bandwidth of datagrams between rsockets. It has the protocol, options and output of
// rdma-core's udpong, so either end can be the C program.
//
// Server, then client:
//
//	udpong
//	udpong -s server-host
//
// Without -b, the server uses all addresses; the C program uses the loopback address then, which no RDMA device has.
// Unlike the C program, the client compares what is echoed with what it has sent, and fails if the server does not
// reply for ten seconds; the server ends cleanly on SIGINT, and any error gives a non-zero status.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rsocket"
)

func main() { program.Main("udpong", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	opt, err := parseOptions(args)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		return usage(out)
	case err != nil:
		return err
	case opt.server == "":
		return serve(ctx, opt, out)
	}
	return measure(ctx, opt, out)
}

// A packetConn is a *rsocket.PacketConn, or a *net.UDPConn.
type packetConn interface {
	net.PacketConn
	net.Conn
}

// config returns the sizes that the options stand for. As in C, a buffer has twice the given size.
func (o *options) config() rsocket.Config {
	c := rsocket.Config{SendBuffer: 2 * o.buffer, RecvBuffer: 2 * o.buffer}
	switch o.wait {
	case waitPoll:
		c.Polling = time.Hour
	case waitEvent:
		c.Polling = -1
	}
	return c
}

// listen returns the socket of a server. Its reads end when ctx ends.
func (o *options) listen(ctx context.Context) (c packetConn, err error) {
	addr := net.JoinHostPort(o.bind, o.port)
	if o.udp {
		var a *net.UDPAddr
		if a, err = net.ResolveUDPAddr("udp", addr); err != nil {
			return nil, err
		}
		c, err = net.ListenUDP("udp", a)
	} else {
		var p net.PacketConn
		if p, err = (&rsocket.ListenConfig{Config: o.config()}).ListenPacket(ctx, "udp", addr); err == nil {
			c = p.(*rsocket.PacketConn)
		}
	}
	return c, err
}

// dial returns the socket of a client.
func (o *options) dial(ctx context.Context) (c packetConn, err error) {
	addr := net.JoinHostPort(o.server, o.port)
	var local net.Addr
	if o.bind != "" {
		a, err := net.ResolveUDPAddr("udp", net.JoinHostPort(o.bind, "0"))
		if err != nil {
			return nil, err
		}
		local = a
	}
	if !o.udp {
		return (&rsocket.Dialer{Config: o.config(), LocalAddr: local}).DialPacket(ctx, "udp", addr)
	}
	d, err := (&net.Dialer{LocalAddr: local}).DialContext(ctx, "udp", addr)
	if err != nil {
		return nil, err
	}
	return d.(*net.UDPConn), nil
}

// endWith makes the calls of c return when ctx ends. The result ends that.
func endWith(ctx context.Context, c net.PacketConn) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		// The error of the calls says it if the deadline cannot be set.
		_ = c.SetDeadline(time.Unix(1, 0))
	})
}

// cause returns why a call has failed: the end of ctx, if that is the reason.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// closeWith closes c and adds the error to *err.
func closeWith(c io.Closer, err *error) {
	if e := c.Close(); e != nil {
		*err = errors.Join(*err, fmt.Errorf("close: %w", e))
	}
}
