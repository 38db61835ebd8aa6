package perftest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// An endpoint holds the objects of one end of a test.
type endpoint struct {
	o        *Options
	ctl      *control
	dev      *uverbs.Context
	pd       *uverbs.PD
	mrs      []*uverbs.MR // one, or one for each QP
	huge     [][]byte     // memory of the MRs, with --use_hugepages
	srq      *uverbs.SRQ
	scq, rcq *uverbs.CQ
	qps      []*queue
	ids      []*cm.SyncID // of the QPs, with -R
	watchdog *watchdog
	lastRun  time.Duration // duration of the last run
	size     int           // of the messages being measured
	wcs      []uverbs.WC
}

// A queue is a QP with its requests and its part of the memory.
type queue struct {
	qp         *uverbs.QP
	mr         *uverbs.MR
	sendOffset int // of sent messages in mr
	recvOffset int // of received messages in mr
	own, peer  keys
	dct        *uverbs.QP               // DC: receives, and serves the peer's requests
	dci        struct{ own, peer keys } // DC with QPs of both types at each end
	ah         *uverbs.AH               // UD and DC
	qpn, qkey  uint32                   // UD and DC: destination

	wrs         []uverbs.SendWR
	recvs       []uverbs.RecvWR
	sendSlots   slots // of sent messages
	remoteSlots slots // of the peer's memory
	recvSlots   slots // of received messages

	posted, completed int // requests
	received          int
	free              int // receives to be posted again
	refilled          int // receives that were posted
}

// slots is a sequence of addresses, or of offsets, that messages use cyclically.
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

// slots returns the slots of messages of a size, starting at base. Messages longer than
// half of the buffer have one slot.
func (o *Options) slots(base uint64, size int) slots {
	step := roundUp(size, o.cacheLine)
	if !o.Bandwidth || size > o.cycle/2 {
		return slots{base: base, n: 1}
	}
	return slots{base: base, step: uint64(step), n: max(o.cycle/step, 1)}
}

// grhSpace returns the space before a datagram: the GRH, rounded up to whole cache
// lines.
func (o *Options) grhSpace() int {
	if o.Type == uverbs.UD {
		return roundUp(uverbs.GRHLen, o.cacheLine)
	}
	return 0
}

// stride returns the size of a QP's part of each half of the memory. Requests are sent
// from the first half; receives and the peer's WRITEs use the second half.
func (o *Options) stride() int {
	return roundUp(max(o.Size, o.cycle), o.cacheLine) + o.grhSpace()
}

// prepareObjects creates the objects that all QPs share.
func (e *endpoint) prepareObjects() (err error) {
	o, dev := e.o, e.dev
	e.size, e.wcs = o.Size, make([]uverbs.WC, 16)
	if e.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	access := uverbs.LocalWrite | o.Verb.access()
	if o.relaxed() {
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
	if o.SRQ && o.postsReceives() || o.dct() {
		if e.srq, err = e.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: o.RxDepth, SingleGoroutine: o.NoLock}); err != nil {
			return o.explainSizes(err, "-r %d", o.RxDepth)
		}
	}
	return nil
}

// explainSizes adds to an error of creating an object the options that determined its
// size.
func (o *Options) explainSizes(err error, format string, args ...any) error {
	made := fmt.Sprintf(format, args...)
	if o.Vector > 0 {
		made += fmt.Sprintf(" and -X %d", o.Vector)
	}
	return fmt.Errorf("%w: the size follows from %s", err, made)
}

// explainQP is explainSizes for a QP.
func (e *endpoint) explainQP(err error) error {
	return e.o.explainSizes(err, "-t %d, -r %d and -I %d, queue pair %d of -q %d", e.o.TxDepth, e.o.RxDepth, e.o.Inline,
		len(e.qps)+1, e.o.QPs)
}

// regions returns the number of regions: one for all QPs, or one for each (--mr_per_qp).
func (o *Options) regions() int { return choose(o.MRPerQP, o.QPs, 1) }

// makeMemory allocates the regions.
func (e *endpoint) makeMemory(access uverbs.Access) error {
	n := e.o.regions()
	each := 2 * e.o.QPs / n * e.o.stride()
	if e.o.OnDemand {
		access |= uverbs.OnDemand
	}
	if e.o.HugePages {
		if err := e.o.checkHugePages("/proc/meminfo", n, each); err != nil {
			return err
		}
	}
	for range n {
		mr, err := e.allocMR(each, access)
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

// allocMR allocates and registers memory.
func (e *endpoint) allocMR(bytes int, access uverbs.Access) (*uverbs.MR, error) {
	if !e.o.HugePages {
		return e.pd.Alloc(bytes, access)
	}
	b, err := e.mapHugePages(bytes)
	if err != nil {
		return nil, err
	}
	return e.pd.RegMR(b, access)
}

func (e *endpoint) qpConfig() uverbs.QPConfig {
	o := e.o
	c := uverbs.QPConfig{Type: o.Type, SendCQ: e.scq, RecvCQ: e.rcq, MaxSendWR: o.TxDepth, MaxRecvWR: o.RxDepth,
		MaxInline: o.Inline, SingleGoroutine: o.NoLock, Path: e.pathConfig(len(e.qps)),
		Options: o.qpOptions()}
	if e.srq != nil {
		c.SRQ, c.MaxRecvWR = e.srq, 0
	}
	return c
}

// createQPs creates the QPs of a test without -R.
func (e *endpoint) createQPs() error {
	if e.o.dc() {
		return e.createDC()
	}
	for range e.o.QPs {
		qp, err := e.pd.CreateQP(e.qpConfig())
		if err != nil {
			return e.explainQP(err)
		}
		if err := e.init(qp, e.o.Type); err != nil {
			return err
		}
		e.add(qp)
	}
	return nil
}

// add adds a QP and assigns its part of the memory.
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

// qkey is the Q_Key that perftest uses.
const qkey = 0x11111111

// init moves a QP of a type to INIT.
func (e *endpoint) init(qp *uverbs.QP, t uverbs.QPType) error {
	a := uverbs.QPAttr{State: uverbs.StateInit, PKeyIndex: uint16(e.o.PKeyIndex), Port: uint8(e.o.IBPort)}
	m := uverbs.MaskState | uverbs.MaskPKeyIndex | uverbs.MaskPort
	switch t {
	case uverbs.UD:
		a.QKey = qkey
		m |= uverbs.MaskQKey
	case uverbs.DCI:
	default:
		a.Access = e.o.Verb.access()
		m |= uverbs.MaskAccess
	}
	return qp.Modify(a, m)
}

// connect connects the QPs. The keys have been exchanged.
func (e *endpoint) connect(context.Context) error {
	if err := e.sameFamily(); err != nil {
		return err
	}
	connect := e.connectQP
	if e.o.dc() {
		connect = e.connectDC
	}
	for _, q := range e.qps {
		if err := connect(q); err != nil {
			return err
		}
	}
	return nil
}

// connectQP moves a QP to RTR, and to RTS if this end sends.
func (e *endpoint) connectQP(q *queue) (err error) {
	if err := e.toRTR(q); err != nil || !e.o.sends() {
		return err
	}
	if err := e.toRTS(q); err != nil {
		return err
	}
	if e.o.Type != uverbs.UD {
		return e.checkRate(q)
	}
	q.qpn, q.qkey = q.peer.qpn, qkey
	q.ah, err = e.pd.CreateAH(e.path(q))
	return err
}

// path returns the address vector of the peer.
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

// pathConfig returns the path settings of the i-th QP. The flow labels are assigned to
// the QPs in turn.
func (e *endpoint) pathConfig(i int) uverbs.PathConfig {
	o := e.o
	p := uverbs.PathConfig{SL: uint8(o.SL), StaticRate: o.staticRate}
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
	if e.o.reliable() {
		if q.peer.outs > 255 {
			return atPeer("-o", "the peer accepts %d outstanding READs, and the maximum is 255: it is not perftest", q.peer.outs)
		}
		a.Timeout, a.RetryCount, a.RNRRetryCount, a.MaxRdAtomic = uint8(e.o.QPTimeout), 7, 7, uint8(q.peer.outs)
		m |= uverbs.MaskTimeout | uverbs.MaskRetryCount | uverbs.MaskRNRRetryCount | uverbs.MaskMaxRdAtomic
	}
	return q.qp.Modify(a, m)
}

// close closes all objects, the device and the control connection.
func (e *endpoint) close() error {
	var errs []error
	for _, id := range e.ids {
		errs = append(errs, id.Close())
	}
	errs = append(errs, e.dev.Close(), e.unmapHugePages())
	if e.ctl != nil {
		errs = append(errs, e.ctl.close())
	}
	return errors.Join(errs...)
}
