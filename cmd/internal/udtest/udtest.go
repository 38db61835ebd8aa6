// Package udtest contains the common part of udaddy and mckey: UD ids on one event channel, and the datagrams that they
// exchange.
package udtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/getopt"
	"github.com/goverbs/goverbs/uverbs"
)

// Options holds the options that both programs have.
type Options struct {
	Connections int
	Count       int // datagrams for each connection
	Size        int // of a datagram
	PortSpace   cm.PortSpace
}

// Defaults returns the default options.
func Defaults() Options {
	return Options{Connections: 1, Count: 10, Size: 100, PortSpace: cm.PSUDP}
}

// Table returns the options for package getopt.
func (o *Options) Table() []getopt.Option {
	return []getopt.Option{
		getopt.Short('c', "connections", "number of connections (default 1)",
			getopt.Decimal(&o.Connections, 1, math.MaxUint16)),
		getopt.Short('C', "message_count", "datagrams over each connection (default 10)",
			getopt.Decimal(&o.Count, 0, math.MaxInt32)),
		getopt.Short('S', "message_size", "bytes of a datagram, at most the MTU (default 100)",
			getopt.Decimal(&o.Size, 0, math.MaxInt32)),
		getopt.Short('p', "port_space", "0x111 for UDP (default), 0x2 for IPoIB", o.setPortSpace),
	}
}

func (o *Options) setPortSpace(value string) error {
	var ps int
	if err := getopt.Int(&ps, 0, math.MaxUint16)(value); err != nil {
		return err
	}
	switch o.PortSpace = cm.PortSpace(ps); o.PortSpace {
	case cm.PSUDP, cm.PSIPoIB:
		return nil
	}
	return fmt.Errorf("%#x is not a port space for datagrams: use 0x111 for UDP or 0x2 for IPoIB", ps)
}

// A Test is one run of a program: ids on an event channel. It must not be used
// concurrently.
type Test struct {
	Options
	Out     io.Writer
	Channel *cm.EventChannel
	Nodes   []*Node

	name     string
	received bool // at least one datagram has arrived
}

// Run calls body with a new Test, closes it, and prints the last lines of the C
// programs.
func Run(name string, o Options, out io.Writer, body func(*Test) error) error {
	channel, err := cm.NewEventChannel()
	if err != nil {
		return err
	}
	if o.Size == 0 {
		o.Count = 0
	}
	t := &Test{Options: o, Out: out, Channel: channel, name: name}
	err = body(t)
	t.Printf("test complete")
	err = errors.Join(err, t.close())
	t.Printf("return status %d", status(err))
	return err
}

// Printf prints a line.
func (t *Test) Printf(format string, args ...any) {
	fmt.Fprintf(t.Out, format+"\n", args...)
}

// A failure is an error with the status that the C program returns.
type failure struct {
	error
	status int
}

func (f failure) Unwrap() error { return f.error }

func status(err error) int {
	var f failure
	switch {
	case err == nil:
		return 0
	case errors.As(err, &f) && f.status != 0:
		return f.status
	}
	return -1
}

// Events passes the channel's events to handle until all nodes are connected.
func (t *Test) Events(ctx context.Context, handle func(*cm.Event) error) error {
	for !t.ready() {
		e, err := t.Channel.Next(ctx)
		if err != nil {
			return err
		}
		if err := handle(e); err != nil {
			return err
		}
	}
	return nil
}

func (t *Test) ready() bool {
	for _, n := range t.Nodes {
		if !n.Connected {
			return false
		}
	}
	return len(t.Nodes) == t.Connections
}

// Failed prints an error event and returns its error.
func (t *Test) Failed(e *cm.Event) error {
	t.Printf("%s: event: %v, error: %d", t.name, e.Type, e.Status)
	return failure{e.Err(), e.Status}
}

// recvTimeout is the time without a datagram after which the rest is considered
// lost. It starts with the first datagram.
const recvTimeout = 20 * time.Second

var errLost = fmt.Errorf("no datagram for %v: either they were lost, or the peer has a different -c, -C or -S; "+
	"run both programs again", recvTimeout)

// Receive waits until each node has received its datagrams. It calls first, unless
// that is nil, with the first completion of each node.
func (t *Test) Receive(ctx context.Context, first func(*Node, *uverbs.WC) error) error {
	for _, n := range t.Nodes {
		for got := range t.Count {
			wc, err := t.receive(ctx, n)
			if err == nil && got == 0 && first != nil {
				err = first(n, &wc)
			}
			if err != nil {
				return fmt.Errorf("after %d of %d datagrams: %w", got, t.Count, err)
			}
		}
	}
	return nil
}

// receive waits for a node's next datagram.
func (t *Test) receive(ctx context.Context, n *Node) (uverbs.WC, error) {
	if t.received {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, recvTimeout, errLost)
		defer cancel()
	}
	wc, err := n.ID.RecvComp(ctx)
	t.received = true
	return wc, err
}

func (t *Test) close() error {
	var errs []error
	for _, n := range t.Nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(append(errs, t.Channel.Close())...)
}
