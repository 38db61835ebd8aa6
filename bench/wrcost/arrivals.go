package main

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/bench/kit"
	"github.com/goverbs/goverbs/uverbs"
)

// long is the size of a message that does not fit into a completion.
const long = 200

// arrivals is a QP that sends to itself, with separate CQs for sends and receives.
type arrivals struct {
	*bench
	qp   *uverbs.QP
	sent *uverbs.CQ
	from [2]uverbs.SGE // a short message and a long one
	to   uverbs.SGE
}

func newArrivals(b *bench) (*arrivals, error) {
	a := &arrivals{bench: b, from: [2]uverbs.SGE{b.sge, b.mr.SGE(0, long)}, to: b.mr.SGE(8192, long)}
	var err error
	if a.sent, err = b.ctx.CreateCQ(uverbs.CQConfig{Entries: 16, NoEvents: true, SingleGoroutine: b.single}); err != nil {
		return nil, err
	}
	a.qp, err = kit.CreateLoop(b.pd, uverbs.QPConfig{Type: uverbs.RC, SendCQ: a.sent, RecvCQ: b.cq, MaxSendWR: each,
		MaxRecvWR: each, SingleGoroutine: b.single})
	return a, err
}

// send sends a round of messages. Only the last send is signaled.
func (a *arrivals) send(kind int) error {
	for i := range each {
		if _, err := a.qp.PostRecv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{a.to}}); err != nil {
			return err
		}
		wr := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSend, SGL: []uverbs.SGE{a.from[kind]}}
		if i == each-1 {
			wr.Flags = uverbs.Signaled
		}
		if _, err := a.qp.PostSend(wr); err != nil {
			return err
		}
	}
	return nil
}

// sendDone polls the completion of the last send.
func (a *arrivals) sendDone() error {
	wcs := make([]uverbs.WC, 1)
	n, err := a.sent.Poll(wcs)
	if err == nil && n != 1 {
		err = fmt.Errorf("%d completions of %d messages", n, each)
	}
	if err != nil {
		return err
	}
	return wcs[0].Err()
}

// measure measures polls of completions of receives.
func (a *arrivals) measure(f *figures) error {
	for kind, name := range []string{"short", "long"} {
		for _, n := range []int{1, list} {
			if err := a.send(kind); err != nil {
				return fmt.Errorf("%s messages: %w", name, err)
			}
			if err := a.waitIdle(); err != nil {
				return err
			}
			if err := a.sendDone(); err != nil {
				return fmt.Errorf("%s messages: %w", name, err)
			}
			began := time.Now()
			empty, err := a.poll(n)
			took := time.Since(began)
			if err != nil {
				return fmt.Errorf("receives of %s messages: %w", name, err)
			}
			if empty == 0 {
				f.note(fmt.Sprintf("%s%d", name, n), took)
			}
		}
	}
	return nil
}
