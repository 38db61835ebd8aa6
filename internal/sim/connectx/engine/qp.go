package engine

import (
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A Service is a queue pair's service type, with its value in the context.
type Service uint8

const (
	ServiceRC  Service = 0x00
	ServiceUC  Service = 0x01
	ServiceUD  Service = 0x02
	ServiceXRC Service = 0x03
	ServiceDCI Service = 0x05
	ServiceDCT Service = 0x06 // created by CreateDCT
	ServiceQP0 Service = 0x07
	ServiceQP1 Service = 0x08
	ServiceRaw Service = 0x09 // raw Ethernet: created as an SQ, an RQ and a TIR instead
	ServiceUMR Service = 0x0c // of the kernel's driver: updates of memory keys
)

// datagram reports whether requests have address vectors.
func (s Service) datagram() bool { return s == ServiceUD || s == ServiceQP0 || s == ServiceQP1 }

// management reports whether packets are addressed to the service instead of a
// number.
func (qp *QP) management() bool { return qp.Service == ServiceQP0 || qp.Service == ServiceQP1 }

// A Source is where a queue pair's receive requests are posted.
type Source uint8

const (
	FromRQ   Source = 0
	FromSRQ  Source = 1
	FromNone Source = 3
)

// A QPState is a queue pair's state, with its value in the context.
type QPState uint8

const (
	Reset    QPState = 0
	Init     QPState = 1
	RTR      QPState = 2
	RTS      QPState = 3
	SQE      QPState = 4
	SQD      QPState = 5
	Err      QPState = 6
	Draining QPState = 7
)

// QPAttr is a queue pair's context.
type QPAttr struct {
	// Set by CreateQP.
	Service      Service
	PD           uint32
	UAR          uint32
	UserIndex    uint32
	SendCQ       uint32
	RecvCQ       uint32
	XRCD         uint32
	Source       Source
	SRQ          uint32
	NoSQ         bool
	LogSQSize    uint8 // in blocks of 64 bytes
	LogRQSize    uint8
	LogRQStride  uint8  // log2 of the size of a receive WQE in bytes
	Buffer       Buffer // the receive queue, followed by the send queue
	Record       uint64 // of the doorbell record: receive counter, send counter
	ReservedLKey bool   // ReservedLKey may be used
	// Maximum size of data stored in the completion instead of memory, 0, 32 or
	// 64 bytes: of a READ or an atomic, and of a received message.
	ScatterRequest, ScatterResponse uint8
	SourceQPN                       uint32 // source QP number of datagrams; 0 means the number
	BlockLoopback                   bool   // of multicast
	// Of a DCI: the logarithms of the number of streams, and of the number of
	// failed ones with which the queue pair fails. If both are 0, requests have
	// no streams.
	LogStreams, LogErrored uint8
	DCKey                  uint64 // of a DCT

	// Set by ModifyQP.
	State                                 QPState // returned by QueryQP
	MTU                                   int     // in bytes
	RemoteQPN                             uint32
	Primary, Alternate                    transport.Path
	Migration                             transport.MigrationState
	SendPSN, RecvPSN                      uint32
	AckTimeout, RetryCount, RNRRetry      uint8
	MinRNRTimer                           uint8
	MaxInitiate, MaxRespond               int
	QKey                                  uint32
	RemoteRead, RemoteWrite, RemoteAtomic bool
	DrainEvent                            bool   // EventSQDrained is requested
	ECE                                   uint32 // options of enhanced connection establishment
	LAGPort                               uint8  // of the LAG, through which packets leave; 0 means any
	OutOfOrder                            bool   // packets may overtake others; of a DCT since its creation
	Ordering                              uint8  // the requested order, of which OutOfOrder is the result, for queries
}

// A QP is a queue pair.
type QP struct {
	QPAttr
	Number uint32

	hca            *HCA
	state          QPState
	pd, xrcd       *domain
	sendCQ, recvCQ *CQ
	srq            *SRQ
	sq             sendQueue
	rq             receiveQueue
	endpoint       *transport.Endpoint
	attached       int  // memberships in multicast groups
	wasReady       bool // the queue pair has been in state RTR
	compared       bool // its attributes were compared with the peer's: see Config.Program
	// Where the attributes of the transitions to RTR and RTS were set: see Config.Program.
	receiving, sending Origin
	account            account
	late               *Violation      // a message waits for a receive request: see Config.Program
	lastReported       bool            // the last WQE event was reported
	errored            map[uint16]bool // DCI: streams that have failed
	target             *target         // DCT
}

// CreateQP creates a queue pair in state Reset.
func (h *HCA) CreateQP(a QPAttr) (*QP, error) {
	if a.Service == ServiceDCT {
		return nil, failf(ErrParam, "a DCT is not created as a queue pair")
	}
	return h.create(a)
}

// create creates a queue pair or a DCT.
func (h *HCA) create(a QPAttr) (*QP, error) {
	qp := &QP{QPAttr: a, hca: h}
	if err := qp.resolve(); err != nil {
		return nil, err
	}
	if err := qp.layout(); err != nil {
		return nil, err
	}
	if err := h.keep(&qp.Buffer); err != nil {
		return nil, err
	}
	n, err := h.qps.add(qp)
	if err != nil {
		h.drop(&qp.Buffer)
		return nil, err
	}
	qp.Number, qp.sq.number = n, n
	qp.addUsers(1)
	if qp.management() {
		h.management = append(h.management, qp)
	}
	qp.endpoint = transport.New(h.config.Loop, &h.port, &queues{qp: qp}, qp.transport())
	return qp, nil
}

// resolve looks up the objects in the attributes.
func (qp *QP) resolve() (err error) {
	h := qp.hca
	switch qp.Service {
	case ServiceRC, ServiceUC, ServiceUD, ServiceXRC, ServiceDCI, ServiceDCT, ServiceQP0, ServiceQP1, ServiceUMR:
	default:
		return failf(ErrParam, "service type %#x", uint8(qp.Service))
	}
	if qp.Service == ServiceDCI && qp.NoSQ {
		return failf(ErrParam, "a DCI without a send queue")
	}
	if qp.Service == ServiceUMR && qp.PD == 0 { // the kernel's has no PD: it updates keys of all domains
		qp.pd = &domain{}
	} else if qp.pd, err = h.pds.get(qp.PD); err != nil {
		return err
	}
	if qp.xrcTarget() {
		if qp.xrcd, err = h.xrcds.get(qp.XRCD); err != nil {
			return err
		}
	}
	if !qp.NoSQ {
		if qp.sendCQ, err = h.cqs.get(qp.SendCQ); err != nil {
			return err
		}
	}
	if qp.receives() && qp.Service != ServiceXRC && qp.Service != ServiceDCI {
		if qp.recvCQ, err = h.cqs.get(qp.RecvCQ); err != nil {
			return err
		}
	}
	if qp.Source == FromSRQ && qp.Service != ServiceXRC && qp.Service != ServiceDCI {
		if qp.srq, err = h.srqs.get(qp.SRQ); err != nil {
			return err
		}
	}
	return nil
}

// xrcTarget reports whether the queue pair is an XRC target.
func (qp *QP) xrcTarget() bool { return qp.Service == ServiceXRC && qp.NoSQ }

// receives reports whether receive requests can be used.
func (qp *QP) receives() bool { return qp.Source == FromRQ || qp.Source == FromSRQ }

// layout computes the offsets of the two rings in the buffer.
func (qp *QP) layout() error {
	l := qp.hca.limits
	rq, sq := uint64(0), uint64(0)
	if qp.Source == FromRQ && qp.Service != ServiceXRC && qp.Service != ServiceDCI {
		if qp.LogRQSize > l.LogWQSize || qp.LogRQStride < 4 || qp.LogRQStride > 11 {
			return failf(ErrLimit, "a receive queue of 2^%d elements of 2^%d bytes", qp.LogRQSize, qp.LogRQStride)
		}
		rq = 1 << (qp.LogRQSize + qp.LogRQStride)
	}
	if !qp.NoSQ {
		if qp.LogSQSize > l.LogWQSize {
			return failf(ErrLimit, "a send queue of 2^%d blocks", qp.LogSQSize)
		}
		sq = 64 << qp.LogSQSize
	}
	if !qp.Buffer.holds(rq + sq) {
		return failf(ErrParam, "queues of %d and %d bytes in %d pages of 2^%d bytes", rq, sq, len(qp.Buffer.Pages),
			qp.Buffer.PageShift)
	}
	if qp.Record%4 != 0 {
		return failf(ErrParam, "a doorbell record at %#x", qp.Record)
	}
	qp.rq = receiveQueue{size: rq}
	qp.sq = sendQueue{hca: qp.hca, uar: qp.UAR, buffer: &qp.Buffer, record: qp.Record, base: rq, size: sq}
	return nil
}

// addUsers adds n to the user counts of the objects that the queue pair refers
// to.
func (qp *QP) addUsers(n int) {
	qp.pd.users += n
	if qp.xrcd != nil {
		qp.xrcd.users += n
	}
	if qp.sendCQ != nil {
		qp.sendCQ.addUsers(n)
	}
	if qp.recvCQ != nil {
		qp.recvCQ.addUsers(n)
	}
	if qp.srq != nil {
		qp.srq.users += n
	}
}

// QP returns the queue pair with the given number.
func (h *HCA) QP(number uint32) (*QP, error) {
	qp, err := h.qps.get(number)
	if err == nil && qp.target != nil {
		return nil, failf(ErrResource, "QP %#x is a DCT", number)
	}
	return qp, err
}

// QueryQP returns a queue pair's current context.
func (h *HCA) QueryQP(number uint32) (QPAttr, error) {
	qp, err := h.QP(number)
	if err != nil {
		return QPAttr{}, err
	}
	a := qp.QPAttr
	a.State = qp.state
	if qp.state == SQD && !qp.sq.drained {
		a.State = Draining
	}
	c := qp.endpoint.Config()
	a.Primary, a.Alternate, a.Migration = c.Path, c.AltPath, c.Migration
	if qp.state >= RTR {
		send, recv := qp.endpoint.PSN()
		a.RecvPSN = recv
		if qp.state != RTR {
			a.SendPSN = send
		}
	}
	return a, nil
}

// DestroyQP destroys a queue pair that is not in a multicast group.
func (h *HCA) DestroyQP(number uint32) error {
	qp, err := h.QP(number)
	if err != nil {
		return err
	}
	return h.destroy(qp)
}

// destroy destroys a queue pair or a DCT.
func (h *HCA) destroy(qp *QP) error {
	number := qp.Number
	if qp.attached > 0 {
		return failf(ErrBusy, "QP %#x is in %d multicast groups", number, qp.attached)
	}
	h.endBursts(number)
	qp.stop()
	qp.forget()
	qp.addUsers(-1)
	h.drop(&qp.Buffer)
	h.injections = slices.DeleteFunc(h.injections, func(in *injection) bool { return in.qpn == number })
	h.qps.remove(number)
	if qp.management() {
		h.management = slices.DeleteFunc(h.management, func(o *QP) bool { return o == qp })
	}
	h.config.Tracer.Forget("qp", uint64(number))
	return nil
}

// stop ends the work in progress, without completions.
func (qp *QP) stop() {
	qp.state = Reset
	qp.hca.dropFaults(qp.Number)
	qp.endpoint.SetState(transport.Reset)
	qp.endpoint.TakeBack()
	if qp.target != nil {
		qp.target.stop()
	}
}

// traced returns the queue pair as a field of a trace event.
func (qp *QP) traced() trace.Field { return trace.Object("qp", "qp", qp.Number) }
