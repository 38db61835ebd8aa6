package fakebnxt

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A qp is a queue pair.
type qp struct {
	dev       *Device
	kernel    *Kernel
	handle    uint32
	cookie    uint64 // what completions name it by
	number    uint32
	pd        uint32
	ud        bool
	signalAll bool
	attr      transport.Config
	access    uint32
	cap       uapi.IbUverbsQpCap
	endpoint  *transport.Endpoint
	send      *cq
	recv      *cq
	srq       *srq
	sq        sendRing
	rq        recvRing
}

// newQP returns the QP of a command.
func (k *Kernel) newQP(c ioctl.Call, u *uapi.BnxtReQpReq, size *uapi.IbUverbsQpCap) *qp {
	q := &qp{dev: k.dev, kernel: k, handle: call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE), cookie: u.QpHandle,
		number: k.dev.number("QP"), cap: *size,
		pd:   k.pds[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE)],
		send: k.cqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)],
		recv: k.cqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)],
		srq:  k.srqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)],
		ud:   call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE) == uapi.IB_UVERBS_QPT_UD}
	q.signalAll = call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_FLAGS)&uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0
	q.sq.init(k, u, size, q.ud)
	slots := uint32(headSlots + maxSGE)
	if k.variable {
		slots = headSlots + size.MaxRecvSge
	}
	q.rq = recvRing{memory: k.memory, addr: u.Qprva, depth: k.depth(size.MaxRecvWr+1, maxWR+1), slots: slots}
	q.rq.bytes = uint64(q.rq.depth) * uint64(slots) * slotSize
	q.attr = transport.Config{Type: transport.RC, QPN: q.number, PKey: 0xffff}
	if q.ud {
		q.attr.Type = transport.UD
	}
	q.endpoint = transport.New(&k.dev.fabric.loop, k.dev, q, q.attr)
	return q
}

// enter changes the state of the transport.
func (q *qp) enter(s transport.State) {
	before := q.endpoint.State()
	q.endpoint.SetState(s)
	switch {
	case s == transport.Reset:
		q.endpoint.TakeBack()
		q.sq.reset()
		q.rq.reset()
	case s == transport.RTS && before == transport.RTR:
		q.sq.psn = q.attr.SendPSN
	case s == transport.Err && before != transport.Err:
		q.endpoint.TakeBack()
		q.terminate()
	}
}

// terminate writes the completions that report that the QP is in ERR. The program completes what it has posted.
func (q *qp) terminate() {
	e := newEntry(typeTerm, 0)
	e.put64(handleAt, q.cookie)
	e.put16(consumerAt, uint16(q.sq.done))
	e.put16(recvConsAt, uint16(q.rq.next))
	q.send.complete(e, false)
	if q.recv != q.send {
		q.recv.complete(e, false)
	}
}

// fail moves the QP to ERR.
func (q *qp) fail() {
	q.dev.fabric.loop.Post(func() {
		if s := q.endpoint.State(); s != transport.Err && s != transport.Reset {
			q.enter(transport.Err)
		}
	})
}

// states has the states of the transport.
var states = map[uverbs.QPState]transport.State{uverbs.StateReset: transport.Reset, uverbs.StateInit: transport.Init,
	uverbs.StateRTR: transport.RTR, uverbs.StateRTS: transport.RTS, uverbs.StateSQD: transport.SQD,
	uverbs.StateSQE: transport.SQE, uverbs.StateErr: transport.Err}

// modifyQP notes what the device is to do when the command has succeeded.
func (k *Kernel) modifyQP(r *uapi.IbUverbsModifyQp, from, to uint8) error {
	attr := *r
	k.modified = func() {
		q := k.qps[attr.QpHandle]
		q.set(&attr)
		if from != to {
			q.enter(states[uverbs.QPState(to)])
		}
	}
	return nil
}

// set sets the attributes that a command names.
func (q *qp) set(r *uapi.IbUverbsModifyQp) {
	a := &q.attr
	for mask, set := range map[uverbs.QPMask]func(){
		uverbs.MaskAccess:          func() { q.access = r.QpAccessFlags },
		uverbs.MaskQKey:            func() { a.QKey = r.Qkey },
		uverbs.MaskMinRNRTimer:     func() { a.MinRNRTimer = r.MinRnrTimer },
		uverbs.MaskMaxRdAtomic:     func() { a.MaxInitiate = int(r.MaxRdAtomic) },
		uverbs.MaskMaxDestRdAtomic: func() { a.MaxRespond = int(r.MaxDestRdAtomic) },
		uverbs.MaskRetryCount:      func() { a.RetryCount = r.RetryCnt },
		uverbs.MaskRNRRetryCount:   func() { a.RNRRetry = r.RnrRetry },
		uverbs.MaskTimeout:         func() { a.AckTimeout = r.Timeout },
		uverbs.MaskPathMTU:         func() { a.MTU = 128 << r.PathMtu },
		uverbs.MaskDestQPN:         func() { a.DestQPN = r.DestQpNum },
		uverbs.MaskRQPSN:           func() { a.RecvPSN = r.RqPsn },
		uverbs.MaskSQPSN:           func() { a.SendPSN = r.SqPsn },
		uverbs.MaskAV: func() {
			a.Path = pathOf(r.Dest.SgidIndex, r.Dest.Dgid, r.Dest.FlowLabel, r.Dest.HopLimit, r.Dest.TrafficClass)
		},
	} {
		if uverbs.QPMask(r.AttrMask)&mask != 0 {
			set()
		}
	}
	q.endpoint.Modify(*a)
}

// queryQP completes the reply to QUERY_QP with what the device has.
func (k *Kernel) queryQP(h uint32, r *uapi.IbUverbsQueryQpResp) {
	q := k.qps[h]
	a := &q.attr
	r.Qkey, r.DestQpNum, r.RqPsn, r.SqPsn, r.PortNum = a.QKey, a.DestQPN, a.RecvPSN, a.SendPSN, 1
	r.MaxRdAtomic, r.MaxDestRdAtomic = uint8(a.MaxInitiate), uint8(a.MaxRespond)
	r.MinRnrTimer, r.Timeout, r.RetryCnt, r.RnrRetry = a.MinRNRTimer, a.AckTimeout, a.RetryCount, a.RNRRetry
	r.QpAccessFlags = q.access
	r.MaxSendWr, r.MaxRecvWr, r.MaxSendSge, r.MaxRecvSge, r.MaxInlineData = q.cap.MaxSendWr, q.cap.MaxRecvWr,
		q.cap.MaxSendSge, q.cap.MaxRecvSge, q.cap.MaxInlineData
	if q.signalAll {
		r.SqSigAll = 1
	}
	if q.endpoint.State() == transport.Err { // the device has moved the QP
		r.QpState, r.CurQpState = uint8(uverbs.StateErr), uint8(uverbs.StateErr)
	}
}

// Events of IB: enum ib_event_type is not part of the ABI's headers.
const (
	eventFatal   = 1
	eventRequest = 2
	eventAccess  = 3
	eventEstab   = 4
)

// async sends an event of the QP.
func (q *qp) async(event uint32) {
	k := q.kernel
	q.dev.fabric.loop.Post(func() { // a command may be running, which holds the fake kernel's lock
		if k.qps[q.handle] == q {
			k.check(k.Async(k.UserHandle(q.handle), event))
		}
	})
}

// Broken implements transport.Queues, as do the methods below.
func (q *qp) Broken(e transport.Event) {
	if event, ok := map[transport.Event]uint32{transport.RequestError: eventRequest, transport.AccessError: eventAccess,
		transport.Catastrophic: eventFatal}[e]; ok {
		q.async(event)
	}
	q.fail()
}

// Established reports the first packet in RTR.
func (q *qp) Established() { q.async(eventEstab) }

// SQDrained does nothing: the event is not requested.
func (q *qp) SQDrained() {}

// Migrated does nothing: there are no alternate paths.
func (q *qp) Migrated(bool) {}
