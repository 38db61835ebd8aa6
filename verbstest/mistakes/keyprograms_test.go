package mistakes

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// These programs use keys that were valid before. They are written as those in programs_test.go.

func closedMRInFlight(device string) string {
	p := newPair(device, config{})
	defer p.close()
	mr := must(p.pd.Alloc(size, all))
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{mr.SGE(0, 64)}}
	must(p.a.qp.PostSend(wr)) // it is repeated until the peer has a receive
	check(mr.Close())         // mistake
	return completion(p.a, patience)
}

func closedMRWithReceive(device string) string {
	p := newPair(device, config{})
	defer p.close()
	mr := must(p.pd.Alloc(size, all))
	must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{mr.SGE(0, 256)}}))
	check(mr.Close()) // mistake
	must(p.a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{p.a.mr.SGE(0, 256)}}))
	return completion(p.a, patience)
}

// window calls f with a window of a type and a region that permits windows.
func window(device string, kind uverbs.MWType, f func(p *pair, mr *uverbs.MR, mw *uverbs.MW) string) string {
	p := newPair(device, config{})
	defer p.close()
	mr := must(p.pd.Alloc(size, all|uverbs.MWBindAccess))
	mw := must(p.pd.AllocMW(kind))
	defer func() { check(errors.Join(mw.Close(), mr.Close())) }()
	return f(p, mr, mw)
}

// read reads from the peer.
func (p *pair) read(addr uint64, rkey uint32) uverbs.SendWR {
	return uverbs.SendWR{Opcode: uverbs.OpRead, Flags: uverbs.Signaled, SGL: []uverbs.SGE{p.a.mr.SGE(0, 8)},
		RemoteAddr: addr, RKey: rkey}
}

// bind returns a request that binds a window of type 2 for READs.
func bind(mw *uverbs.MW, rkey uint32, mr *uverbs.MR) uverbs.SendWR {
	return uverbs.SendWR{Opcode: uverbs.OpBindMW, Flags: uverbs.Signaled,
		Bind: &uverbs.MWBind{MW: mw, RKey: rkey, MWRange: uverbs.MWRange{MR: mr, Len: 64, Access: uverbs.RemoteRead}}}
}

func keyBeforeBind(device string) string {
	return window(device, uverbs.MWType1, func(p *pair, mr *uverbs.MR, mw *uverbs.MW) string {
		r := uverbs.MWRange{MR: mr, Len: 64, Access: uverbs.RemoteRead}
		check(mw.Bind(p.b.qp, 1, uverbs.Signaled, r))
		old := mw.RKey()
		completion(p.b, patience)
		check(mw.Bind(p.b.qp, 2, uverbs.Signaled, r))
		completion(p.b, patience)
		must(p.a.qp.PostSend(p.read(mr.Addr(), old))) // mistake
		return completion(p.a, patience)
	})
}

func invalidatedKey(device string) string {
	return window(device, uverbs.MWType2, func(p *pair, mr *uverbs.MR, mw *uverbs.MW) string {
		rkey := uverbs.IncRKey(mw.RKey())
		must(p.b.qp.PostSend(bind(mw, rkey, mr)))
		completion(p.b, patience)
		must(p.b.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpLocalInv, Flags: uverbs.Signaled, InvalidateRKey: rkey}))
		completion(p.b, patience)
		must(p.a.qp.PostSend(p.read(mr.Addr(), rkey))) // mistake
		return completion(p.a, patience)
	})
}

func keyBeforeRereg(device string) string {
	p := newPair(device, config{})
	defer p.close()
	addr, old := p.b.mr.Addr(), p.b.mr.RKey()
	if err := p.b.mr.Rereg(uverbs.ReregTranslation, nil, make([]byte, 2*size), 0); err != nil {
		return err.Error()
	}
	must(p.a.qp.PostSend(p.read(addr, old))) // mistake
	return completion(p.a, patience)
}

func overrunCQOfSRQ(device string) string {
	p := open(device)
	srq := must(p.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 64}))
	p.connect(config{srq: srq, entries: 15, sends: 15})
	defer func() {
		check(p.b.qp.Close())
		check(srq.Close())
		p.close()
	}()
	for i := range 64 {
		must(srq.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(64*i, 64)}})) // mistake
	}
	for range 40 {
		must(p.a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("x")}))
		if seen := completion(p.a, patience); seen != "success" {
			return seen
		}
	}
	return "40 messages"
}

func closedMRWithWindow(device string) string {
	return window(device, uverbs.MWType2, func(p *pair, mr *uverbs.MR, mw *uverbs.MW) string {
		must(p.b.qp.PostSend(bind(mw, uverbs.IncRKey(mw.RKey()), mr)))
		completion(p.b, patience)
		return fmt.Sprint(mr.Close())
	})
}

func bindWithoutRight(device string) string {
	p := newPair(device, config{})
	defer p.close()
	mw := must(p.pd.AllocMW(uverbs.MWType2))
	defer mw.Close()
	must(p.b.qp.PostSend(bind(mw, uverbs.IncRKey(mw.RKey()), p.b.mr))) // mistake
	return completion(p.b, patience)
}

func boundTwice(device string) string {
	return window(device, uverbs.MWType2, func(p *pair, mr *uverbs.MR, mw *uverbs.MW) string {
		rkey := uverbs.IncRKey(mw.RKey())
		must(p.b.qp.PostSend(bind(mw, rkey, mr)))
		completion(p.b, patience)
		must(p.b.qp.PostSend(bind(mw, uverbs.IncRKey(rkey), mr))) // mistake
		return completion(p.b, patience)
	})
}
