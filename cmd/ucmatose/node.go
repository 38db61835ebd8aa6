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
	mr  *uverbs.MR // one message, the buffer of all sends and receives
}

// prepare creates the id's QP and posts all receives.
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

// connect sends the connection request.
func (n *node) connect() error {
	if err := n.prepare(); err != nil {
		return err
	}
	return n.id.Connect(&cm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 5, RNRRetryCount: cm.NoRetry})
}

// accept accepts a client's request.
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

// resolveRoute resolves the route after the address has been resolved.
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
			return fmt.Errorf("send %d: %w", i, explain(err))
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
			return fmt.Errorf("message %d has %d bytes, not %d: use the same -S at both ends", i, wc.ByteLen, n.opt.size)
		}
	}
	return nil
}

// explain adds the likely cause to the error of a completion.
func explain(err error) error {
	switch {
	case errors.Is(err, uverbs.WCWRFlushErr), errors.Is(err, cm.ErrDisconnected):
		return fmt.Errorf("%w; the peer has disconnected: see its output for the reason", err)
	case errors.Is(err, uverbs.WCRNRRetryExcErr):
		return fmt.Errorf("%w; use the same -C at both ends", err)
	case errors.Is(err, uverbs.WCLocLenErr), errors.Is(err, uverbs.WCRemInvReqErr), // according to the IBA
		errors.Is(err, uverbs.WCLocQPOpErr), errors.Is(err, uverbs.WCRemOpErr): // on rxe
		return fmt.Errorf("%w; use the same -S at both ends", err)
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
