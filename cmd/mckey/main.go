// Mckey joins a multicast group and receives or sends datagrams. It has the
// protocol, options and output of rdma-core's mckey, so either end can be the C
// program.
//
// Receiver, then sender:
//
//	mckey -m 239.1.2.3 -b address-of-the-device
//	mckey -m 239.1.2.3 -b address-of-the-device -s
//
// Without -b the routing table must have a route to the group.
//
// Unlike the C program, the sender waits for the completion of its datagrams, the
// receiver fails if some are lost, and both end cleanly on SIGINT and exit with a
// non-zero status after any error.
package main

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/cmd/internal/rdmaaddr"
	"github.com/goverbs/goverbs/cmd/internal/udtest"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

const (
	resolveTimeout = 2 * time.Second
	// joinDelay is the time that switches need to learn the group.
	joinDelay = 3 * time.Second
)

func main() { program.Main("mckey", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	opt, err := parseOptions(args)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		return usage(out)
	case err != nil:
		return err
	}
	return udtest.Run("mckey", opt.Options, out, func(t *udtest.Test) error {
		return (&mckey{Test: t, opt: opt}).run(ctx)
	})
}

// A mckey is one run of the program.
type mckey struct {
	*udtest.Test
	opt     *options
	group   netip.Addr // of -m
	members []*cm.Membership
}

func (m *mckey) run(ctx context.Context) (err error) {
	m.Printf("mckey: starting %s", m.opt.role())
	src, err := rdmaaddr.Host(ctx, m.opt.bind)
	if err != nil {
		return err
	}
	if m.group, err = rdmaaddr.Host(ctx, m.opt.group); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.leave()) }()
	m.Printf("mckey: joining")
	for range m.Connections {
		if err := m.start(netip.AddrPortFrom(src, 0)); err != nil {
			return err
		}
	}
	if err := m.Events(ctx, m.handle); err != nil {
		return err
	}
	ctx, stop := m.watch(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	select {
	case <-time.After(joinDelay):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if m.Count == 0 {
		return nil
	}
	return m.transfer(ctx)
}

// start binds a new id to a device: with -M, which requires -b, immediately, else
// by resolving the address.
func (m *mckey) start(src netip.AddrPort) error {
	n, err := m.Create()
	if err != nil {
		return err
	}
	if !m.opt.unmapped {
		return n.ID.ResolveAddr(src, netip.AddrPortFrom(m.group, 0), resolveTimeout)
	}
	if err := n.ID.Bind(src); err != nil {
		return err
	}
	return m.join(n)
}

func (m *mckey) handle(e *cm.Event) error {
	switch e.Type {
	case cm.EventAddrResolved:
		return m.join(e.ID.Context.(*udtest.Node))
	case cm.EventMulticastJoin:
		to := e.UD.AH
		m.Printf("mckey: joined dgid: %v mlid 0x%x sl %d", netip.AddrFrom16(to.DGID), to.DLID, to.SL)
		return e.ID.Context.(*udtest.Node).SendTo(e.UD)
	case cm.EventAddrError, cm.EventRouteError, cm.EventMulticastError:
		return m.Failed(e)
	}
	return e.Err()
}

// join posts the receives and joins the group.
func (m *mckey) join(n *udtest.Node) error {
	if err := n.Prepare(); err != nil {
		return err
	}
	if !m.opt.sender {
		if err := n.PostRecvs(); err != nil {
			return err
		}
	}
	flags := cm.JoinFull
	if m.opt.sendOnly {
		flags = cm.JoinSendOnly
	}
	join := func() (*cm.Membership, error) { return n.ID.JoinMulticast(m.group, flags) }
	if m.opt.unmapped || m.group.IsUnspecified() {
		// The zero GID requests that the fabric choose a group.
		gid := uverbs.GID(m.group.As16())
		if m.group.IsUnspecified() {
			gid = uverbs.GID{}
		}
		join = func() (*cm.Membership, error) { return n.ID.JoinMulticastIB(cm.IBAddr{GID: gid}, flags) }
	}
	member, err := join()
	if err == nil {
		m.members = append(m.members, member)
	}
	return err
}

func (m *mckey) transfer(ctx context.Context) error {
	if m.opt.sender {
		m.Printf("initiating data transfers")
		for _, n := range m.Nodes {
			if err := n.Send(ctx); err != nil {
				return err
			}
		}
	} else {
		m.Printf("receiving data transfers")
		if err := m.Receive(ctx, nil); err != nil {
			return err
		}
	}
	m.Printf("data transfers complete")
	return nil
}

// watch prints events of the groups until stop is called. If a group is lost, it
// cancels the context that it returns.
func (m *mckey) watch(ctx context.Context) (watched context.Context, stop func() error) {
	watched, cancel := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() {
		for {
			e, err := m.Channel.Next(watched)
			if err != nil {
				done <- err
				return
			}
			if e.Type == cm.EventMulticastError || e.Type == cm.EventAddrChange {
				m.Printf("mckey: event: %v, status: %d", e.Type, e.Status)
			}
			if err := e.Err(); err != nil {
				cancel(err)
			}
		}
	}()
	return watched, func() error {
		cancel(errStopped)
		if err := <-done; !errors.Is(err, context.Cause(watched)) {
			return err
		}
		return nil
	}
}

var errStopped = errors.New("the transfer has ended")

func (m *mckey) leave() error {
	var errs []error
	for _, member := range m.members {
		errs = append(errs, member.Leave())
	}
	return errors.Join(errs...)
}
