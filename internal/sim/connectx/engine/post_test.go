package engine_test

import (
	"encoding/binary"
	"time"

	"testing/synctest"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A qp is a queue pair from the user's side.
type qp struct {
	h            *host
	number       uint32
	at           func(off, n uint64) []byte
	record       uint64
	scq, rcq     *cq
	sqSize       uint16 // in blocks
	rqSize       uint16
	rqStride     uint64
	rqBytes      uint64
	posted, head uint16
	uar          uint32
	flame        uint32
}

const (
	logSQ     = 4 // 16 blocks
	logRQ     = 3
	logStride = 6
)

// newQP creates a queue pair. Zero attributes get common values.
func (h *host) newQP(a engine.QPAttr) *qp {
	q := &qp{h: h, uar: 16, flame: 0x800}
	if a.SendCQ == 0 && !a.NoSQ {
		q.scq = h.newCQ(engine.CQAttr{LogSize: 6})
		a.SendCQ = q.scq.Number
	}
	if a.RecvCQ == 0 {
		q.rcq = h.newCQ(engine.CQAttr{LogSize: 6})
		a.RecvCQ = q.rcq.Number
	}
	if a.PD == 0 && a.Service != engine.ServiceUMR { // the service has no PD
		a.PD = h.pd
	}
	if a.LogSQSize == 0 {
		a.LogSQSize = logSQ
	}
	if a.LogRQSize == 0 {
		a.LogRQSize = logRQ
	}
	if a.LogRQStride == 0 {
		a.LogRQStride = logStride
	}
	a.UAR, a.UserIndex = 16, 0xabc
	q.sqSize, q.rqSize, q.rqStride = 1<<a.LogSQSize, 1<<a.LogRQSize, 1<<a.LogRQStride
	if a.Source == engine.FromRQ && a.Service != engine.ServiceXRC {
		q.rqBytes = uint64(q.rqSize) * q.rqStride
	}
	a.Buffer, q.at = h.buffer(int(q.rqBytes) + int(q.sqSize)*64)
	q.record = h.alloc(8)
	a.Record = q.record
	q.number = must(h.CreateQP(a)).Number
	return q
}

// attr returns attributes for transitions.
func (q *qp) attr(peer *qp) engine.QPAttr {
	a := engine.QPAttr{MTU: 1024, RemoteQPN: peer.number, SendPSN: q.number * 1000, RecvPSN: peer.number * 1000,
		AckTimeout: 14, RetryCount: 7, RNRRetry: 7, MinRNRTimer: 12, MaxInitiate: 4, MaxRespond: 4, QKey: 0x11,
		RemoteRead: true, RemoteWrite: true, RemoteAtomic: true}
	a.Primary = q.h.path(peer.h)
	return a
}

func (h *host) path(to *host) transport.Path {
	return transport.Path{DLID: to.LID(), DGID: to.GID(0).GID, DMAC: to.MAC(), GRH: to.GID(0).Version != 0, HopLimit: 64,
		UDPSport: 0xc123}
}

// connect moves two queue pairs to RTS.
func connect(a, b *qp) {
	a.up(a.attr(b))
	if a != b {
		b.up(b.attr(a))
	}
}

func (q *qp) up(a engine.QPAttr) {
	for _, t := range []engine.Transition{engine.RST2INIT, engine.INIT2RTR, engine.RTR2RTS} {
		q.h.w.must(q.h.ModifyQP(q.number, t, 0, a))
	}
}

func (q *qp) state() engine.QPState { return must(q.h.QueryQP(q.number)).State }

// A wqe is a send request under construction: segments as bytes.
type wqe struct {
	op       uint8
	opmod    uint8
	silent   bool // unsignaled
	se       bool
	fence    uint8
	imm      uint32
	segments []byte
}

func (w wqe) raddr(r *region, off int) wqe {
	b := be.AppendUint64(w.segments, r.addr+uint64(off))
	w.segments = append(be.AppendUint32(b, r.Key()), 0, 0, 0, 0)
	return w
}

func (w wqe) data(r *region, off, n int) wqe { return w.seg(uint32(n), r.Key(), r.addr+uint64(off)) }

func (w wqe) seg(n, key uint32, addr uint64) wqe {
	w.segments = be.AppendUint64(be.AppendUint32(be.AppendUint32(w.segments, n), key), addr)
	return w
}

func (w wqe) inline(b []byte) wqe {
	s := append(be.AppendUint32(w.segments, 1<<31|uint32(len(b))), b...)
	for len(s)%16 != 0 {
		s = append(s, 0)
	}
	w.segments = s
	return w
}

func (w wqe) words(v ...uint64) wqe {
	for _, x := range v {
		w.segments = be.AppendUint64(w.segments, x)
	}
	return w
}

func (w wqe) av(to *qp, qkey uint32) wqe { return w.avTo(to.h, to.number, qkey) }

func (w wqe) avTo(to *host, qpn, qkey uint32) wqe {
	s := make([]byte, 48)
	prm.AVQKey.Set(s, uint64(qkey))
	prm.AVExtended.Set(s, 1)
	prm.AVDestQPN.Set(s, uint64(qpn))
	prm.AVDLID.Set(s, uint64(to.LID()))
	if to.GID(0).Version != 0 {
		prm.AVDLID.Set(s, 0xc123)
		prm.AVGRH.Set(s, 1)
	}
	prm.AVHopLimit.Set(s, 64)
	g, m := to.GID(0).GID, to.MAC()
	copy(prm.AVDGID.Bytes(s), g[:])
	copy(prm.AVDMAC.Bytes(s), m[:])
	w.segments = append(w.segments, s...)
	return w
}

// write writes a WQE to the ring and returns its bytes.
func (q *qp) write(w wqe) []byte {
	b := make([]byte, 16, 16+len(w.segments))
	prm.CtrlOpMod.Set(b, uint64(w.opmod))
	prm.CtrlWQEIndex.Set(b, uint64(q.posted))
	prm.CtrlOpcode.Set(b, uint64(w.op))
	prm.CtrlQPN.Set(b, uint64(q.number))
	prm.CtrlDS.Set(b, uint64(len(w.segments)+16)/16)
	if !w.silent {
		prm.CtrlCompletion.Set(b, prm.CompletionAlways)
	}
	prm.CtrlSolicited.SetBool(b, w.se)
	prm.CtrlFence.Set(b, uint64(w.fence))
	prm.CtrlImm.Set(b, uint64(w.imm))
	b = append(b, w.segments...)
	q.raw(b)
	return b
}

// raw writes bytes to the ring, wrapping at its end.
func (q *qp) raw(b []byte) {
	for i := 0; i < len(b); i += 16 {
		off := (uint64(q.posted)*64 + uint64(i)) & (uint64(q.sqSize)*64 - 1)
		copy(q.at(q.rqBytes+off, 16), b[i:min(i+16, len(b))])
	}
	q.posted += uint16((len(b) + 63) / 64)
}

// ring updates the doorbell record and stores the doorbell of the last WQE.
func (q *qp) ring(last []byte) {
	be.PutUint32(q.h.bytes(q.record+4, 4), uint32(q.posted))
	q.h.Store(q.uar, q.flame, last[:8])
	q.flame ^= 0x100
}

// post posts requests with one doorbell.
func (q *qp) post(ws ...wqe) {
	var last []byte
	for _, w := range ws {
		last = q.write(w)
	}
	q.ring(last)
}

// recv posts receive requests of one segment each.
func (q *qp) recv(r *region, off, n int) { q.recvSegs(wqe{}.data(r, off, n)) }

func (q *qp) recvSegs(w wqe) {
	slot := q.at(uint64(q.head&(q.rqSize-1))*q.rqStride, q.rqStride)
	clear(slot)
	n := copy(slot, w.segments)
	if n < len(slot) {
		be.PutUint32(slot[n+4:], engine.EndOfList)
	}
	q.head++
	be.PutUint32(q.h.bytes(q.record, 4), uint32(q.head))
}

// do runs f in the loop and waits until nothing is left to do within the
// timeout of a NOP's doorbell.
func (w *world) do(f func()) {
	w.t.Helper()
	w.loop.Run(f)
	w.later(21 * time.Millisecond)
}

// later advances the time. Everything the test has read before happens first.
func (w *world) later(d time.Duration) {
	w.loop.Run(func() {})
	<-time.After(d) // synthetic time
	synctest.Wait()
}

// takeViolations returns the violations since the last call.
func (h *host) takeViolations() (rules []engine.Rule) {
	for _, v := range h.violations {
		rules = append(rules, v.Rule)
	}
	h.violations = nil
	return rules
}

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
