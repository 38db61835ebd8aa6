package main

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

const dcKey = 0xffeeddcc

// dcBench has a DCI that writes through a DCT of the same context.
type dcBench struct {
	*bench
	dci  *uverbs.QP
	ah   *uverbs.AH
	dctn uint32
}

// newDCBench returns a bench whose requests are for a DCT.
func newDCBench(ctx *uverbs.Context, single bool) (*dcBench, error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	mr, err := pd.Alloc(1<<16, uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		return nil, err
	}
	cq, err := ctx.CreateCQ(uverbs.CQConfig{Entries: 2 * each, NoEvents: true, SingleGoroutine: single})
	if err != nil {
		return nil, err
	}
	srq, err := pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 16})
	if err != nil {
		return nil, err
	}
	dct, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: cq, SRQ: srq, DCKey: dcKey,
		Access: uverbs.RemoteWrite})
	if err != nil {
		return nil, err
	}
	if err := dct.Ready(); err != nil {
		return nil, err
	}
	d := &dcBench{dctn: dct.QPN(), bench: &bench{ctx: ctx, cq: cq, addr: mr.Addr() + 4096, rkey: mr.RKey(),
		sge: mr.SGE(0, size), data: make([]byte, size), wcs: make([]uverbs.WC, list)}}
	d.dci, err = pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: cq, MaxSendWR: 2 * each, MaxInline: size,
		SingleGoroutine: single})
	if err != nil {
		return nil, err
	}
	if err := d.dci.Ready(); err != nil {
		return nil, err
	}
	self, err := dct.Endpoint()
	if err != nil {
		return nil, err
	}
	attr, err := d.dci.AHAttr(self)
	if err != nil {
		return nil, err
	}
	if d.ah, err = pd.CreateAH(attr); err != nil {
		return nil, err
	}
	for range each {
		d.qps = append(d.qps, d.dci)
	}
	d.requests()
	for i := range d.one {
		for _, wrs := range [][]uverbs.SendWR{d.one[i], d.many[i]} {
			for k := range wrs {
				wrs[k].AH, wrs[k].QPN, wrs[k].DCKey = d.ah, d.dctn, dcKey
			}
		}
	}
	return d, nil
}

func (d *dcBench) rounds() []round {
	return []round{
		{"write", func() error { return d.postOne(d.one[0]) }, true},
		{"inline", func() error { return d.postOne(d.one[1]) }, true},
		{"list32", func() error { return d.postMany(d.many[0]) }, true},
		{"list32inline", func() error { return d.postMany(d.many[1]) }, true},
		{"builder1", func() error { return d.build(1) }, true},
		{"builder1inline", func() error { return d.buildInline(1) }, true},
		{"builder32", func() error { return d.build(list) }, true},
		{"builder32inline", func() error { return d.buildInline(list) }, true},
	}
}

func (d *dcBench) build(n int) error {
	for i := 0; i < each; i += n {
		s := d.dci.StartSend()
		for range n {
			s.WriteSGE(1, uverbs.Signaled, d.addr, d.rkey, d.sge)
			s.DCAddr(d.ah, d.dctn, dcKey)
		}
		if err := s.Submit(); err != nil {
			return err
		}
	}
	return nil
}

func (d *dcBench) buildInline(n int) error {
	for i := 0; i < each; i += n {
		s := d.dci.StartSend()
		for range n {
			s.WriteInline(1, uverbs.Signaled, d.addr, d.rkey, d.data)
			s.DCAddr(d.ah, d.dctn, dcKey)
		}
		if err := s.Submit(); err != nil {
			return err
		}
	}
	return nil
}

// measure runs the rounds and prints the smallest figure of each kind.
func (d *dcBench) measure(rounds int) error {
	best := map[string]float64{}
	clock := time.Hour
	for range 10 {
		began := time.Now()
		clock = min(clock, time.Since(began))
	}
	for range rounds {
		for _, r := range d.rounds() {
			began := time.Now()
			err := r.do()
			took := time.Since(began)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if v, ok := best[r.name]; !ok || float64(took-clock)/each < v {
				best[r.name] = float64(took-clock) / each
			}
			if err := d.waitIdle(); err != nil {
				return err
			}
			if _, err := d.poll(list); err != nil {
				return fmt.Errorf("completions of %s: %w", r.name, err)
			}
		}
	}
	for _, r := range d.rounds() {
		fmt.Printf("%s %.1f\n", r.name, best[r.name])
	}
	return nil
}
