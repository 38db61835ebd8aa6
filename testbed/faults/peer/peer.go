package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/testbed/faults"
	"github.com/goverbs/goverbs/uverbs"
)

// How many messages are out at a time.
const (
	window   = 16 // SENDs
	receives = 2 * window
	rounds   = 4 // pairs of a WRITE and the READ that fetches it back
	slot     = 4096
)

// The parts of the registered memory, in slots. What the peer may write comes
// first.
const (
	windowAt  = 0
	sendAt    = windowAt + rounds
	doneAt    = sendAt + window
	recvAt    = doneAt + 1
	roundAt   = recvAt + receives
	landingAt = roundAt + rounds
	slots     = landingAt + rounds
)

// A peer is this process: what it has sent and received outlives connections.
type peer struct {
	o      options
	a      *faults.Account
	number uint64 // of this process

	dev *uverbs.Context
	pd  *uverbs.PD
	mr  *uverbs.MR

	partner  uint64 // number of the other process
	acked    uint64 // SENDs that have completed, or that the partner says it has
	next     uint64 // SEND
	expected uint64 // message from the partner
	checked  uint64 // rounds
	started  time.Time
}

func (p *peer) open() (err error) {
	var b [8]byte
	rand.Read(b[:]) // never fails: see crypto/rand
	p.number = binary.LittleEndian.Uint64(b[:])
	if p.dev, err = uverbs.Open(p.o.device); err != nil {
		return err
	}
	if p.pd, err = p.dev.AllocPD(); err != nil {
		return errors.Join(err, p.dev.Close())
	}
	p.mr, err = p.pd.Alloc(slots*slot, uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteRead)
	if err != nil {
		return errors.Join(err, p.dev.Close())
	}
	return nil
}

// close closes each object by itself: one that others still use is a mistake.
func (p *peer) close() error {
	return errors.Join(p.mr.Close(), p.pd.Close(), p.dev.Close())
}

// slot is a part of the memory.
func (p *peer) slot(i int) []byte { return p.mr.Bytes()[i*slot:][:slot] }

func (p *peer) sge(i, n int) uverbs.SGE { return p.mr.SGE(i*slot, n) }

// A hello is what the ends tell each other before they begin.
type hello struct {
	Run, Partner uint64 // who speaks, and whom it knows
	Received     uint64 // how many of Partner's messages it has
	Addr         uint64 // where rounds are written to
	RKey         uint32
}

func (p *peer) hello() hello {
	return hello{p.number, p.partner, p.expected, p.mr.Addr() + windowAt*slot, p.mr.RKey()}
}

// meet takes up where the two ended, or begins with a process that is new.
func (p *peer) meet(h hello) {
	if h.Run != p.partner {
		p.a.Peers++
		p.partner, p.expected, p.checked, p.acked, p.next = h.Run, 0, 0, 0, 0
	}
	if h.Partner != p.number {
		h.Received = 0
	}
	if h.Received < p.acked {
		p.a.Lost += int(p.acked - h.Received)
	}
	if h.Received < p.next {
		p.a.Resent += int(p.next - h.Received)
	}
	p.acked, p.next = h.Received, h.Received
}

// attempts is how often a client tries to come through again.
const attempts = 20

// talk makes sessions until both ends are done.
func (p *peer) talk(ctx, term context.Context, l lines) error {
	refused := 0
	for {
		ln, err := l.next(term)
		switch {
		case term.Err() != nil && err == nil:
			return ln.close()
		case term.Err() != nil:
			return context.Cause(ctx) // nil after SIGTERM, which is the end that was meant
		case err != nil:
			p.a.Refused++
			if refused++; p.o.call != "" && refused >= attempts {
				return fmt.Errorf("%d attempts to connect, the last: %w", refused, err)
			}
			say(faults.Event{Event: faults.Refused, Text: err.Error()})
			continue
		}
		refused = 0
		why, err := p.session(ctx, ln)
		if err != nil {
			return err
		}
		if why == nil {
			say(faults.Event{Event: faults.Over})
			if !p.o.stay {
				return nil
			}
			continue
		}
		say(faults.Event{Event: faults.Broken, Text: why.Error()})
		if ctx.Err() != nil {
			return why
		}
	}
}

// session talks over one connection. why tells what broke it, err that this
// process cannot go on.
func (p *peer) session(ctx context.Context, ln line) (why, err error) {
	if p.a.Sessions == 0 {
		p.started = time.Now()
	}
	p.a.Sessions++
	if p.a.Broken > 0 {
		p.a.Recovered++
	}
	defer func() {
		p.a.Seconds = time.Since(p.started).Seconds()
		err = errors.Join(err, ln.close())
	}()
	p.meet(ln.partner())
	say(faults.Event{Event: faults.Connected})
	s := newSession(p, ln)
	why = s.run(ctx)
	if why == nil {
		why = ln.bye(ctx)
	}
	if why != nil {
		p.a.Broken++
	}
	return why, s.drain(why)
}
