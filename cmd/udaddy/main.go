// Udaddy resolves a server's datagram address by its IP address, sends datagrams
// and receives as many. It has the protocol, options and output of rdma-core's
// udaddy, so either end can be the C program.
//
// Server, then client:
//
//	udaddy
//	udaddy -s server-host
//
// It is an example of datagrams and of an event loop: all ids share an event
// channel, and each event triggers the next step.
//
// Unlike the C program it checks the status of every datagram, fails if some are
// lost, ends cleanly on SIGINT, and exits with a non-zero status after any error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/cmd/internal/rdmaaddr"
	"github.com/goverbs/goverbs/cmd/internal/udtest"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
)

// These are the port and the resolution timeout of the C program.
const (
	port           = "7174"
	resolveTimeout = 2 * time.Second
)

func main() { program.Main("udaddy", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	opt, err := parseOptions(args)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		return usage(out)
	case err != nil:
		return err
	}
	return udtest.Run("udaddy", opt.Options, out, func(t *udtest.Test) error {
		u := &udaddy{Test: t, opt: opt}
		if opt.server != "" {
			return u.client(ctx)
		}
		return u.serve(ctx)
	})
}

// A udaddy is one run of the program.
type udaddy struct {
	*udtest.Test
	opt *options
}

func (u *udaddy) client(ctx context.Context) error {
	u.Printf("udaddy: starting client")
	ai, err := rdmaaddr.Client(ctx, u.opt.server, u.opt.bind, port, u.opt.hints())
	if err != nil {
		return err
	}
	u.Printf("udaddy: connecting")
	for range u.Connections {
		n, err := u.Create()
		if err != nil {
			return err
		}
		if err := n.ID.ResolveAddr(ai.Src, ai.Dst, resolveTimeout); err != nil {
			return err
		}
	}
	if err := u.Events(ctx, u.handle); err != nil || u.Count == 0 {
		return err
	}
	u.Printf("initiating data transfers")
	if err := u.send(ctx); err != nil {
		return err
	}
	u.Printf("receiving data transfers")
	if err := u.Receive(ctx, nil); err != nil {
		return err
	}
	u.Printf("data transfers complete")
	return nil
}

func (u *udaddy) serve(ctx context.Context) (err error) {
	u.Printf("udaddy: starting server")
	bind := u.opt.bind
	if bind == "" {
		bind = "0.0.0.0"
	}
	ai, err := rdmaaddr.Server(ctx, bind, port, u.opt.hints())
	if err != nil {
		return err
	}
	listener, err := u.Channel.CreateID(u.PortSpace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	if err := listener.Bind(ai.Src); err != nil {
		return err
	}
	if err := listener.Listen(0); err != nil {
		return err
	}
	if err := u.Events(ctx, u.handle); err != nil || u.Count == 0 {
		return err
	}
	u.Printf("receiving data transfers")
	if err := u.Receive(ctx, (*udtest.Node).ReplyTo); err != nil {
		return err
	}
	u.Printf("sending replies")
	if err := u.send(ctx); err != nil {
		return err
	}
	u.Printf("data transfers complete")
	return nil
}

func (u *udaddy) send(ctx context.Context) error {
	for _, n := range u.Nodes {
		if err := n.Send(ctx); err != nil {
			return err
		}
	}
	return nil
}

// handle processes an event: on the client the three steps to a connection, on the
// server a connection request.
func (u *udaddy) handle(e *cm.Event) error {
	switch e.Type {
	case cm.EventAddrResolved:
		return u.addrResolved(e.ID)
	case cm.EventRouteResolved:
		return routeResolved(e.ID.Context.(*udtest.Node))
	case cm.EventEstablished:
		return e.ID.Context.(*udtest.Node).SendTo(e.UD)
	case cm.EventConnectRequest:
		return u.requested(e.ID)
	case cm.EventAddrError, cm.EventRouteError, cm.EventConnectError, cm.EventUnreachable, cm.EventRejected:
		return u.Failed(e)
	}
	return e.Err()
}

func (u *udaddy) addrResolved(id *cm.ID) error {
	if u.opt.setTOS {
		if err := id.SetTOS(u.opt.tos); err != nil {
			return err
		}
	}
	return id.ResolveRoute(resolveTimeout)
}

// routeResolved requests the server's datagram address, after posting the receives for its replies.
func routeResolved(n *udtest.Node) error {
	if err := n.Prepare(); err != nil {
		return err
	}
	if err := n.PostRecvs(); err != nil {
		return err
	}
	return n.ID.Connect(&cm.ConnParam{})
}

// requested sends a client the number of a new QP, to which it will send.
func (u *udaddy) requested(id *cm.ID) error {
	n := u.Add(id)
	if err := accept(n); err != nil {
		u.Printf("udaddy: failing connection request")
		return fmt.Errorf("request of %v: %w", id.RemoteAddr(), errors.Join(err, id.Reject(nil)))
	}
	n.Connected = true
	return nil
}

func accept(n *udtest.Node) error {
	if err := n.Prepare(); err != nil {
		return err
	}
	if err := n.PostRecvs(); err != nil {
		return err
	}
	return n.ID.Accept(&cm.ConnParam{QPN: n.ID.QP().QPN()})
}
