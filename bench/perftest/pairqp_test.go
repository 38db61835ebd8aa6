package perftest

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/uverbs"
)

func (c *card) CreateQP(_ *uverbs.QPConfig, _ provider.QPEnv,
	create driver.Command) (provider.QP, driver.Reply, error) {
	r, err := create(nil, nil)
	if err != nil {
		return nil, r, err
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	q := &pairQP{c: c, at: len(c.qps), num: r.Number, cap: uverbs.QPCap(r.Cap), sends: make([]request, 0, r.Cap.MaxSendWR),
		recvs:  make([]receive, 0, r.Cap.MaxRecvWR),
		sendCQ: c.cqs[c.newQPCQs[0]], recvCQ: c.cqs[c.newQPCQs[1]]}
	c.qps = append(c.qps, q)
	return q, r, nil
}

// A receive waits for a message.
type receive struct {
	id     uint64
	sge    uverbs.SGE
	number int // in its queue, from 1
}

// A request waits for a receive.
type request struct {
	id       uint64
	op       uverbs.Opcode
	signaled bool
	sge      uverbs.SGE
	n        int      // bytes
	inline   [64]byte // the message, if inlined
	inlined  bool
	to       uint64
	number   int // in its queue, from 1
}

type pairQP struct {
	provider.QP    // the methods that the tests do not need
	c              *card
	at             int // index in card.qps
	num            uint32
	cap            uverbs.QPCap
	sendCQ, recvCQ *pairCQ

	gone               bool
	sends              []request
	recvs              []receive
	sent, sentFree     int // entries used, and freed
	posted, postedFree int // the same for receives
}

// peer returns the QP that this one is connected to.
func (q *pairQP) peer() *pairQP {
	if other := q.c.p.cards[1-q.c.end].qps; q.at < len(other) {
		return other[q.at]
	}
	return nil
}

func (q *pairQP) PostSend(wrs []uverbs.SendWR) (int, error) {
	p := q.c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range wrs {
		wr := &wrs[i]
		if q.sent-q.sentFree == q.cap.MaxSendWR {
			return i, uverbs.ErrQueueFull
		}
		q.sent++
		r := request{id: wr.WRID, op: wr.Opcode, signaled: wr.Flags&uverbs.Signaled != 0, n: len(wr.Inline),
			to: wr.RemoteAddr, number: q.sent}
		if len(wr.SGL) > 0 {
			r.sge, r.n = wr.SGL[0], int(wr.SGL[0].Length)
		} else {
			r.inlined = true
			copy(r.inline[:], wr.Inline)
		}
		p.record(posted{end: q.c.end, qp: q.at, signaled: r.signaled, at: r.sge.Addr, to: r.to, n: r.n})
		q.sends = append(q.sends, r)
	}
	q.run()
	return len(wrs), nil
}

func (q *pairQP) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	p := q.c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range wrs {
		if q.posted-q.postedFree == q.cap.MaxRecvWR {
			return i, uverbs.ErrQueueFull
		}
		q.posted++
		r := receive{id: wrs[i].WRID, number: q.posted}
		if len(wrs[i].SGL) > 0 {
			r.sge = wrs[i].SGL[0]
		}
		p.record(posted{end: q.c.end, qp: q.at, recv: true, at: r.sge.Addr, n: int(r.sge.Length)})
		q.recvs = append(q.recvs, r)
	}
	if peer := q.peer(); peer != nil {
		peer.run()
	}
	return len(wrs), nil
}

func (p *pair) record(what posted) {
	if len(p.log) < cap(p.log) {
		p.log = append(p.log, what)
	}
}

// run executes the requests in the send queue, as far as the peer has receives. The
// caller holds the pair's lock.
func (q *pairQP) run() {
	done := 0
	for i := range q.sends {
		if !q.execute(&q.sends[i]) {
			break
		}
		done++
	}
	q.sends = slices.Delete(q.sends, 0, done)
}

func (q *pairQP) execute(r *request) bool {
	peer := q.peer()
	needsReceive := r.op == uverbs.OpSend || r.op == uverbs.OpWriteImm
	if q.gone || peer.gone || needsReceive && len(peer.recvs) == 0 {
		return false
	}
	local := r.inline[:]
	if !r.inlined {
		local = q.c.memory(r.sge.Addr, r.n)
	}
	switch r.op {
	case uverbs.OpSend:
		if into := peer.recvs[0].sge; int(into.Length) < r.n {
			peer.c.mistakes = append(peer.c.mistakes, fmt.Sprintf("%d bytes for a receive of %d", r.n, into.Length))
		} else {
			copy(peer.c.memory(into.Addr, r.n), local)
		}
	case uverbs.OpWrite, uverbs.OpWriteImm:
		race.CopyHidden(peer.c.memory(r.to, r.n), local) // the program polls the memory
	case uverbs.OpRead, uverbs.OpFetchAdd, uverbs.OpCompareSwap: // only the fetched data is checked
		copy(local, peer.c.memory(r.to, r.n))
	}
	if needsReceive {
		into := &peer.recvs[0]
		peer.recvCQ.push(completion{uverbs.WC{WRID: into.id, Opcode: uverbs.WCRecv, QPNum: peer.num, SrcQP: q.num,
			ByteLen: uint32(r.n)}, &peer.postedFree, into.number})
		peer.recvs = slices.Delete(peer.recvs, 0, 1)
	}
	if r.signaled {
		q.sendCQ.push(completion{uverbs.WC{WRID: r.id, QPNum: q.num, ByteLen: uint32(r.n)}, &q.sentFree, r.number})
	}
	return true
}

func (q *pairQP) SendsOutstanding() int {
	q.c.p.mu.Lock()
	defer q.c.p.mu.Unlock()
	return q.sent - q.sentFree
}

func (q *pairQP) RecvsOutstanding() int {
	q.c.p.mu.Lock()
	defer q.c.p.mu.Unlock()
	return q.posted - q.postedFree
}

func (q *pairQP) Retire(bool) error {
	q.c.p.mu.Lock()
	defer q.c.p.mu.Unlock()
	q.gone = true // and its memory is freed next
	return nil
}
