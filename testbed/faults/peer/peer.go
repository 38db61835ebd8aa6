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

// The numbers of outstanding messages.
const (
	window   = 16 // SENDs
	receives = 2 * window
	rounds   = 4 // pairs of a WRITE and the READ that fetches it back
	slot     = 4096
)

// The parts of the registered memory, in slots. The part that the peer may write is
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

// A peer is the state of this process, which outlives connections.
type peer struct {
	options options
	account *faults.Account
	number  uint64 // of this process

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
	if p.dev, err = uverbs.Open(p.options.device); err != nil {
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

// close closes each object separately, so that an object that is still in use is an error.
func (p *peer) close() error {
	return errors.Join(p.mr.Close(), p.pd.Close(), p.dev.Close())
}

// slot returns a slot of the memory.
func (p *peer) slot(i int) []byte { return p.mr.Bytes()[i*slot:][:slot] }

func (p *peer) sge(i, n int) uverbs.SGE { return p.mr.SGE(i*slot, n) }

// A hello is the message that the ends exchange first.
type hello struct {
	Run, Partner uint64 // numbers of the sender, and of the partner that it knows
	Received     uint64 // how many of Partner's messages it has
	Addr         uint64 // where rounds are written to
	RKey         uint32
}

func (p *peer) hello() hello {
	return hello{p.number, p.partner, p.expected, p.mr.Addr() + windowAt*slot, p.mr.RKey()}
}

// setPartner continues with a known partner, or starts with a new one.
func (p *peer) setPartner(h hello) {
	if h.Run != p.partner {
		p.account.Peers++
		p.partner, p.expected, p.checked, p.acked, p.next = h.Run, 0, 0, 0, 0
	}
	if h.Partner != p.number {
		h.Received = 0
	}
	if h.Received < p.acked {
		p.account.Lost += int(p.acked - h.Received)
	}
	if h.Received < p.next {
		p.account.Resent += int(p.next - h.Received)
	}
	p.acked, p.next = h.Received, h.Received
}

// attempts is how often a client tries to connect again.
const attempts = 20

// runSessions runs sessions until both ends have finished.
func (p *peer) runSessions(ctx, term context.Context, l lines) error {
	refused := 0
	for {
		ln, err := l.next(term)
		switch {
		case term.Err() != nil && err == nil:
			return ln.close()
		case term.Err() != nil:
			return context.Cause(ctx) // nil after SIGTERM, which is a normal end
		case err != nil:
			p.account.Refused++
			if refused++; p.options.call != "" && refused >= attempts {
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
			if !p.options.stay {
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

// session exchanges messages over one connection. why is the reason why it broke; err is
// an error after which this process cannot continue.
func (p *peer) session(ctx context.Context, ln line) (why, err error) {
	if p.account.Sessions == 0 {
		p.started = time.Now()
	}
	p.account.Sessions++
	if p.account.Broken > 0 {
		p.account.Recovered++
	}
	defer func() {
		p.account.Seconds = time.Since(p.started).Seconds()
		err = errors.Join(err, ln.close())
	}()
	p.setPartner(ln.remoteHello())
	say(faults.Event{Event: faults.Connected})
	s := newSession(p, ln)
	why = s.run(ctx)
	if why == nil {
		why = ln.finish(ctx)
	}
	if why != nil {
		p.account.Broken++
	}
	return why, s.drain(why)
}
