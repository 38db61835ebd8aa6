package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A node is one connection.
type node struct {
	opt *options
	id  *cm.ID
	mr  *uverbs.MR // one message: all are sent from here, and received here
}

// prepare gives the id a queue pair, with all receives posted.
func (n *node) prepare() (err error) {
	depth := max(n.opt.count, 1)
	if err := n.id.CreateQP(nil, uverbs.QPConfig{MaxSendWR: depth, MaxRecvWR: depth, SignalAll: true}); err != nil {
		return err
	}
	if n.opt.count == 0 {
		return nil
	}
	if n.mr, err = n.id.AllocMsgs(n.opt.size); err != nil {
		return err
	}
	for i := range n.opt.count {
		if err := n.id.PostRecv(uint64(i), n.mr.SGE(0, n.opt.size)); err != nil {
			return fmt.Errorf("receive %d: %w", i, err)
		}
	}
	return nil
}

// connect asks the server for the connection.
func (n *node) connect() error {
	if err := n.prepare(); err != nil {
		return err
	}
	return n.id.Connect(&cm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 5})
}

// accept takes up a client's request.
func (n *node) accept() error {
	if err := n.prepare(); err != nil {
		return err
	}
	if err := n.setAckTimeout(); err != nil {
		return err
	}
	return n.id.Accept(nil)
}

func (n *node) setAckTimeout() error {
	if n.opt.ackTimeout == nil {
		return nil
	}
	return n.id.SetAckTimeout(*n.opt.ackTimeout)
}

// resolveRoute follows the resolution of the address.
func (n *node) resolveRoute() error {
	if n.opt.tos != nil {
		if err := n.id.SetTOS(*n.opt.tos); err != nil {
			return err
		}
	}
	if err := n.setAckTimeout(); err != nil {
		return err
	}
	if n.opt.dlid == 0 {
		return n.id.ResolveRoute(resolveTimeout)
	}
	p, err := path(n.id, n.opt.dlid)
	if err != nil {
		return err
	}
	return n.id.SetPaths([]cm.PathRecord{p})
}

func (n *node) postSends(context.Context) error {
	for i := range n.opt.count {
		if err := n.id.PostSend(uint64(i), 0, n.mr.SGE(0, n.opt.size)); err != nil {
			return fmt.Errorf("send %d: %w", i, err)
		}
	}
	return nil
}

func (n *node) completeSends(ctx context.Context) error {
	for i := range n.opt.count {
		if _, err := n.id.SendComp(ctx); err != nil {
			return fmt.Errorf("send %d: %w", i, explain(err))
		}
	}
	return nil
}

func (n *node) receive(ctx context.Context) error {
	for i := range n.opt.count {
		wc, err := n.id.RecvComp(ctx)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, explain(err))
		}
		if int(wc.ByteLen) != n.opt.size {
			return fmt.Errorf("message %d has %d bytes, not %d: give both ends the same -S", i, wc.ByteLen, n.opt.size)
		}
	}
	return nil
}

// explain says what a completion's error has to do with the peer.
func explain(err error) error {
	switch {
	case errors.Is(err, uverbs.WCWRFlushErr):
		return fmt.Errorf("%w; the peer has disconnected, its own output says why", err)
	case errors.Is(err, uverbs.WCRNRRetryExcErr):
		return fmt.Errorf("%w; give both ends the same -C", err)
	case errors.Is(err, uverbs.WCLocLenErr), errors.Is(err, uverbs.WCRemInvReqErr), // as the architecture has it
		errors.Is(err, uverbs.WCLocQPOpErr), errors.Is(err, uverbs.WCRemOpErr): // as rxe has it
		return fmt.Errorf("%w; give both ends the same -S", err)
	}
	return err
}

func (n *node) close() error {
	errs := []error{n.id.DestroyQP()}
	if n.mr != nil {
		errs = append(errs, n.mr.Close())
	}
	return errors.Join(append(errs, n.id.Close())...)
}
