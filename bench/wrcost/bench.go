package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/bench/kit"
	"github.com/goverbs/goverbs/uverbs"
)

const (
	each      = 128 // requests in a round
	list      = 32  // requests in a list or a batch
	size      = 32  // bytes of a message
	maxRounds = 15
	recvRoom  = each * (2*maxRounds + 2)
)

// A bench has QPs that write to themselves, and requests for them.
type bench struct {
	ctx      *uverbs.Context
	single   bool // queues are SingleGoroutine
	pd       *uverbs.PD
	mr       *uverbs.MR
	cq       *uverbs.CQ
	qps      []*uverbs.QP // the QP of each request in a round
	recv     *uverbs.QP
	arrivals *arrivals

	addr  uint64
	rkey  uint32
	sge   uverbs.SGE
	data  []byte
	one   [2][]uverbs.SendWR // by SGE, and inline
	many  [2][]uverbs.SendWR
	recvs []uverbs.RecvWR
	wcs   []uverbs.WC
}

// newShared returns a bench with what all QPs share.
func newShared(ctx *uverbs.Context, single bool, access uverbs.Access) (b *bench, err error) {
	b = &bench{ctx: ctx, single: single, data: make([]byte, size), wcs: make([]uverbs.WC, list)}
	if b.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	if b.mr, err = b.pd.Alloc(1<<16, access); err != nil {
		return nil, err
	}
	b.addr, b.rkey, b.sge = b.mr.Addr()+4096, b.mr.RKey(), b.mr.SGE(0, size)
	b.cq, err = ctx.CreateCQ(uverbs.CQConfig{Entries: 2 * each, NoEvents: true, SingleGoroutine: single})
	return b, err
}

func newBench(ctx *uverbs.Context, qps int, single bool) (*bench, error) {
	b, err := newShared(ctx, single, uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		return nil, err
	}
	var all []*uverbs.QP
	for i := range qps {
		q, err := kit.CreateLoop(b.pd, uverbs.QPConfig{Type: uverbs.RC, SendCQ: b.cq, MaxSendWR: 2 * each, MaxRecvWR: 16,
			MaxInline: size, Access: uverbs.RemoteWrite, SingleGoroutine: single})
		if err != nil {
			return nil, fmt.Errorf("queue pair %d: %w", i+1, err)
		}
		all = append(all, q)
	}
	for i := range each {
		b.qps = append(b.qps, all[i*qps/each])
	}
	b.recv, err = kit.CreateLoop(b.pd,
		uverbs.QPConfig{Type: uverbs.RC, SendCQ: b.cq, MaxSendWR: 1, MaxRecvWR: recvRoom, SingleGoroutine: single})
	if err != nil {
		return nil, err
	}
	b.requests()
	b.arrivals, err = newArrivals(b)
	return b, err
}

func (b *bench) requests() {
	wr := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, RemoteAddr: b.addr, RKey: b.rkey}
	for i := range b.one {
		wr.SGL, wr.Inline = []uverbs.SGE{b.sge}, nil
		if i == 1 {
			wr.SGL, wr.Inline = nil, b.data
		}
		b.one[i] = []uverbs.SendWR{wr}
		b.many[i] = slices.Repeat(b.one[i], list)
	}
	for range list {
		b.recvs = append(b.recvs, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{b.sge}})
	}
}

// A round does an operation each times. Its loop checks every error, as programs
// do.
type round struct {
	name string
	do   func() error
	send bool // it leaves completions to poll
}

func (b *bench) rounds() []round {
	return []round{
		{"write", func() error { return b.postOne(b.one[0]) }, true},
		{"inline", func() error { return b.postOne(b.one[1]) }, true},
		{"list32", func() error { return b.postMany(b.many[0]) }, true},
		{"list32inline", func() error { return b.postMany(b.many[1]) }, true},
		{"builder32", b.build, true},
		{"builder32inline", b.buildInline, true},
		{"calls32", b.buildByCalls, true},
		{"calls32inline", b.buildInlineByCalls, true},
		{"recv", b.postRecv, false},
		{"recv32", b.postRecvs, false},
		{"empty", b.pollEmpty, false},
	}
}

func (b *bench) postOne(wrs []uverbs.SendWR) error {
	for _, q := range b.qps {
		if _, err := q.PostSend(wrs...); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) postMany(wrs []uverbs.SendWR) error {
	for i := 0; i < each; i += list {
		if _, err := b.qps[i].PostSend(wrs...); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) build() error {
	for i := 0; i < each; i += list {
		s := b.qps[i].StartSend()
		for range list {
			s.WriteSGE(1, uverbs.Signaled, b.addr, b.rkey, b.sge)
		}
		if err := s.Submit(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) buildInline() error {
	for i := 0; i < each; i += list {
		s := b.qps[i].StartSend()
		for range list {
			s.WriteInline(1, uverbs.Signaled, b.addr, b.rkey, b.data)
		}
		if err := s.Submit(); err != nil {
			return err
		}
	}
	return nil
}

// buildByCalls is like build, with separate calls for the operation and its data.
func (b *bench) buildByCalls() error {
	for i := 0; i < each; i += list {
		s := b.qps[i].StartSend()
		for range list {
			s.Write(1, uverbs.Signaled, b.addr, b.rkey)
			s.SGE(b.sge)
		}
		if err := s.Submit(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) buildInlineByCalls() error {
	for i := 0; i < each; i += list {
		s := b.qps[i].StartSend()
		for range list {
			s.Write(1, uverbs.Signaled, b.addr, b.rkey)
			s.Inline(b.data)
		}
		if err := s.Submit(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) postRecv() error {
	wrs, q := b.recvs[:1], b.recv
	for range each {
		if _, err := q.PostRecv(wrs...); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) postRecvs() error {
	for range each / list {
		if _, err := b.recv.PostRecv(b.recvs...); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) pollEmpty() error {
	cq, wcs := b.cq, b.wcs[:1]
	for range each {
		if n, err := cq.Poll(wcs); n != 0 || err != nil {
			return fmt.Errorf("%d completions of an empty queue, %w", n, err)
		}
	}
	return nil
}

// poll polls all completions of a round, n at a time. It returns the number of
// calls that found none; a round with such calls must not be measured.
func (b *bench) poll(n int) (empty int, err error) {
	cq, wcs := b.cq, b.wcs[:n]
	for got := 0; got < each; {
		k, err := cq.Poll(wcs)
		if err != nil {
			return empty, err
		}
		if k == 0 {
			empty++
		}
		done := wcs[:k]
		for i := range done {
			if err := done[i].Err(); err != nil {
				return empty, err
			}
		}
		got += k
	}
	return empty, nil
}

// waitIdle waits until the device has executed all requests: it executes a command
// only after earlier doorbells.
func (b *bench) waitIdle() error {
	for range 3 {
		if _, err := b.ctx.QueryPort(1); err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

// figures has the smallest figure of each name.
type figures struct {
	clock time.Duration // the cost of reading the clock
	best  map[string]float64
	names []string // in the order of their first rounds
}

func newFigures() *figures {
	f := &figures{clock: time.Hour, best: map[string]float64{}}
	for range 10 {
		began := time.Now()
		f.clock = min(f.clock, time.Since(began))
	}
	return f
}

// note adds a round.
func (f *figures) note(name string, took time.Duration) {
	v := float64(took-f.clock) / each
	old, ok := f.best[name]
	if !ok {
		f.names = append(f.names, name)
	}
	if !ok || v < old {
		f.best[name] = v
	}
}

// print prints the figures with these names.
func (f *figures) print(names []string) error {
	for _, name := range names {
		v, ok := f.best[name]
		if !ok {
			return errors.New("no valid round of " + name)
		}
		fmt.Printf("%s %.1f\n", name, v)
	}
	return nil
}

// measure runs the rounds and prints the smallest figure of each kind.
func (b *bench) measure(rounds int) error {
	f, all := newFigures(), b.rounds()
	for i := range rounds {
		for k := range all {
			if i%2 == 1 { // so that no kind is always the first to touch a page of a ring
				k = len(all) - 1 - k
			}
			r := all[k]
			began := time.Now()
			err := r.do()
			took := time.Since(began)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			f.note(r.name, took)
			if !r.send {
				continue
			}
			if err := b.waitIdle(); err != nil {
				return err
			}
			n := 1 + (list-1)*((i+k)%2) // one or all
			began = time.Now()
			empty, err := b.poll(n)
			took = time.Since(began)
			if err != nil {
				return fmt.Errorf("completions of %s: %w", r.name, err)
			}
			if empty == 0 {
				f.note(fmt.Sprintf("poll%d", n), took)
			}
		}
		if err := b.arrivals.measure(f); err != nil {
			return err
		}
	}
	return f.print(names)
}

// names lists the figures in the order in which they are printed.
var names = []string{"write", "inline", "list32", "list32inline", "builder32", "builder32inline",
	"calls32", "calls32inline",
	"recv", "recv32", "poll1", "poll32", "empty", "short1", "short32", "long1", "long32"}
