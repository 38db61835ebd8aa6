package mistakes

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// These programs connect QPs with wrong attributes. They are written as those in programs_test.go.

// attributes are those of the transitions of one end.
type attributes struct{ rtr, rts uverbs.QPAttr }

const (
	rtrMask = uverbs.MaskState | uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRQPSN |
		uverbs.MaskMaxDestRdAtomic | uverbs.MaskMinRNRTimer
	rtsMask = uverbs.MaskState | uverbs.MaskSQPSN | uverbs.MaskMaxRdAtomic | uverbs.MaskTimeout | uverbs.MaskRetryCount |
		uverbs.MaskRNRRetryCount
)

// wired calls f with a pair in state INIT, and the attributes with which both ends can be connected.
func wired(device string, f func(p *pair, a, b attributes) string) string {
	p := open(device)
	c := config{kind: uverbs.RC, access: all &^ uverbs.LocalWrite}
	p.a, p.b = p.end(c, nil), p.end(c, nil)
	defer p.close()
	a, b := must(p.a.qp.Endpoint()), must(p.b.qp.Endpoint())
	check(errors.Join(p.a.qp.Init(), p.b.qp.Init()))
	for _, e := range []end{p.a, p.b} {
		must(e.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{e.mr.SGE(0, 2048)}}))
	}
	return f(p, p.a.attributes(a, b), p.b.attributes(b, a))
}

func (e end) attributes(own, peer uverbs.Endpoint) attributes {
	return attributes{
		rtr: uverbs.QPAttr{State: uverbs.StateRTR, AV: must(e.qp.AHAttr(peer)), PathMTU: uverbs.MTU1024,
			DestQPN: peer.QPN, RQPSN: peer.PSN, MaxDestRdAtomic: 4, MinRNRTimer: 12},
		rts: uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: own.PSN, MaxRdAtomic: 4, Timeout: 8, RetryCount: 3,
			RNRRetryCount: 3},
	}
}

func (e end) modify(a attributes) {
	check(errors.Join(e.qp.Modify(a.rtr, rtrMask), e.qp.Modify(a.rts, rtsMask)))
}

// post posts a message of n bytes to the peer.
func (p *pair) post(n int) {
	must(p.a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{p.a.mr.SGE(0, n)}}))
}

// send sends n bytes to the peer.
func (p *pair) send(n int) string {
	p.post(n)
	return completion(p.a, patience)
}

// readPeer reads from the peer's region.
func (p *pair) readPeer() uverbs.SendWR { return p.read(p.b.mr.Addr(), p.b.mr.RKey()) }

func otherPSN(device string) string {
	return wired(device, func(p *pair, a, b attributes) string {
		b.rtr.RQPSN = (b.rtr.RQPSN - 0x800) & 0xffffff // packets of lower PSNs would be acknowledged as repetitions
		check(p.b.qp.Modify(b.rtr, rtrMask))           // mistake
		check(p.b.qp.Modify(b.rts, rtsMask))
		p.a.modify(a)
		return p.send(64)
	})
}

func otherMTU(device string) string {
	return wired(device, func(p *pair, a, b attributes) string {
		b.rtr.PathMTU = uverbs.MTU256
		check(p.b.qp.Modify(b.rtr, rtrMask)) // mistake
		check(p.b.qp.Modify(b.rts, rtsMask))
		p.a.modify(a)
		return p.send(2048)
	})
}

func noReadsOfPeer(device string) string {
	return wired(device, func(p *pair, a, b attributes) string {
		b.rtr.MaxDestRdAtomic = 0
		check(p.b.qp.Modify(b.rtr, rtrMask)) // mistake
		check(p.b.qp.Modify(b.rts, rtsMask))
		p.a.modify(a)
		must(p.a.qp.PostSend(p.readPeer()))
		return completion(p.a, patience)
	})
}

func noReads(device string) string {
	return wired(device, func(p *pair, a, b attributes) string {
		p.b.modify(b)
		a.rts.MaxRdAtomic = 0
		check(p.a.qp.Modify(a.rtr, rtrMask))
		check(p.a.qp.Modify(a.rts, rtsMask)) // mistake
		if _, err := p.a.qp.PostSend(p.readPeer()); err != nil {
			return fmt.Sprint(err)
		}
		return completion(p.a, patience)
	})
}

func tooManyReads(device string) string {
	return wired(device, func(p *pair, a, b attributes) string {
		b.rtr.MaxDestRdAtomic = 1
		p.b.modify(b)
		p.a.modify(a)
		for range 2 {
			must(p.a.qp.PostSend(p.readPeer())) // mistake
		}
		return completion(p.a, patience)
	})
}
