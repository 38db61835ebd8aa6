package main

import (
	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
)

// sges reads the SGEs at the end of a step.
func (p *player) sges() (all []uverbs.SGE) {
	for range p.nextArg() {
		off := p.nextArg()
		all = append(all, p.mr.SGE(off, p.nextArg()))
	}
	return all
}

func (p *player) begin() error {
	p.batchQP = *one(p, p.qps[:])
	p.builder = p.nextArg() == 1
	p.batch = nil
	return nil
}

// request reads the fields common to all requests.
func (p *player) request() uverbs.SendWR {
	w := uverbs.SendWR{Opcode: uverbs.Opcode(p.nextArg())}
	w.Flags = uverbs.SendFlags(p.nextArg())
	w.WRID = uint64(p.nextArg())
	return w
}

// add reads a request's data, and adds the request to those to be posted.
func (p *player) add(w uverbs.SendWR) error {
	off, n := p.nextArg(), p.nextArg()
	if n > 0 {
		w.Inline = p.mr.Bytes()[off:][:n]
	}
	w.SGL = p.sges()
	p.batch = append(p.batch, w)
	return nil
}

func (p *player) wr() error {
	w := p.request()
	w.RemoteAddr = p.mr.Addr() + uint64(p.nextArg())
	w.RKey = p.mr.RKey()
	if i := p.nextArg(); i >= 0 {
		w.RKey = p.keys[i]
	}
	w.Imm = uint32(p.nextArg())
	w.CompareAdd = uint64(p.nextArg())
	w.Swap = uint64(p.nextArg())
	return p.add(w)
}

func (p *player) xwr() error {
	s := *one(p, p.srqs[:])
	err := p.wr()
	if err == nil {
		p.batch[len(p.batch)-1].RemoteSRQN = s.SRQN()
	}
	return err
}

func (p *player) datagram() error {
	w := p.request()
	w.Imm = uint32(p.nextArg())
	w.AH = *one(p, p.ahs[:])
	w.QPN = (*one(p, p.qps[:])).QPN()
	w.QKey = udKey
	return p.add(w)
}

func (p *player) tso() error {
	w := p.request()
	off, n := p.nextArg(), p.nextArg()
	w.Inline, w.MSS = p.mr.Bytes()[off:][:n], uint16(p.nextArg())
	w.SGL = p.sges()
	p.batch = append(p.batch, w)
	return nil
}

func (p *player) store() error {
	b := p.mr.Bytes()[p.nextArg():]
	for i := range p.nextArg() {
		b[i] = byte(p.nextArg())
	}
	return nil
}

func (p *player) invalidate() error {
	w := p.request()
	w.InvalidateRKey = *one(p, p.keys[:])
	return p.add(w)
}

// window reads the range of a bind.
func (p *player) window() uverbs.MWRange {
	r := uverbs.MWRange{MR: p.mr, Off: p.nextArg()}
	r.Len = p.nextArg()
	r.Access = uverbs.Access(p.nextArg())
	return r
}

func (p *player) bind() error {
	w := p.request()
	i := p.nextArg()
	p.keys[i] = uverbs.IncRKey(p.keys[i])
	w.Bind = &uverbs.MWBind{MW: p.mws[i], RKey: p.keys[i], MWRange: p.window()}
	p.batch = append(p.batch, w)
	return nil
}

func (p *player) bind1() error {
	q, i, id := *one(p, p.qps[:]), p.nextArg(), p.nextArg()
	if err := p.mws[i].Bind(q, uint64(id), uverbs.Signaled, p.window()); err != nil {
		return err
	}
	p.keys[i] = p.mws[i].RKey()
	return nil
}

func (p *player) post() error {
	if p.builder {
		if err := p.build(); err != nil {
			return err
		}
	} else if _, err := p.batchQP.PostSend(p.batch...); err != nil {
		return err
	}
	for _, w := range p.batch {
		if w.Bind != nil {
			w.Bind.MW.SetRKey(w.Bind.RKey)
		}
	}
	return nil
}

// build posts by the builder.
func (p *player) build() error {
	b := p.batchQP.StartSend()
	defer b.Abort()
	for i := range p.batch {
		if err := providertest.Add(&b, &p.batch[i]); err != nil {
			return err
		}
	}
	return b.Submit()
}

func (p *player) recv() error {
	q := *one(p, p.qps[:])
	w := uverbs.RecvWR{WRID: uint64(p.nextArg()), SGL: p.sges()}
	_, err := q.PostRecv(w)
	return err
}

func (p *player) srqRecv() error {
	s := *one(p, p.srqs[:])
	w := uverbs.RecvWR{WRID: uint64(p.nextArg()), SGL: p.sges()}
	_, err := s.PostRecv(w)
	return err
}
