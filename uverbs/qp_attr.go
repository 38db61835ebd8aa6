package uverbs

import (
	"math/bits"
	"strings"

	"github.com/goverbs/goverbs/internal/uapi"
)

// QPType is the transport service of a QP. The values are those of
// ibv_qp_type, except DCT, DCI and SRD.
type QPType uint8

// The transport services.
const (
	RC QPType = 2 // reliable connection
	UC QPType = 3 // unreliable connection: no acknowledgments, no READ, no atomics
	UD QPType = 4 // unreliable datagram

	// The two ends of an extended reliable connection: see [XRCD].
	XRCSend QPType = 9  // initiator: sends, and each request names an SRQ of the peer
	XRCRecv QPType = 10 // target, created with XRCD.CreateQP
)

// The two ends of the dynamically connected transport (DC), which mlx5 devices have. A DCI sends
// to any number of DCTs: each request names the address and the number of the DCT, and its access
// key. The device connects and disconnects as needed. A DCT is a target for any number of DCIs,
// whose messages use its SRQ. So a process needs one QP of each type, however many peers it has.
//
//	node that receives                                  node that sends
//	t := pd.CreateQP(QPConfig{Type: DCT, RecvCQ: cq,    i := pd.CreateQP(QPConfig{Type: DCI, SendCQ: cq,
//		SRQ: srq, DCKey: key})                              MaxSendWR: 64})
//	t.Ready()                                           i.Ready()
//	t.Endpoint(), for the sender                        SendWR{AH: ah, QPN: t.QPN(), DCKey: key}
//
// To the kernel both are of type IBV_QPT_DRIVER. The values here end in those of mlx5dv_dc_type:
// mlx5dv_create_qp(3).
const (
	DCT QPType = 0xf1 // target
	DCI QPType = 0xf2 // initiator: all operations of RC
)

// SRD is scalable reliable datagrams, which Amazon's EFA devices have. A QP sends to any number of
// peers: each request names the address, the number and the Q_Key of the peer's QP, as on a UD QP,
// and so do READs and WRITEs, where the device supports them. Messages arrive once, but in any
// order. A failed request does not affect others. [QP.Ready] prepares a QP: [QP.Connect] and
// [QP.Handshake] are for types that have one peer.
//
// To the kernel the type is IBV_QPT_DRIVER: efadv_create_qp_ex(3). The value here ends in that of
// EFADV_QP_DRIVER_TYPE_SRD.
const SRD QPType = 0xe0

// kernel returns the kernel's value of the type.
func (t QPType) kernel() uint64 {
	if t.dc() || t == SRD {
		return uapi.IB_UVERBS_QPT_DRIVER
	}
	return uint64(t)
}

func (t QPType) dc() bool { return t == DCT || t == DCI }

// datagrams reports whether each message names its destination, and each QP has a Q_Key.
func (t QPType) datagrams() bool { return t == UD || t == SRD }

// RawPacket is the QP type for raw Ethernet frames: IBV_QPT_RAW_PACKET. It needs
// CAP_NET_RAW.
//
// A SEND is a whole frame, from the destination address on, without its checksum.
// The beginning of the frame may be inline data, followed by the SGL. Some adapters
// require the first 18 bytes inline. If there is no inline data, they are copied
// from the SGEs, whose memory must then belong to this process: see
// [ErrFrameHeader]. Receives are filled with the frames that an ether.Flow directs to
// the QP. No other operation is supported.
const RawPacket QPType = 8

func (t QPType) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	case RawPacket:
		return "RawPacket"
	case XRCSend:
		return "XRCSend"
	case XRCRecv:
		return "XRCRecv"
	case DCT:
		return "DCT"
	case DCI:
		return "DCI"
	case SRD:
		return "SRD"
	}
	return "QP type " + itoa(uint64(t))
}

// QPCap is the size of a QP's queues: struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR  int
	MaxRecvWR  int
	MaxSendSGE int
	MaxRecvSGE int
	MaxInline  int // bytes
}

// QPState is the state of a QP. The values are those of ibv_qp_state.
type QPState uint8

// The states of ibv_modify_qp(3).
const (
	StateReset QPState = 0
	StateInit  QPState = 1
	StateRTR   QPState = 2 // ready to receive
	StateRTS   QPState = 3 // ready to send
	StateSQD   QPState = 4 // send queue drained
	StateSQE   QPState = 5 // send queue error
	StateErr   QPState = 6
)

func (s QPState) String() string {
	names := [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	if int(s) < len(names) {
		return names[s]
	}
	return "state " + itoa(uint64(s))
}

// QPMask selects fields of a [QPAttr]. The values are those of ibv_qp_attr_mask.
type QPMask uint32

// The bits of ibv_modify_qp(3).
const (
	MaskState            QPMask = 1 << 0
	MaskCurState         QPMask = 1 << 1
	MaskEnSQDAsyncNotify QPMask = 1 << 2
	MaskAccess           QPMask = 1 << 3
	MaskPKeyIndex        QPMask = 1 << 4
	MaskPort             QPMask = 1 << 5
	MaskQKey             QPMask = 1 << 6
	MaskAV               QPMask = 1 << 7
	MaskPathMTU          QPMask = 1 << 8
	MaskTimeout          QPMask = 1 << 9
	MaskRetryCount       QPMask = 1 << 10
	MaskRNRRetryCount    QPMask = 1 << 11
	MaskRQPSN            QPMask = 1 << 12
	MaskMaxRdAtomic      QPMask = 1 << 13
	MaskAltPath          QPMask = 1 << 14
	MaskMinRNRTimer      QPMask = 1 << 15
	MaskSQPSN            QPMask = 1 << 16
	MaskMaxDestRdAtomic  QPMask = 1 << 17
	MaskPathMigState     QPMask = 1 << 18
	MaskCap              QPMask = 1 << 19
	MaskDestQPN          QPMask = 1 << 20
	MaskRateLimit        QPMask = 1 << 25
)

var maskNames = [...]string{
	"State", "CurState", "EnSQDAsyncNotify", "Access", "PKeyIndex", "Port", "QKey", "AV",
	"PathMTU", "Timeout", "RetryCount", "RNRRetryCount", "RQPSN", "MaxRdAtomic", "AltPath", "MinRNRTimer",
	"SQPSN", "MaxDestRdAtomic", "PathMigState", "Cap", "DestQPN", 25: "RateLimit",
}

// String returns the names of the fields, separated by commas.
func (m QPMask) String() string {
	var names []string
	for rest := uint32(m); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros32(rest)
		if i < len(maskNames) && maskNames[i] != "" {
			names = append(names, maskNames[i])
		} else {
			names = append(names, "bit "+sitoa(i))
		}
	}
	return strings.Join(names, ", ")
}

// An AHAttr is the address of a peer: struct ibv_ah_attr. On RoCE, IsGlobal must be
// set and HopLimit must be at least 1.
type AHAttr struct {
	IsGlobal     bool // the GRH fields, DGID to TrafficClass, are used
	DGID         GID
	FlowLabel    uint32
	SGIDIndex    uint8 // in the port's GID table
	HopLimit     uint8
	TrafficClass uint8
	DLID         uint16 // InfiniBand only
	SL           uint8
	SrcPathBits  uint8
	StaticRate   Rate  // of a peer with a slower port
	Port         uint8 // counted from 1
}

// A QPAttr contains the attributes of a QP: struct ibv_qp_attr. A [QPMask] selects
// the fields that are used.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	PathMigState     uint8 // 0 migrated, 1 rearm, 2 armed
	QKey             uint32
	RQPSN            uint32
	SQPSN            uint32
	DestQPN          uint32
	Access           Access
	Cap              QPCap
	AV               AHAttr
	AltAV            AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify bool
	SQDraining       bool  // set by Query only
	MaxRdAtomic      uint8 // READs and atomics that may be outstanding
	MaxDestRdAtomic  uint8 // READs and atomics of the peer that may be outstanding
	MinRNRTimer      uint8 // code of IBA 9.7.5.2.8: 12 is 0.64 ms
	Port             uint8 // counted from 1
	Timeout          uint8 // 4.096 us * 2^Timeout; 0 means no timeout
	RetryCount       uint8 // 0 to 7; on rxe 7 means no limit
	// RNRRetryCount is how often a message is sent again for which the peer had no receive: 0 to 6, 7
	// means no limit. Connect and Handshake set 7. On a connection of package cm it is what the peer
	// has set in its cm.ConnParam, which the kernel returns when the QP moves to RTS.
	RNRRetryCount uint8
	AltPort       uint8
	AltTimeout    uint8
	RateLimit     uint32 // send rate in kb/s, 0 for no limit; Modify only, if the device supports it
	SignalAll     bool   // set by Query only
}

func (a *AHAttr) encode(d *uapi.IbUverbsQpDest) {
	*d = uapi.IbUverbsQpDest{
		Dgid:         a.DGID,
		FlowLabel:    a.FlowLabel,
		Dlid:         a.DLID,
		SgidIndex:    a.SGIDIndex,
		HopLimit:     a.HopLimit,
		TrafficClass: a.TrafficClass,
		Sl:           a.SL,
		SrcPathBits:  a.SrcPathBits,
		StaticRate:   uint8(a.StaticRate),
		IsGlobal:     b2u(a.IsGlobal),
		PortNum:      a.Port,
	}
}

func (a *AHAttr) decode(d *uapi.IbUverbsQpDest) {
	*a = AHAttr{
		DGID:         d.Dgid,
		FlowLabel:    d.FlowLabel,
		DLID:         d.Dlid,
		SGIDIndex:    d.SgidIndex,
		HopLimit:     d.HopLimit,
		TrafficClass: d.TrafficClass,
		SL:           d.Sl,
		SrcPathBits:  d.SrcPathBits,
		StaticRate:   Rate(d.StaticRate),
		IsGlobal:     d.IsGlobal != 0,
		Port:         d.PortNum,
	}
}

func (a *QPAttr) encode(r *uapi.IbUverbsModifyQp) {
	*r = uapi.IbUverbsModifyQp{
		Qkey:             a.QKey,
		RqPsn:            a.RQPSN,
		SqPsn:            a.SQPSN,
		DestQpNum:        a.DestQPN,
		QpAccessFlags:    uint32(a.Access),
		PkeyIndex:        a.PKeyIndex,
		AltPkeyIndex:     a.AltPKeyIndex,
		QpState:          uint8(a.State),
		CurQpState:       uint8(a.CurState),
		PathMtu:          uint8(a.PathMTU),
		PathMigState:     a.PathMigState,
		EnSqdAsyncNotify: b2u(a.EnSQDAsyncNotify),
		MaxRdAtomic:      a.MaxRdAtomic,
		MaxDestRdAtomic:  a.MaxDestRdAtomic,
		MinRnrTimer:      a.MinRNRTimer,
		PortNum:          a.Port,
		Timeout:          a.Timeout,
		RetryCnt:         a.RetryCount,
		RnrRetry:         a.RNRRetryCount,
		AltPortNum:       a.AltPort,
		AltTimeout:       a.AltTimeout,
	}
	a.AV.encode(&r.Dest)
	a.AltAV.encode(&r.AltDest)
}

func (a *QPAttr) decode(r *uapi.IbUverbsQueryQpResp) {
	*a = QPAttr{
		State:        QPState(r.QpState),
		CurState:     QPState(r.CurQpState),
		PathMTU:      MTU(r.PathMtu),
		PathMigState: r.PathMigState,
		QKey:         r.Qkey,
		RQPSN:        r.RqPsn,
		SQPSN:        r.SqPsn,
		DestQPN:      r.DestQpNum,
		Access:       Access(r.QpAccessFlags),
		Cap: QPCap{
			MaxSendWR:  int(r.MaxSendWr),
			MaxRecvWR:  int(r.MaxRecvWr),
			MaxSendSGE: int(r.MaxSendSge),
			MaxRecvSGE: int(r.MaxRecvSge),
			MaxInline:  int(r.MaxInlineData),
		},
		PKeyIndex:       r.PkeyIndex,
		AltPKeyIndex:    r.AltPkeyIndex,
		SQDraining:      r.SqDraining != 0,
		MaxRdAtomic:     r.MaxRdAtomic,
		MaxDestRdAtomic: r.MaxDestRdAtomic,
		MinRNRTimer:     r.MinRnrTimer,
		Port:            r.PortNum,
		Timeout:         r.Timeout,
		RetryCount:      r.RetryCnt,
		RNRRetryCount:   r.RnrRetry,
		AltPort:         r.AltPortNum,
		AltTimeout:      r.AltTimeout,
		SignalAll:       r.SqSigAll != 0,
	}
	a.AV.decode(&r.Dest)
	a.AltAV.decode(&r.AltDest)
}

func b2u(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
