package perftest

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/uverbs"
)

// prepare builds the requests for messages of a size.
func (e *endpoint) prepare(size int) {
	e.size = size
	for i, q := range e.qps {
		q.posted, q.completed = 0, 0
		q.sendSlots = e.o.slots(uint64(q.sendOffset), size)
		q.remoteSlots = e.o.slots(q.peer.vaddr, size)
		q.wrs = make([]uverbs.SendWR, e.o.PostList)
		for j := range q.wrs {
			wr := &q.wrs[j]
			wr.WRID, wr.Opcode = uint64(i), e.o.opcode()
			wr.AH, wr.QPN, wr.QKey = q.ah, q.qpn, q.qkey
			if e.o.dc() {
				wr.DCKey = dcKey
			}
			if e.o.remote() {
				wr.RKey = q.peer.rkey
			}
			if (j+1)%e.o.CQMod == 0 {
				wr.Flags = uverbs.Signaled
			}
			if wr.Opcode == uverbs.OpFetchAdd { // perftest adds 1, and swaps 0 for 0
				wr.CompareAdd = 1
			}
			wr.SGL = make([]uverbs.SGE, 1)
			e.aim(q, wr)
		}
	}
}

// aim sets the addresses of a request to the next slots.
func (e *endpoint) aim(q *queue, wr *uverbs.SendWR) {
	from := int(q.sendSlots.next())
	if e.size <= e.o.Inline {
		wr.SGL, wr.Inline = nil, q.mr.Bytes()[from:from+e.size]
	} else {
		wr.SGL[0] = q.mr.SGE(from, e.size)
	}
	if e.o.remote() {
		wr.RemoteAddr = q.remoteSlots.next()
	}
}

func (o *Options) opcode() uverbs.Opcode {
	if o.Verb == Atomic && o.CompareSwap {
		return uverbs.OpCompareSwap
	}
	return [...]uverbs.Opcode{Send: uverbs.OpSend, Write: uverbs.OpWrite, WriteImm: uverbs.OpWriteImm, Read: uverbs.OpRead,
		Atomic: uverbs.OpFetchAdd}[o.Verb]
}

// fill fills the receive queues.
func (e *endpoint) fill() error {
	space := e.o.grhSpace()
	for i, q := range e.qps {
		q.recvSlots = e.o.slots(uint64(q.recvOffset), e.size+space)
		q.received, q.free = 0, 0
		q.recvs = make([]uverbs.RecvWR, e.o.RecvPostList)
		for j := range q.recvs {
			q.recvs[j] = uverbs.RecvWR{WRID: uint64(i)}
			if e.o.Verb != WriteImm {
				q.recvs[j].SGL = make([]uverbs.SGE, 1)
			}
		}
		lists := e.o.RxDepth / e.o.RecvPostList
		if e.srq != nil { // all QPs share it
			lists /= e.o.QPs
		}
		q.refilled = lists * e.o.RecvPostList
		for range lists {
			if err := e.refill(q); err != nil {
				return err
			}
		}
	}
	return nil
}

// refill posts a list of receives. Receives of WRITEs have no buffer: the data is
// written to the address in the WRITE.
func (e *endpoint) refill(q *queue) error {
	if e.o.Verb != WriteImm {
		skip, grh := e.o.grhSpace(), 0
		if skip > 0 {
			grh = uverbs.GRHLen
		}
		for j := range q.recvs {
			q.recvs[j].SGL[0] = q.mr.SGE(int(q.recvSlots.next())+skip-grh, e.size+grh)
		}
	}
	return e.postRecv(q, q.recvs...)
}

// postRecv posts receives to a QP, or to the SRQ.
func (e *endpoint) postRecv(q *queue, wrs ...uverbs.RecvWR) (err error) {
	if e.srq != nil {
		_, err = e.srq.PostRecv(wrs...)
	} else {
		_, err = q.qp.PostRecv(wrs...)
	}
	return err
}

// processReceive checks a completed receive and posts receives again, unless those that
// are posted suffice for the run.
func (e *endpoint) processReceive(wc *uverbs.WC, iters int) error {
	if err := e.check(wc, true); err != nil {
		return err
	}
	q := e.qps[wc.WRID]
	q.received++
	q.free++
	if q.free >= e.o.RecvPostList && q.refilled+e.o.RecvPostList <= iters {
		q.free -= e.o.RecvPostList
		q.refilled += e.o.RecvPostList
		return e.refill(q)
	}
	return nil
}

// check returns the error of a completion, with the options that may have caused it.
func (e *endpoint) check(wc *uverbs.WC, receive bool) error {
	switch {
	case wc.Status == uverbs.WCSuccess:
		want := e.size
		if e.o.Type == uverbs.UD {
			want += uverbs.GRHLen
		}
		if receive && int(wc.ByteLen) != want {
			return atPeer("-s", "the peer's messages have %d bytes, and here -s is %d: give both ends the same, and -a to "+
				"both or to none", int(wc.ByteLen)-want+e.size, e.size)
		}
		return nil
	case wc.Status == uverbs.WCWRFlushErr:
		return e.flushed()
	}
	peerErr := e.diagnose(wc.Status, receive)
	if peerErr == nil {
		return wc.Err()
	}
	if peerErr.Option != "" && e.transferred() {
		return fmt.Errorf("%w, during the run: the options of both ends have fitted until then", wc.Err())
	}
	peerErr.Err = wc.Err()
	return peerErr
}

// transferred reports whether messages of this size have completed.
func (e *endpoint) transferred() bool {
	return slices.ContainsFunc(e.qps, func(q *queue) bool { return q.completed > 0 || q.received > 0 })
}

// diagnose returns the likely mistake of the options for a completion status at the
// beginning of a run, or nil.
func (e *endpoint) diagnose(status uverbs.WCStatus, receive bool) *Error {
	switch {
	case receive && (status == uverbs.WCLocLenErr || status == uverbs.WCLocQPOpErr): // the latter on rxe
		return atPeer("-s", "the peer's messages are longer than here, where -s is %d: give both ends the same, and -a "+
			"to both or to none", e.size)
	case status == uverbs.WCRemInvReqErr || status == uverbs.WCRemOpErr: // the latter on rxe
		return atPeer("-s", "the peer's receives are too short for %d bytes, or it runs another test: give both ends the "+
			"same -s, and -a to both or to none", e.size)
	case status == uverbs.WCRemAccessErr:
		return atPeer("-s", "the peer's memory does not permit this access: it does not run %v, or has a smaller -s",
			e.o.Test)
	case status == uverbs.WCRetryExcErr:
		return atPeer("", "the peer does not reply: it has exited, has another -c, or the network does not carry packets "+
			"of this size (%d bytes of payload)", e.o.mtu.Bytes())
	}
	return nil
}

// flushed returns the error that moved a QP to the error state. The completion with
// this error may be in the other CQ. If there is none, the peer has disconnected.
func (e *endpoint) flushed() error {
	for _, cq := range []*uverbs.CQ{e.scq, e.rcq} {
		for {
			n, err := cq.Poll(e.wcs[:1])
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			if s := e.wcs[0].Status; s != uverbs.WCWRFlushErr && s != uverbs.WCSuccess {
				return e.check(&e.wcs[0], cq == e.rcq && e.rcq != e.scq)
			}
		}
	}
	return fmt.Errorf("during the run: %w", errPeerClosed)
}
