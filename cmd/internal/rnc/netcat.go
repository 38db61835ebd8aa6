package rnc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// A netcat connects in and out with peers.
type netcat struct {
	*options
	in       *input // nil for none
	out      io.Writer
	messages io.Writer
}

// say prints a message if the options want it.
func (n *netcat) say(format string, args ...any) {
	if n.verbose {
		fmt.Fprintf(n.messages, format+"\n", args...)
	}
}

// connect connects to the peer, and transfers until the connection ends.
func (n *netcat) connect(ctx context.Context) error {
	d, err := n.dialer()
	if err != nil {
		return err
	}
	c, err := d.DialContext(ctx, n.network(), net.JoinHostPort(n.host, n.port))
	if err != nil {
		return fmt.Errorf("%w%s", cause(ctx, err), hint(err))
	}
	n.say("Connection to %s %s port [rsocket] succeeded!", n.host, n.port)
	if n.scan {
		return c.Close()
	}
	err = n.transfer(ctx, c.(*rsocket.Conn))
	return errors.Join(err, c.Close())
}

// hint says what else to try after an error of dialing.
func hint(err error) string {
	if errors.Is(err, rsocket.ErrNoRDMA) {
		return " (nc uses TCP)"
	}
	return ""
}

// serve accepts a connection, or with the option one after the other until ctx ends, and transfers.
func (n *netcat) serve(ctx context.Context) (err error) {
	l, err := (&rsocket.ListenConfig{Config: n.config}).Listen(ctx, n.network(), net.JoinHostPort(n.host, n.port))
	if err != nil {
		return err
	}
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { closed <- l.Close() })
	defer func() {
		if stop() {
			closed <- l.Close()
		}
		err = errors.Join(err, <-closed)
	}()
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	n.say("Listening on %s %s", host, port)
	for {
		c, err := l.Accept()
		if err != nil {
			return cause(ctx, err)
		}
		if !n.keep { // others are rejected, as with nc
			if err := l.Close(); err != nil {
				return errors.Join(err, c.Close())
			}
		}
		n.say("Connection received on %v", c.RemoteAddr())
		err = errors.Join(n.transfer(ctx, c.(*rsocket.Conn)), c.Close())
		switch {
		case !n.keep:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil: // of one connection
			fmt.Fprintf(n.messages, "rnc: %v\n", err)
		}
	}
}

// errIdle is why a connection ends on which nothing is sent or received.
var errIdle = errors.New("idle")

// transfer sends the input and writes what is received, until the connection ends.
func (n *netcat) transfer(ctx context.Context, c *rsocket.Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	busy := func() {}
	if n.timeout > 0 {
		d := time.Duration(n.timeout) * time.Second
		idle := time.AfterFunc(d, func() { cancel(errIdle) })
		defer idle.Stop()
		busy = func() { idle.Reset(d) }
	}
	sent, enough := make(chan error, 1), make(chan struct{})
	go func() {
		err := n.send(ctx, c, busy, enough)
		if err != nil { // it is not worth while to go on
			cancel(err)
		}
		sent <- err
	}()
	_, err := c.WriteTo(notify{n.out, busy})
	// The peer sends no more. If it receives no more either, there is nobody to send to.
	if _, closed := c.Write(nil); err != nil || closed != nil || n.listen && (n.in == nil || !n.in.file) {
		close(enough)
	}
	if e := <-sent; err == nil {
		err = e
	}
	if err = cause(ctx, err); err == errIdle {
		return nil
	}
	return err
}

// send sends the input, until it ends. When enough is closed, it sends no more.
func (n *netcat) send(ctx context.Context, c *rsocket.Conn, busy func(), enough <-chan struct{}) error {
	if n.in == nil {
		return nil
	}
	for {
		select {
		case b, ok := <-n.in.chunks:
			if !ok {
				return n.sentAll(c)
			}
			_, err := c.Write(b)
			n.in.written <- struct{}{}
			if err != nil {
				return err
			}
			busy()
		case <-enough:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sentAll ends the input.
func (n *netcat) sentAll(c *rsocket.Conn) error {
	if n.in.err != nil {
		return n.in.err
	}
	if n.shutdown {
		return c.CloseWrite()
	}
	return nil
}

// cause returns why a call has failed: the end of ctx, if that is the reason.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// notify calls a function for each Write.
type notify struct {
	io.Writer
	busy func()
}

func (n notify) Write(b []byte) (int, error) {
	n.busy()
	return n.Writer.Write(b)
}
