package rping

import (
	"errors"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// An ownQP is a QP that the program creates and modifies itself (-q). The id only
// provides the attributes.
type ownQP struct {
	id   *cm.SyncID
	qp   *uverbs.QP
	cqs  []*uverbs.CQ
	stop chan struct{}
	done chan error // the result of watch
}

func newOwnQP(id *cm.SyncID, cfg uverbs.QPConfig) (*ownQP, error) {
	o := &ownQP{id: id, stop: make(chan struct{}), done: make(chan error, 1)}
	if err := o.create(cfg); err != nil {
		o.done <- nil
		return nil, errors.Join(err, o.close())
	}
	go func() { o.done <- o.watch() }()
	return o, nil
}

// create creates the QP and moves it to INIT, in which receives can be posted.
func (o *ownQP) create(cfg uverbs.QPConfig) (err error) {
	for _, q := range []struct {
		cq      **uverbs.CQ
		entries int
	}{{&cfg.SendCQ, cfg.MaxSendWR}, {&cfg.RecvCQ, cfg.MaxRecvWR}} {
		if *q.cq, err = o.id.Verbs().CreateCQ(uverbs.CQConfig{Entries: q.entries}); err != nil {
			return err
		}
		o.cqs = append(o.cqs, *q.cq)
	}
	if o.qp, err = o.id.PD().CreateQP(cfg); err != nil {
		return err
	}
	return o.enter(uverbs.StateInit)
}

// enter moves the QP to a state.
func (o *ownQP) enter(s uverbs.QPState) error {
	attr, mask, err := o.id.InitQPAttr(s)
	if err != nil {
		return err
	}
	return o.qp.Modify(attr, mask)
}

// ready moves the QP to RTS. The peer's parameters must be known from its request
// or reply. It enters INIT again, because the peer's access rights are set there.
func (o *ownQP) ready() error {
	for _, s := range []uverbs.QPState{uverbs.StateInit, uverbs.StateRTR, uverbs.StateRTS} {
		if err := o.enter(s); err != nil {
			return err
		}
	}
	return nil
}

// param returns p with the QP's number.
func (o *ownQP) param(p cm.ConnParam) *cm.ConnParam {
	p.QPN = o.qp.QPN()
	return &p
}

// watch flushes the QP when the connection ends, as the id does with a QP that it
// created.
func (o *ownQP) watch() error {
	select {
	case <-o.id.Disconnected():
		return o.qp.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState)
	case <-o.stop:
		return nil
	}
}

func (o *ownQP) close() error {
	close(o.stop)
	errs := []error{<-o.done}
	if o.qp != nil {
		errs = append(errs, o.qp.Close())
	}
	for _, cq := range o.cqs {
		errs = append(errs, cq.Close())
	}
	return errors.Join(errs...)
}
