package fakedev

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A QP is what the queue pairs of all devices have. The type of a model that embeds it implements transport.Queues with
// its methods, if the device's queue pairs are those of InfiniBand.
type QP struct {
	Kernel    *Kernel
	Handle    uint32
	Number    uint32
	PD        uint32
	UD        bool
	SignalAll bool
	Attr      transport.Config
	Access    uint32
	Cap       uapi.IbUverbsQpCap
	Endpoint  *transport.Endpoint // or nil

	failed func() // moves the QP to ERR
}

// NewQP returns the QP of a command, with a number.
func (k *Kernel) NewQP(c ioctl.Call, number uint32) QP {
	q := QP{Kernel: k, Handle: call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE), Number: number,
		PD:  k.PDs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE)],
		UD:  call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE) == uapi.IB_UVERBS_QPT_UD,
		Cap: *call.In[uapi.IbUverbsQpCap](c, uapi.UVERBS_ATTR_CREATE_QP_CAP)}
	q.SignalAll = call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_FLAGS)&uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0
	q.Attr = transport.Config{Type: transport.RC, QPN: number, PKey: 0xffff}
	if q.UD {
		q.Attr.Type = transport.UD
	}
	return q
}

// Connect adds the endpoint of the transport. fail moves the QP to ERR, which the device may do by itself.
func (q *QP) Connect(queues transport.Queues, fail func()) {
	d := q.Kernel.Dev
	q.Endpoint, q.failed = transport.New(&d.Fabric.Loop, d, queues, q.Attr), fail
	d.qps[q.Number] = q
}

// Disconnect removes the endpoint.
func (q *QP) Disconnect() { delete(q.Kernel.Dev.qps, q.Number) }

// StateOf returns the state of the transport that corresponds to a state of a QP.
func StateOf(s uint8) transport.State { return states[uverbs.QPState(s)] }

var states = map[uverbs.QPState]transport.State{uverbs.StateReset: transport.Reset, uverbs.StateInit: transport.Init,
	uverbs.StateRTR: transport.RTR, uverbs.StateRTS: transport.RTS, uverbs.StateSQD: transport.SQD,
	uverbs.StateSQE: transport.SQE, uverbs.StateErr: transport.Err}

// Set sets the attributes that a command names.
func (q *QP) Set(r *uapi.IbUverbsModifyQp) {
	a := &q.Attr
	for mask, set := range map[uverbs.QPMask]func(){
		uverbs.MaskAccess:          func() { q.Access = r.QpAccessFlags },
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
			a.Path = PathOf(r.Dest.SgidIndex, r.Dest.Dgid, r.Dest.FlowLabel, r.Dest.HopLimit, r.Dest.TrafficClass)
		},
	} {
		if uverbs.QPMask(r.AttrMask)&mask != 0 {
			set()
		}
	}
	if q.Endpoint != nil {
		q.Endpoint.Modify(*a)
	}
}

// Query completes the reply to QUERY_QP.
func (q *QP) Query(r *uapi.IbUverbsQueryQpResp) {
	a := &q.Attr
	r.Qkey, r.DestQpNum, r.RqPsn, r.SqPsn, r.PortNum = a.QKey, a.DestQPN, a.RecvPSN, a.SendPSN, 1
	r.MaxRdAtomic, r.MaxDestRdAtomic = uint8(a.MaxInitiate), uint8(a.MaxRespond)
	r.MinRnrTimer, r.Timeout, r.RetryCnt, r.RnrRetry = a.MinRNRTimer, a.AckTimeout, a.RetryCount, a.RNRRetry
	r.QpAccessFlags = q.Access
	r.MaxSendWr, r.MaxRecvWr, r.MaxSendSge, r.MaxRecvSge, r.MaxInlineData = q.Cap.MaxSendWr, q.Cap.MaxRecvWr,
		q.Cap.MaxSendSge, q.Cap.MaxRecvSge, q.Cap.MaxInlineData
	if q.SignalAll {
		r.SqSigAll = 1
	}
	if q.Endpoint != nil && q.Endpoint.State() == transport.Err { // the device has moved the QP
		r.QpState, r.CurQpState = uint8(uverbs.StateErr), uint8(uverbs.StateErr)
	}
}

// Events of IB: enum ib_event_type is not part of the ABI's headers.
const (
	eventFatal   = 1
	eventRequest = 2
	eventAccess  = 3
	eventEstab   = 4
	// EventSRQLimit is IB_EVENT_SRQ_LIMIT_REACHED.
	EventSRQLimit = 15
)

// Fail moves the QP to ERR.
func (q *QP) Fail() {
	q.Kernel.Later(func() {
		if s := q.Endpoint.State(); s != transport.Err && s != transport.Reset {
			q.failed()
		}
	})
}

// Fatal moves the QP to ERR and reports it, because of a request that the device cannot read.
func (q *QP) Fatal() { q.Broken(transport.Catastrophic) }

// Broken implements transport.Queues, as do the methods below.
func (q *QP) Broken(e transport.Event) {
	if event, ok := map[transport.Event]uint32{transport.RequestError: eventRequest, transport.AccessError: eventAccess,
		transport.Catastrophic: eventFatal}[e]; ok {
		q.Kernel.Happened("QP", q.Handle, event)
	}
	q.Fail()
}

// Established reports the first packet in RTR.
func (q *QP) Established() { q.Kernel.Happened("QP", q.Handle, eventEstab) }

// SQDrained does nothing: the event is not requested.
func (q *QP) SQDrained() {}

// Migrated does nothing: there are no alternate paths.
func (q *QP) Migrated(bool) {}

// Invalidate refuses: there are no memory windows.
func (q *QP) Invalidate(uint32, uint32) transport.Syndrome { return transport.RemoteAccess }

// Remote returns memory for an access by the peer.
func (q *QP) Remote(_, key uint32, va uint64, n uint32, a transport.Access) (transport.Region, transport.Syndrome) {
	right := rights[a]
	m := q.Kernel.Dev.Local(q.PD, SGE{va, key, n}, right)
	if m == nil || q.Access&right == 0 {
		return nil, transport.RemoteAccess
	}
	if a == transport.RemoteAtomic && va%atomicSize != 0 {
		return nil, transport.RemoteInvalidRequest
	}
	return region{m, va}, transport.OK
}

// Send implements transport.Port: it delivers a packet to the device with the destination's GID.
func (d *Device) Send(path *transport.Path, p *roce.Packet) {
	p.Route = roce.Route{Version: roce.V2, GRH: true, DGID: path.DGID, HopLimit: path.HopLimit,
		TrafficClass: path.TrafficClass, FlowLabel: path.FlowLabel}
	if int(path.SGIDIndex) < len(d.GIDs) {
		p.Route.SGID = d.GIDs[path.SGIDIndex].Gid
	}
	if to := d.Fabric.With(path.DGID); to != nil {
		d.Fabric.Loop.Post(func() {
			if q := to.qps[p.DestQPN]; q != nil {
				q.Endpoint.Receive(p)
			}
		})
	}
}

// With returns the device with a GID, or nil.
func (f *Fabric) With(gid [16]byte) *Device {
	for _, d := range f.devices {
		for i := range d.GIDs {
			if d.GIDs[i].Gid == gid {
				return d
			}
		}
	}
	return nil
}
