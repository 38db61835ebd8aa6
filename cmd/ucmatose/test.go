package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/goverbs/goverbs/cm"
)

// resolveTimeout is the timeout of the C program.
const resolveTimeout = 2 * time.Second

// A test is one run of the program. Only the goroutine that reads events may use
// the nodes and the counters until connected is closed.
type test struct {
	ctx  context.Context // canceled with the error of an event
	fail context.CancelCauseFunc
	opt  *options
	out  io.Writer

	channel  *cm.EventChannel
	old      *cm.EventChannel // before the migration
	listener *cm.ID           // of a server
	nodes    []*node
	stop     func() // stops reading events

	pending int // connections that are not yet established
	up      int // established connections

	connected    chan struct{} // closed when all connections are established
	disconnected chan struct{} // closed when all connections have ended
}

func newTest(ctx context.Context, opt *options, out io.Writer) (*test, error) {
	channel, err := cm.NewEventChannel()
	if err != nil {
		return nil, err
	}
	t := &test{opt: opt, out: out, channel: channel, pending: opt.connections, stop: func() {},
		connected: make(chan struct{}), disconnected: make(chan struct{})}
	t.ctx, t.fail = context.WithCancelCause(ctx)
	return t, nil
}

// add adds a connection.
func (t *test) add(id *cm.ID) *node {
	n := &node{opt: t.opt, id: id}
	id.Context = n
	t.nodes = append(t.nodes, n)
	return n
}

// start starts a goroutine that processes the channel's events until stop is called.
func (t *test) start() {
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := t.read(ctx); err != nil {
			t.fail(err)
		}
	}()
	t.stop = func() {
		cancel()
		<-done
	}
}

func (t *test) read(ctx context.Context) error {
	for {
		e, err := t.channel.Next(ctx)
		switch {
		case err == nil:
			err = t.handle(e)
		case ctx.Err() != nil:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// handle processes an event, which triggers the next step of a connection.
func (t *test) handle(e *cm.Event) error {
	switch e.Type {
	case cm.EventAddrResolved:
		return e.ID.Context.(*node).resolveRoute()
	case cm.EventRouteResolved:
		return e.ID.Context.(*node).connect()
	case cm.EventConnectRequest:
		return t.request(e.ID)
	case cm.EventEstablished:
		t.up++
		if t.pending--; t.pending == 0 {
			close(t.connected)
		}
	case cm.EventDisconnected:
		return t.peerDisconnected(e.ID)
	case cm.EventAddrError, cm.EventRouteError, cm.EventConnectError, cm.EventUnreachable, cm.EventRejected:
		fmt.Fprintf(t.out, "cmatose: event: %v, error: %d\n", e.Type, e.Status)
		return e.Err()
	default:
		return e.Err()
	}
	return nil
}

// request accepts a connection request, or rejects it if there are enough
// connections.
func (t *test) request(id *cm.ID) error {
	if len(t.nodes) == t.opt.connections {
		t.print("cmatose: failing connection request")
		return errors.Join(id.Reject(nil), id.Close())
	}
	if err := t.add(id).accept(); err != nil {
		t.print("cmatose: failing connection request")
		return errors.Join(err, id.Reject(nil))
	}
	return nil
}

// peerDisconnected processes a disconnection. If the peer initiated it, Disconnect
// replies, so that the peer need not wait, and flushes the QP.
func (t *test) peerDisconnected(id *cm.ID) error {
	if err := id.Disconnect(); err != nil {
		return err
	}
	if t.pending > 0 {
		return fmt.Errorf("the peer has disconnected when %d of %d connections were established: see its output "+
			"for the reason",
			t.up, t.opt.connections)
	}
	if t.up--; t.up == 0 {
		close(t.disconnected)
	}
	return nil
}

// wait waits until stage is closed or the test has failed.
func (t *test) wait(stage <-chan struct{}) error {
	select {
	case <-stage:
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

// each calls step for each connection in turn.
func (t *test) each(step func(*node, context.Context) error) error {
	for i, n := range t.nodes {
		if err := step(n, t.ctx); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return nil
}

// migrate moves all connections to another event channel (-m). Pending events move
// with them. A listener cannot be migrated; it is closed because it is not needed
// any more.
func (t *test) migrate() (err error) {
	if !t.opt.migrate {
		return nil
	}
	t.print("migrating to new event channel")
	t.stop()
	if t.listener != nil {
		if err := t.listener.Close(); err != nil {
			return err
		}
	}
	t.old = t.channel
	if t.channel, err = cm.NewEventChannel(); err != nil {
		return err
	}
	for _, n := range t.nodes {
		if err := n.id.Migrate(t.channel); err != nil {
			return err
		}
	}
	if err := t.old.Close(); err != nil {
		return err
	}
	t.start()
	return nil
}

// close closes all objects.
func (t *test) close() error {
	t.fail(nil)
	t.stop()
	var errs []error
	if t.listener != nil {
		errs = append(errs, t.listener.Close())
	}
	for _, n := range t.nodes {
		errs = append(errs, n.close())
	}
	for _, channel := range []*cm.EventChannel{t.old, t.channel} {
		if channel != nil {
			errs = append(errs, channel.Close())
		}
	}
	return errors.Join(errs...)
}
