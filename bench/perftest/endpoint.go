package perftest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// An endpoint is what one end has on its device.
type endpoint struct {
	o        *Options
	ctl      *control
	dev      *uverbs.Context
	pd       *uverbs.PD
	mrs      []*uverbs.MR // one, or one of each QP
	srq      *uverbs.SRQ
	scq, rcq *uverbs.CQ
	qps      []*queue
	links    *links // of rdma_cm, with -R
	watchdog *watchdog
	lastRun  time.Duration // of the last run
	size     int           // of the messages that are being measured
	wcs      []uverbs.WC
}

// A queue is a QP with what goes through it.
type queue struct {
	qp         *uverbs.QP
	mr         *uverbs.MR
	sendOffset int // where in mr what is sent begins
	recvOffset int // and what comes
	own, peer  keys
	ah         *uverbs.AH // UD
	qpn, qkey  uint32     // UD: where to

	wrs         []uverbs.SendWR
	recvs       []uverbs.RecvWR
	sendSlots   slots // of what is sent
	remoteSlots slots // at the peer
	recvSlots   slots // of receives

	posted, completed int // requests
	received          int
	free              int // receives that are to be posted again
	refilled          int // receives that were posted
}

// A circle is the places that messages go through one after the other.
type slots struct {
	base, step uint64
	n, at      int
}

func (c *slots) next() uint64 {
	where := c.base + uint64(c.at)*c.step
	if c.at++; c.at == c.n {
		c.at = 0
	}
	return where
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// circle of messages of a size from an address on. What is longer than half
// the buffer has one place.
func (o *Options) slots(base uint64, size int) slots {
	step := roundUp(size, o.cacheLine)
	if !o.Bandwidth || size > o.cycle/2 {
		return slots{base: base, n: 1}
	}
	return slots{base: base, step: uint64(step), n: max(o.cycle/step, 1)}
}

// grhSpace is what lies before a datagram so that it begins with a line.
func (o *Options) grhSpace() int {
	if o.Type == uverbs.UD {
		return roundUp(uverbs.GRHLen, o.cacheLine)
	}
	return 0
}

// stride is the room that a QP has in each half of its memory: requests are
// sent from the first, receives and the peer's WRITEs go to the second.
func (o *Options) stride() int {
	return roundUp(max(o.Size, o.cycle), o.cacheLine) + o.grhSpace()
}

// prepareObjects makes what all QPs share.
func (e *endpoint) prepareObjects() (err error) {
	o, dev := e.o, e.dev
	e.size, e.wcs = o.Size, make([]uverbs.WC, 16)
	if e.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	access := uverbs.LocalWrite | o.Verb.access()
	if !o.StrictOrder && (o.Verb != Write || o.Bandwidth) { // write_lat looks for the last byte of a message
		access |= uverbs.RelaxedOrdering
	}
	if err := e.makeMemory(access); err != nil {
		return err
	}
	cq := uverbs.CQConfig{Entries: o.TxDepth * o.QPs, NoEvents: !o.Events, Vector: o.Vector, SingleGoroutine: o.NoLock}
	if e.scq, err = dev.CreateCQ(cq); err != nil {
		return o.explainSizes(err, "-t %d for each of -q %d", o.TxDepth, o.QPs)
	}
	e.rcq = e.scq
	if o.receives() {
		cq.Entries = o.RxDepth * o.QPs
		if e.rcq, err = dev.CreateCQ(cq); err != nil {
			return o.explainSizes(err, "-r %d for each of -q %d", o.RxDepth, o.QPs)
		}
	}
	if o.SRQ && o.postsReceives() {
		if e.srq, err = e.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: o.RxDepth, SingleGoroutine: o.NoLock}); err != nil {
			return o.explainSizes(err, "-r %d", o.RxDepth)
		}
	}
	return nil
}

// madeOf says by which options an object is what it could not be.
func (o *Options) explainSizes(err error, format string, args ...any) error {
	made := fmt.Sprintf(format, args...)
	if o.Vector > 0 {
		made += fmt.Sprintf(" and -X %d", o.Vector)
	}
	return fmt.Errorf("%w: the size follows from %s", err, made)
}

// madeQP is madeOf for a QP.
func (e *endpoint) explainQP(err error) error {
	return e.o.explainSizes(err, "-t %d, -r %d and -I %d, queue pair %d of -q %d", e.o.TxDepth, e.o.RxDepth, e.o.Inline, len(e.qps)+1, e.o.QPs)
}

// makeMemory makes one region for all QPs, or one for each.
func (e *endpoint) makeMemory(access uverbs.Access) error {
	n, each := 1, 2*e.o.QPs*e.o.stride()
	if e.o.MRPerQP {
		n, each = e.o.QPs, 2*e.o.stride()
	}
	if e.o.OnDemand {
		access |= uverbs.OnDemand
	}
	for range n {
		mr, err := e.pd.Alloc(each, access)
		if err != nil {
			return err
		}
		e.mrs = append(e.mrs, mr)
		for at := 0; at < each && len(e.o.payload) > 0; {
			at += copy(mr.Bytes()[at:], e.o.payload)
		}
	}
	return nil
}

func (e *endpoint) qpConfig() uverbs.QPConfig {
	o := e.o
	c := uverbs.QPConfig{Type: o.Type, SendCQ: e.scq, RecvCQ: e.rcq, MaxSendWR: o.TxDepth, MaxRecvWR: o.RxDepth,
		MaxInline: o.Inline, SingleGoroutine: o.NoLock, Path: e.pathConfig(len(e.qps))}
	if e.srq != nil {
		c.SRQ, c.MaxRecvWR = e.srq, 0
	}
	return c
}

// createQPs makes the QPs that no rdma_cm connects.
func (e *endpoint) createQPs() error {
	for range e.o.QPs {
		qp, err := e.pd.CreateQP(e.qpConfig())
		if err != nil {
			return e.explainQP(err)
		}
		if err := e.init(qp); err != nil {
			return err
		}
		e.add(qp)
	}
	return nil
}

// add gives a QP its place in the memory.
func (e *endpoint) add(qp *uverbs.QP) {
	i, n := len(e.qps), e.o.QPs
	q := &queue{qp: qp, mr: e.mrs[0], sendOffset: i * e.o.stride(), recvOffset: (n + i) * e.o.stride()}
	if e.o.MRPerQP {
		q.mr, q.sendOffset, q.recvOffset = e.mrs[i], 0, e.o.stride()
	}
	q.own = keys{lid: e.o.lid, outs: uint32(e.o.Outs), qpn: qp.QPN(), psn: rand.Uint32() & 0xffffff, rkey: q.mr.RKey(),
		vaddr: q.mr.Addr() + uint64(q.recvOffset), gid: e.o.gid.GID}
	e.qps = append(e.qps, q)
}

const minRNRTimer = 12 // 0.64 ms

// qkey is perftest's.
const qkey = 0x11111111

func (e *endpoint) init(qp *uverbs.QP) error {
	a := uverbs.QPAttr{State: uverbs.StateInit, PKeyIndex: uint16(e.o.PKeyIndex), Port: uint8(e.o.IBPort)}
	m := uverbs.MaskState | uverbs.MaskPKeyIndex | uverbs.MaskPort
	if e.o.Type == uverbs.UD {
		a.QKey = qkey
		return qp.Modify(a, m|uverbs.MaskQKey)
	}
	a.Access = e.o.Verb.access()
	return qp.Modify(a, m|uverbs.MaskAccess)
}

// connect takes the QPs to where they can be used, once the keys are exchanged.
func (e *endpoint) connect() error {
	for _, q := range e.qps {
		if err := e.toRTR(q); err != nil {
			return err
		}
		if !e.o.sends() {
			continue
		}
		if err := e.toRTS(q); err != nil {
			return err
		}
		if e.o.Type == uverbs.UD {
			var err error
			if q.ah, err = e.pd.CreateAH(e.path(q)); err != nil {
				return err
			}
			q.qpn, q.qkey = q.peer.qpn, qkey
		}
	}
	return nil
}

// path is the way to the peer.
func (e *endpoint) path(q *queue) uverbs.AHAttr {
	o := e.o
	lid := q.peer.lid
	if o.DLID != 0 {
		lid = uint16(o.DLID)
	}
	a := uverbs.AHAttr{DLID: lid, Port: uint8(o.IBPort)}
	if o.withGID {
		a.IsGlobal, a.DGID, a.SGIDIndex, a.HopLimit = true, q.peer.gid, uint8(o.gid.Index), 0xff
	}
	e.pathConfig(slices.Index(e.qps, q)).Apply(&a)
	return a
}

// pathConfig is how the packets of the i-th QP are marked. The QPs take the flow
// labels in turn.
func (e *endpoint) pathConfig(i int) uverbs.PathConfig {
	o := e.o
	p := uverbs.PathConfig{SL: uint8(o.SL)}
	if o.withGID {
		p.TrafficClass = uint8(o.TrafficClass)
		if n := len(o.FlowLabels); n > 0 {
			p.FlowLabel = uint32(o.FlowLabels[i%n])
		}
	}
	return p
}

func (e *endpoint) toRTR(q *queue) error {
	a, m := uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.MaskState
	if e.o.Type != uverbs.UD {
		a.AV, a.PathMTU, a.DestQPN, a.RQPSN = e.path(q), e.o.mtu, q.peer.qpn, q.peer.psn
		m |= uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRQPSN
	}
	if e.o.Type == uverbs.RC {
		a.MaxDestRdAtomic, a.MinRNRTimer = uint8(q.own.outs), minRNRTimer
		m |= uverbs.MaskMaxDestRdAtomic | uverbs.MaskMinRNRTimer
	}
	return q.qp.Modify(a, m)
}

func (e *endpoint) toRTS(q *queue) error {
	a, m := uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: q.own.psn}, uverbs.MaskState|uverbs.MaskSQPSN
	if e.o.Type == uverbs.RC {
		if q.peer.outs > 255 {
			return atPeer("-o", "the peer accepts %d outstanding READs, and the maximum is 255: it is not perftest", q.peer.outs)
		}
		a.Timeout, a.RetryCnt, a.RNRRetry, a.MaxRdAtomic = uint8(e.o.QPTimeout), 7, 7, uint8(q.peer.outs)
		m |= uverbs.MaskTimeout | uverbs.MaskRetryCnt | uverbs.MaskRNRRetry | uverbs.MaskMaxRdAtomic
	}
	return q.qp.Modify(a, m)
}

// close gives back what the endpoint has.
func (e *endpoint) close() error {
	var err error
	if e.links != nil {
		err = e.links.close()
	}
	return errors.Join(err, e.dev.Close())
}
