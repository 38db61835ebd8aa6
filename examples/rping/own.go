package main

import (
	"errors"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// An ownQP is a queue pair that the program makes and moves itself: -q. The id
// only tells what to move it with.
type ownQP struct {
	id   *cm.SyncID
	qp   *uverbs.QP
	cqs  []*uverbs.CQ
	stop chan struct{}
	done chan error // what watch has come to
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

// create makes the queue pair, in INIT: from then on it takes receives.
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

// enter moves the queue pair to a state.
func (o *ownQP) enter(s uverbs.QPState) error {
	attr, mask, err := o.id.InitQPAttr(s)
	if err != nil {
		return err
	}
	return o.qp.Modify(attr, mask)
}

// ready moves it to where it sends and receives, once the peer's part is known:
// by its request or its answer. INIT once more, since what the peer may do
// belongs to that.
func (o *ownQP) ready() error {
	for _, s := range []uverbs.QPState{uverbs.StateInit, uverbs.StateRTR, uverbs.StateRTS} {
		if err := o.enter(s); err != nil {
			return err
		}
	}
	return nil
}

// param names the queue pair to the peer.
func (o *ownQP) param(p cm.ConnParam) *cm.ConnParam {
	p.QPN = o.qp.QPN()
	return &p
}

// watch flushes what is posted when the connection ends, as the id does with a
// queue pair of its own.
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
