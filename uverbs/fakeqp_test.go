package uverbs

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/leak"
)

type fakeQP struct {
	send, recv solo
	num        uint32
	cap        QPCap
	sends      *fakeCQ
	ticket     *leak.Ticket

	stuck    bool // nothing completes
	out      int  // sends that have not completed
	received int  // receives posted
	lastRecv uint64
	recvs    *fakeCQ
	resets   int
	inUse    bool // the argument of Retire

	typ  QPType
	env  providerQPEnv
	last driver.AV // destination of the latest datagram
	srqn uint32    // destination of the latest XRC request

	batch [64]SendWR
	sges  [64][]SGE // of the requests in batch
	ahs   [64]*driver.AH
	n     int
	err   error
	bound bool // the batch contains BIND_MWs, which the caller has checked
}

// post carries out a request to ah.
func (q *fakeQP) post(wr *SendWR, ah *driver.AH) error {
	o, total := driver.OperationOf(wr.Opcode), uint64(0)
	for _, s := range wr.SGL {
		total += uint64(s.Length)
	}
	switch {
	case o == nil:
		return ErrOpcode
	case !o.On(uint8(q.typ)):
		return ErrQPType
	case o.Traits&driver.OpOperands != 0 && total != 8:
		return ErrAtomicSize
	case len(wr.SGL) > q.cap.MaxSendSGE:
		return ErrTooManySGEs
	case total > MaxMessage:
		return ErrRange
	case len(wr.Inline) > q.cap.MaxInline:
		return ErrInlineTooLong
	case q.out == q.cap.MaxSendWR:
		return ErrQueueFull
	}
	if wr.Opcode == OpBindMW && wr.Bind != nil || wr.Opcode == OpBindMW && !q.bound {
		if _, err := q.env.Owner.Bind(wr); err != nil {
			return err
		}
	}
	if q.typ == UD {
		av, err := ah.For(q.env.PD)
		if err != nil {
			return err
		}
		q.last = *av
	}
	q.srqn = wr.RemoteSRQN
	q.out++
	if !q.stuck {
		q.out--
		if wr.Flags&Signaled != 0 {
			q.sends.push(WC{WRID: wr.WRID, Opcode: WCOpcode(o.Completion), QPNum: q.num, ByteLen: uint32(total)})
		}
	}
	return nil
}

func (q *fakeQP) PostSend(wrs []SendWR) (int, error) {
	q.send.enter()
	defer q.send.leave()
	for n := range wrs {
		if err := q.post(&wrs[n], wrs[n].AH.part()); err != nil {
			return n, err
		}
	}
	return len(wrs), nil
}

func (q *fakeQP) PostRecv(wrs []RecvWR) (int, error) {
	q.recv.enter()
	defer q.recv.leave()
	for n := range wrs {
		for _, s := range wrs[n].SGL {
			if s.Length > MaxMessage {
				return n, ErrRange
			}
		}
		if q.received == q.cap.MaxRecvWR {
			return n, ErrQueueFull
		}
		q.received++
		q.lastRecv = wrs[n].WRID
	}
	return len(wrs), nil
}

func (q *fakeQP) Begin() { q.n, q.err, q.bound = 0, nil, false }

func (q *fakeQP) Op(op Opcode, f SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	if q.n == len(q.batch) {
		q.err = ErrQueueFull
		return
	}
	q.ahs[q.n] = nil
	q.batch[q.n] = SendWR{WRID: wrID, Opcode: op, Flags: f, RemoteAddr: raddr,
		RKey: rkey, Imm: imm}
	q.n++
}

func (q *fakeQP) Atomic(compareAdd, swap uint64) {
	if q.n > 0 {
		q.batch[q.n-1].CompareAdd, q.batch[q.n-1].Swap = compareAdd, swap
	}
}

// Bind records an error. The caller has checked the binding.
func (q *fakeQP) Bind(_ driver.Bind, err error) {
	if q.bound = true; q.err == nil {
		q.err = err
	}
}

func (q *fakeQP) Flush(n uint32, placement, selectivity uint8) {
	if q.n > 0 {
		wr := &q.batch[q.n-1]
		wr.FlushLength, wr.Placement, wr.Selectivity = n, Placement(placement), Selectivity(selectivity)
	}
}

func (q *fakeQP) SGE(s SGE) {
	switch {
	case q.err != nil:
	case s.Length > MaxMessage:
		q.err = ErrRange
	case q.n > 0:
		wr := &q.batch[q.n-1]
		q.sges[q.n-1] = append(q.sges[q.n-1][:len(wr.SGL)], s)
		wr.SGL = q.sges[q.n-1]
	}
}

func (q *fakeQP) Inline(data []byte) {
	if len(data) > q.cap.MaxInline && q.err == nil {
		q.err = ErrInlineTooLong
	}
}

func (q *fakeQP) OpSGE(op Opcode, f SendFlags, wrID, raddr uint64, rkey uint32, s SGE) {
	q.Op(op, f, wrID, raddr, rkey, 0)
	q.SGE(s)
}

func (q *fakeQP) OpInline(op Opcode, f SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	q.Op(op, f, wrID, raddr, rkey, 0)
	q.Inline(data)
}

func (q *fakeQP) UDAddr(ah *driver.AH, qpn, qkey uint32) {
	if q.n == 0 {
		q.err = ErrMalformed
		return
	}
	q.ahs[q.n-1], q.batch[q.n-1].QPN, q.batch[q.n-1].QKey = ah, qpn, qkey
}

func (q *fakeQP) DCAddr(ah *driver.AH, dctn uint32, key uint64, stream uint16) {
	if q.typ != DCI || q.n == 0 {
		q.err = ErrQPType
		return
	}
	wr := &q.batch[q.n-1]
	q.ahs[q.n-1], wr.QPN, wr.DCKey, wr.DCStream = ah, dctn, key, stream
}

func (q *fakeQP) RemoteSRQ(srqn uint32) {
	if q.typ != XRCSend || q.n == 0 {
		q.err = ErrQPType
		return
	}
	q.batch[q.n-1].RemoteSRQN = srqn
}

func (q *fakeQP) Submit() error {
	q.send.enter()
	defer q.send.leave()
	defer func() { q.bound = false }()
	if q.err != nil {
		return q.err
	}
	for i := range q.batch[:q.n] {
		if err := q.post(&q.batch[i], q.ahs[i]); err != nil {
			return err
		}
	}
	return nil
}

// FlushRecv completes a posted receive with the WRID of the latest one.
func (q *fakeQP) FlushRecv() error {
	q.received--
	q.recvs.push(WC{WRID: q.lastRecv, QPNum: q.num, Status: WCWRFlushErr})
	return nil
}

func (q *fakeQP) Abort() { q.n, q.bound = 0, false }

func (q *fakeQP) SendsOutstanding() int { return q.out }
func (q *fakeQP) RecvsOutstanding() int { return q.received }

func (q *fakeQP) Reset() error {
	q.out, q.received, q.resets = 0, 0, q.resets+1
	return nil
}

func (q *fakeQP) Retire(inUse bool) error {
	q.inUse = inUse
	q.ticket.Done()
	return nil
}

// fakeSRQ counts receives.
type fakeSRQ struct {
	solo
	attr     driver.SRQCap
	received int
	ticket   *leak.Ticket
}

func (c *fakeContext) CreateSRQ(_ *driver.SRQConfig, create driver.Command) (providerSRQ, driver.Reply, error) {
	r, err := create(nil, nil)
	if err != nil {
		return nil, r, c.p.pinned(err)
	}
	if c.p.mapError != nil {
		return nil, r, c.p.mapError
	}
	s := &fakeSRQ{attr: r.SRQ, ticket: leak.Track("ring of", "SRQ")}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.srqs = append(c.p.srqs, s)
	return s, r, nil
}

func (s *fakeSRQ) PostRecv(wrs []RecvWR) (int, error) {
	s.enter()
	defer s.leave()
	for n := range wrs {
		if len(wrs[n].SGL) > s.attr.MaxSGE {
			return n, ErrTooManySGEs
		}
		if s.received == s.attr.MaxWR {
			return n, ErrQueueFull
		}
		s.received++
	}
	return len(wrs), nil
}

func (s *fakeSRQ) Modify(_ int, modify driver.Command) error {
	s.enter()
	defer s.leave()
	_, err := modify(nil, nil)
	return err
}

func (s *fakeSRQ) Retire() error {
	s.ticket.Done()
	return nil
}

// CreateAH stores the handle in the AV.
func (c *fakeContext) CreateAH(_ *AHAttr, _ *driver.AHEnv, av *driver.AV, create driver.Command) (driver.Reply, error) {
	r, err := create(nil, nil)
	if err == nil && c.p.mapError != nil {
		err = c.p.mapError
	}
	av[0] = uint64(r.Handle) + 1
	return r, err
}
