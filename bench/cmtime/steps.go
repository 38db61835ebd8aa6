package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A step is a line of the report.
type step int

const (
	fullConnect step = iota
	createID
	bindAddr
	resolveAddr
	resolveRoute
	createQP
	initQP
	cmConnect
	disconnect
	destroyID
	destroyQP
	steps
)

var stepNames = [steps]string{"full connect", "create id", "bind addr", "resolve addr", "resolve route", "create qp",
	"init qp", "cm connect", "disconnect", "destroy id", "destroy qp"}

// A bench is one side of a run.
type bench struct {
	options
	ch    *cm.EventChannel
	conns []*conn
	took  [steps]time.Duration

	pd *uverbs.PD
	cq *uverbs.CQ
}

// A conn is a connection: an id, and a QP that the program manages itself.
type conn struct {
	id *cm.ID
	qp *uverbs.QP
}

// time measures a step, which do performs for all connections.
func (b *bench) time(s step, do func() error) error {
	start := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", stepNames[s], err)
	}
	b.took[s] = time.Since(start)
	return nil
}

// each measures a step, which do performs for one connection.
func (b *bench) each(s step, do func(*conn) error) error {
	return b.time(s, func() error {
		for _, c := range b.conns {
			if err := do(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachWithEvent measures a step that ends with an event for each connection.
// Events are read while do is called for further connections.
func (b *bench) eachWithEvent(ctx context.Context, s step, want cm.EventType, do func(*conn) error,
	react func(*conn) error) error {
	return b.time(s, func() error {
		done := make(chan error, 1)
		go func() {
			done <- b.events(ctx, want, react)
		}()
		for _, c := range b.conns {
			if err := do(c); err != nil {
				return err
			}
		}
		return <-done
	})
}

// events reads one event of type want for each connection, and calls react with
// each, unless react is nil.
func (b *bench) events(ctx context.Context, want cm.EventType, react func(*conn) error) error {
	for n := 0; n < len(b.conns); {
		e, err := b.ch.Next(ctx)
		if err != nil {
			return err
		}
		if e.Type != want {
			if err := e.Err(); err != nil {
				return err
			}
			continue // the end of TIMEWAIT of earlier connections
		}
		n++
		if react == nil {
			continue
		}
		if err := react(e.ID.Context.(*conn)); err != nil {
			return err
		}
	}
	return nil
}

// makeQP creates the QP of an id.
func (b *bench) makeQP(c *conn) error {
	if b.pd == nil {
		var err error
		if b.pd, err = c.id.Verbs().AllocPD(); err != nil {
			return err
		}
		if b.cq, err = c.id.Verbs().CreateCQ(uverbs.CQConfig{Entries: 1, NoEvents: true}); err != nil {
			return err
		}
	}
	var err error
	c.qp, err = b.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: b.cq, MaxSendWR: 1, MaxRecvWR: 1, SignalAll: true})
	return err
}

// modify moves the QP through states.
func (c *conn) modify(states ...uverbs.QPState) error {
	for _, s := range states {
		a, m, err := c.id.InitQPAttr(s)
		if err != nil {
			return err
		}
		if err := c.qp.Modify(a, m); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) param() *cm.ConnParam {
	return &cm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: cm.NoRetry,
		RNRRetryCount: cm.NoRetry, QPN: c.qp.QPN()}
}

// destroy closes all QPs and ids, in the order of the C program. Meanwhile it reads the events of connections whose
// TIMEWAIT ends, as a thread of the C program does: closing an id searches the events that were not read.
func (b *bench) destroy(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	drained := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			_, err = b.ch.Next(ctx)
		}
		drained <- err
	}()
	err := b.each(destroyQP, func(c *conn) error { return c.qp.Close() })
	if err == nil {
		err = b.each(destroyID, func(c *conn) error { return c.id.Close() })
	}
	cancel()
	if e := <-drained; err == nil && !errors.Is(e, context.Canceled) {
		err = e
	}
	return err
}

func (b *bench) close() error {
	var errs []error
	for _, c := range b.conns {
		if c.id != nil {
			errs = append(errs, c.id.Close())
		}
		if c.qp != nil {
			errs = append(errs, c.qp.Close())
		}
	}
	if b.cq != nil {
		errs = append(errs, b.cq.Close())
	}
	if b.pd != nil {
		errs = append(errs, b.pd.Close())
	}
	return errors.Join(append(errs, b.ch.Close())...)
}

func (b *bench) report(w io.Writer) error {
	var errs []error
	_, err := fmt.Fprintf(w, "qp_conn        %10d\nstep             avg/iter  total(us)\n", len(b.conns))
	errs = append(errs, err)
	for s, took := range b.took {
		us := took.Microseconds()
		_, err := fmt.Fprintf(w, "%-13s  %10d %10d\n", stepNames[s], us/int64(len(b.conns)), us)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
