package cm

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

func (l *loop) CreateQP(cfg *uverbs.QPConfig, env provider.QPEnv, create driver.Command) (provider.QP, driver.Reply,
	error) {
	r, err := create(nil, nil)
	if err != nil {
		return nil, r, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	cqs := l.made[r.Handle]
	q := &loopQP{l: l, pd: env.PD, handle: r.Handle, num: r.Number, cap: uverbs.QPCap(r.Cap), ud: cfg.Type == uverbs.UD,
		all: cfg.SignalAll, sendCQ: l.cqs[cqs[0]], recvCQ: l.cqs[cqs[1]], receives: make([]uint64, 0, r.Cap.MaxRecvWR),
		ticket: leak.Track("ring of", "QP")}
	l.qps[r.Handle] = q
	if l.ece != 0 {
		return &loopECE{loopQP: q, granted: l.ece}, r, nil
	}
	return q, r, nil
}

// loopVendor is the vendor ID of the loop's options.
const loopVendor = 0x77

// loopRefused is an option that the device offers but never grants.
const loopRefused = 0x8

// A loopECE is a QP of a device with options of enhanced connection establishment.
type loopECE struct {
	*loopQP
	granted uint32
}

func (q *loopECE) QueryECE() (vendorID, options uint32) { return loopVendor, q.granted }

func (q *loopECE) SetECE(vendorID, options uint32) error {
	if vendorID != loopVendor {
		return &uverbs.Error{Op: "set options of", Kind: uverbs.ErrInvalid, Errno: unix.EINVAL, Detail: "another vendor"}
	}
	q.granted = options & q.l.ece &^ loopRefused
	return nil
}

func (q *loopECE) ModifyECE(bool) ([]byte, int) { return nil, 0 }
func (q *loopECE) ModifiedECE([]byte)           {}

type loopQP struct {
	l              *loop
	pd             *driver.PD
	handle, num    uint32
	dest           uint32
	av             uapi.IbUverbsQpDest
	cap            uverbs.QPCap
	ud, all        bool
	failed         bool
	sendCQ, recvCQ *loopCQ
	receives       []uint64
	late           bool        // sends arrive, but are acknowledged later
	unacked        []uverbs.WC // completions of such sends
	holds          bool        // the queue holds sends until their completions are polled
	ticket         *leak.Ticket

	batch uverbs.SendWR
}

// peer returns the connected QP. The caller holds l.mu.
func (q *loopQP) peer(qpn uint32) *loopQP {
	for _, p := range q.l.qps {
		if p.num == qpn && !p.failed {
			return p
		}
	}
	return nil
}

func (q *loopQP) post(wr *uverbs.SendWR) error {
	to, n := q.dest, uint32(len(wr.Inline))
	for _, s := range wr.SGL {
		n += s.Length
	}
	if len(wr.Inline) > q.cap.MaxInline {
		return uverbs.ErrInlineTooLong
	}
	if q.ud {
		if _, err := provider.AHOf(wr.AH).For(q.pd); err != nil {
			return err
		}
		to = wr.QPN
	}
	done := uverbs.WC{WRID: wr.WRID, QPNum: q.num, ByteLen: n}
	switch {
	case q.failed:
		done.Status = uverbs.WCWRFlushErr
	case wr.Opcode == uverbs.OpSend:
		if p := q.peer(to); p != nil && len(p.receives) > 0 {
			p.recvCQ.push(uverbs.WC{WRID: p.receives[0], Opcode: uverbs.WCRecv, QPNum: p.num, SrcQP: q.num, ByteLen: n})
			p.receives = p.receives[:copy(p.receives, p.receives[1:])]
		}
	}
	switch {
	case q.late && !q.failed:
		q.unacked = append(q.unacked, done)
	case q.all || q.failed || wr.Flags&uverbs.Signaled != 0:
		q.sendCQ.push(done)
	}
	return nil
}

func (q *loopQP) PostSend(wrs []uverbs.SendWR) (int, error) {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	for n := range wrs {
		if err := q.post(&wrs[n]); err != nil {
			return n, err
		}
	}
	return len(wrs), nil
}

func (q *loopQP) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	for n := range wrs {
		switch {
		case q.failed:
			q.recvCQ.push(uverbs.WC{WRID: wrs[n].WRID, Status: uverbs.WCWRFlushErr, QPNum: q.num})
		case len(q.receives) == cap(q.receives):
			return n, uverbs.ErrQueueFull
		default:
			q.receives = append(q.receives, wrs[n].WRID)
		}
	}
	return len(wrs), nil
}

// The batch has room for one request, because package cm does not use batches.
func (q *loopQP) Begin() { q.batch = uverbs.SendWR{} }
func (q *loopQP) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	q.batch = uverbs.SendWR{WRID: wrID, Opcode: op, Flags: f,
		RemoteAddr: raddr, RKey: rkey, Imm: imm}
}

func (q *loopQP) OpSGE(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, _ uverbs.SGE) {
	q.Op(op, f, wrID, raddr, rkey, 0)
}

func (q *loopQP) OpInline(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, _ []byte) {
	q.Op(op, f, wrID, raddr, rkey, 0)
}
func (q *loopQP) SGE(uverbs.SGE)             {}
func (q *loopQP) Inline([]byte)              {}
func (q *loopQP) Atomic(_, _ uint64)         {}
func (q *loopQP) Bind(driver.Bind, error)    {}
func (q *loopQP) Flush(uint32, uint8, uint8) {}
func (q *loopQP) RemoteSRQ(uint32)           {}

func (q *loopQP) DCAddr(*driver.AH, uint32, uint64, uint16) {}

func (q *loopQP) UDAddr(_ *driver.AH, qpn, qkey uint32) {
	q.batch.QPN, q.batch.QKey = qpn, qkey
}
func (q *loopQP) Submit() error { _, err := q.PostSend([]uverbs.SendWR{q.batch}); return err }
func (q *loopQP) Abort()        {}
func (q *loopQP) Reset() error  { return nil }

func (q *loopQP) SendsOutstanding() int {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	return len(q.unacked) + q.unpolled()
}

// unpolled returns the number of sends that the queue holds until their completions are
// polled. The caller holds l.mu.
func (q *loopQP) unpolled() (n int) {
	if !q.holds {
		return 0
	}
	for _, wc := range q.sendCQ.ring {
		if wc.QPNum == q.num {
			n++
		}
	}
	return n
}

func (q *loopQP) RecvsOutstanding() int {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	return len(q.receives)
}

// qpOf returns the QP with the number qpn. The caller holds l.mu.
func (l *loop) qpOf(qpn uint32) *loopQP {
	for _, q := range l.qps {
		if q.num == qpn {
			return q
		}
	}
	return nil
}

// delay delays the acknowledgements of a QP's sends.
func (l *loop) delay(qpn uint32) *loopQP {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.qps {
		if q.num == qpn {
			q.late = true
			return q
		}
	}
	panic("no such QP")
}

// hold makes a QP hold its sends until their completions are polled, as mlx5 does.
func (l *loop) hold(qpn uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.qps {
		q.holds = q.holds || q.num == qpn
	}
}

// acknowledge completes the delayed sends, and ends the delay.
func (q *loopQP) acknowledge() {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	for _, wc := range q.unacked {
		q.sendCQ.push(wc)
	}
	q.late, q.unacked = false, nil
}

func (q *loopQP) Retire(bool) error {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	if q.l.qps[q.handle] == q {
		delete(q.l.qps, q.handle)
	}
	q.failed = true
	q.ticket.Done()
	return nil
}
