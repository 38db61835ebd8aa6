package cm

import (
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// ConnParam has the parameters of Connect and Accept: struct rdma_conn_param. Nil
// stands for the zero ConnParam. In each number, 0 stands for the default. To set a
// number to 0, use [NoReads] or [NoRetry].
type ConnParam struct {
	// PrivateData is sent to the peer with the request or the reply: at most 56
	// bytes to connect and 196 to accept, for datagrams 180 and 136, on iWARP 251. Between
	// addresses of the InfiniBand family, a request has room for 36 more bytes.
	// Linux sets the first of those to 0 and parses the IP version in the second. It
	// rejects a request in which this byte is 0x4_ or 0x6_.
	PrivateData []byte

	// ResponderResources is how many READs and atomics of the peer this side serves
	// at a time. InitiatorDepth is how many of its own may be outstanding at the
	// peer. The devices of both sides limit both. 0 stands for the device's maximum,
	// NoReads for none.
	ResponderResources uint8
	InitiatorDepth     uint8

	FlowControl bool
	// RetryCount is how often a QP retransmits a packet that is not acknowledged,
	// 1 to 7. 0 stands for 6, NoRetry for none. The client's value applies to both QPs.
	// On rxe, 7 means without limit, and a QP that waits for a receive of the peer also
	// uses up its retries: see RNRRetryCount.
	RetryCount uint8
	// RNRRetryCount is how often the peer's QP retransmits a message for which this side
	// had no receive, 1 to 6, or 7 without limit. 0 stands for 7, NoRetry for none. The
	// kernels exchange the values of both sides, and return the peer's with the
	// attributes of RTS: see [ID.InitQPAttr]. uverbs.QPAttr.RNRRetryCount has it then.
	//
	// While rxe waits for a receive, its timer for acknowledgements keeps running:
	// with the default RetryCount the connection breaks after about 4.6 seconds.
	// With a RetryCount of 7 the QP waits without limit, even if the peer no longer
	// exists.
	RNRRetryCount uint8

	// SRQ, QPN and QKey describe the QP if the id has none. An Accept for UD sends
	// them to the peer as the destination of datagrams.
	SRQ  bool
	QPN  uint32
	QKey uint32
}

// Special values of the numbers in ConnParam.
const (
	// MaxRespRes, MaxInitDepth and 0 stand for the maximum that the device supports
	// and the peer requests.
	MaxRespRes   uint8 = 0xff
	MaxInitDepth uint8 = 0xff
	// NoReads sets ResponderResources or InitiatorDepth to 0.
	NoReads uint8 = 0xfe
	// NoRetry sets RetryCount or RNRRetryCount to 0.
	NoRetry uint8 = 0xfe
)

// librdmacm's default is 7 retries. On rxe that means without limit, and a send to a
// peer that no longer exists would never complete.
const (
	defaultRetryCount    = 6
	defaultRNRRetryCount = 7
)

// complete returns a copy of p with the defaults filled in. A nil p stands for the
// zero ConnParam.
func (p *ConnParam) complete() *ConnParam {
	var full ConnParam
	if p != nil {
		full = *p
	}
	for _, n := range []struct {
		value     *uint8
		def, none uint8
	}{
		{&full.ResponderResources, MaxRespRes, NoReads}, {&full.InitiatorDepth, MaxInitDepth, NoReads},
		{&full.RetryCount, defaultRetryCount, NoRetry}, {&full.RNRRetryCount, defaultRNRRetryCount, NoRetry},
	} {
		switch *n.value {
		case 0:
			*n.value = n.def
		case n.none:
			*n.value = 0
		}
	}
	return &full
}

// UDParam is a destination of datagrams: struct rdma_ud_param.
type UDParam struct {
	AH   uverbs.AHAttr
	QPN  uint32
	QKey uint32
}

// An ECE has vendor options of enhanced connection establishment, which the two sides
// of a connection exchange: struct ibv_ece. It is zero for devices that have no such
// options.
type ECE struct {
	VendorID uint32
	Options  uint32
}

// connParam parses the parameters of an event of a connected id.
func connParam(r *uapi.RdmaUcmEventResp) (ConnParam, []byte) {
	p := rdmacm.ConnParam(r)
	return ConnParam{
		ResponderResources: p.ResponderResources,
		InitiatorDepth:     p.InitiatorDepth,
		FlowControl:        p.FlowControl != 0,
		RetryCount:         p.RetryCount,
		RNRRetryCount:      p.RnrRetryCount,
		SRQ:                p.Srq != 0,
		QPN:                p.QpNum,
		QKey:               p.Qkey,
	}, privateData(p.PrivateData[:], p.PrivateDataLen)
}

// udParam parses the parameters of an event of a UD id.
func udParam(r *uapi.RdmaUcmEventResp) (UDParam, []byte) {
	p := rdmacm.UDParam(r)
	return UDParam{QPN: p.QpNum, QKey: p.Qkey, AH: ahAttr(&p.AhAttr)}, privateData(p.PrivateData[:], p.PrivateDataLen)
}

func ahAttr(a *uapi.IbUverbsAhAttr) uverbs.AHAttr {
	return uverbs.AHAttr{
		DGID:         a.Grh.Dgid,
		FlowLabel:    a.Grh.FlowLabel,
		SGIDIndex:    a.Grh.SgidIndex,
		HopLimit:     a.Grh.HopLimit,
		TrafficClass: a.Grh.TrafficClass,
		DLID:         a.Dlid,
		SL:           a.Sl,
		SrcPathBits:  a.SrcPathBits,
		StaticRate:   uverbs.Rate(a.StaticRate),
		IsGlobal:     a.IsGlobal != 0,
		Port:         a.PortNum,
	}
}

// privateData copies the private data of an event. It returns nil if there is none.
func privateData(b []byte, n uint8) []byte {
	if n == 0 {
		return nil
	}
	return append([]byte(nil), b[:n]...)
}
