package uverbs

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A DeviceAttr holds the capabilities and limits of a device: struct ibv_device_attr_ex, see
// ibv_query_device_ex(3). Counts are numbers of objects or requests. Sizes are in bytes. It has no fields for
// what no device has: reliable datagrams (max_ee, max_rdd), raw IPv6 packets and fast memory regions (max_fmr).
// Those of Ethernet are in package ether.
type DeviceAttr struct {
	FWVer             string // major.minor.subminor
	NodeGUID          GUID
	SysImageGUID      GUID
	MaxMRSize         uint64
	PageSizeCap       uint64 // bit n: the device supports pages of 2^n bytes
	VendorID          uint32
	VendorPartID      uint32
	HWVer             uint32
	MaxQP             int
	MaxQPWR           int
	CapFlags          DeviceCapFlags
	MaxSGE            int
	MaxSGERd          int
	MaxCQ             int
	MaxCQE            int
	MaxMR             int
	MaxPD             int
	MaxQPRdAtom       int // outstanding READs and atomics that a QP can serve
	MaxResRdAtom      int
	MaxQPInitRdAtom   int // outstanding READs and atomics that a QP can issue
	AtomicCap         AtomicCap
	MaxMW             int
	MaxMcastGrp       int
	MaxMcastQPAttach  int
	MaxTotalMcastQP   int
	MaxAH             int
	MaxSRQ            int
	MaxSRQWR          int
	MaxSRQSGE         int
	MaxPKeys          int
	LocalCAAckDelay   uint8
	PhysPortCnt       int
	ODP               ODPCaps
	TimestampMask     uint64 // 0: no completion timestamps
	HCACoreClock      uint64 // kHz
	PacketPacing      PacketPacingCaps
	TagMatching       TMCaps
	MaxModerateCount  int // for CQ.Moderate
	MaxModeratePeriod time.Duration
	MaxDMSize         uint64
}

// AtomicCap is the scope in which atomics are atomic: enum ibv_atomic_cap.
type AtomicCap uint32

// The scopes of atomics.
const (
	AtomicNone AtomicCap = 0
	AtomicHCA  AtomicCap = 1 // with respect to other atomics of the same device
	AtomicGlob AtomicCap = 2 // also with respect to the CPU
)

// ODPCaps are the operations that work on memory that is not pinned: struct ibv_odp_caps.
type ODPCaps struct {
	General         ODPFlags
	RC, UC, UD, XRC ODPOps
}

// PacketPacingCaps are the rates to which [QP.Modify] can limit a QP: struct ibv_packet_pacing_caps.
type PacketPacingCaps struct {
	MinRate, MaxRate uint32 // kilobits per second; 0: no limits
	SupportedQPTs    uint32 // bit n: QPs of QPType n
}

// TMCaps are the limits of tag matching: struct ibv_tm_caps.
type TMCaps struct {
	MaxRndvHdrSize, MaxNumTags, Flags, MaxOps, MaxSGE int
}

func (a *DeviceAttr) fillBase(r *uapi.IbUverbsQueryDeviceResp) {
	*a = DeviceAttr{
		FWVer:    fwVersion(r.FwVer),
		NodeGUID: GUID(be64(r.NodeGuid)), SysImageGUID: GUID(be64(r.SysImageGuid)),
		MaxMRSize: r.MaxMrSize, PageSizeCap: r.PageSizeCap,
		VendorID: r.VendorId, VendorPartID: r.VendorPartId, HWVer: r.HwVer,
		MaxQP: int(r.MaxQp), MaxQPWR: int(r.MaxQpWr), CapFlags: DeviceCapFlags(r.DeviceCapFlags),
		MaxSGE: int(r.MaxSge), MaxSGERd: int(r.MaxSgeRd), MaxCQ: int(r.MaxCq), MaxCQE: int(r.MaxCqe),
		MaxMR: int(r.MaxMr), MaxPD: int(r.MaxPd),
		MaxQPRdAtom: int(r.MaxQpRdAtom), MaxResRdAtom: int(r.MaxResRdAtom),
		MaxQPInitRdAtom: int(r.MaxQpInitRdAtom),
		AtomicCap:       AtomicCap(r.AtomicCap), MaxMW: int(r.MaxMw),
		MaxMcastGrp: int(r.MaxMcastGrp), MaxMcastQPAttach: int(r.MaxMcastQpAttach),
		MaxTotalMcastQP: int(r.MaxTotalMcastQpAttach),
		MaxAH:           int(r.MaxAh),
		MaxSRQ:          int(r.MaxSrq), MaxSRQWR: int(r.MaxSrqWr), MaxSRQSGE: int(r.MaxSrqSge),
		MaxPKeys: int(r.MaxPkeys), LocalCAAckDelay: r.LocalCaAckDelay, PhysPortCnt: int(r.PhysPortCnt),
	}
}

// fillExtended fills in the extended part. Older kernels return less of it; the rest of the
// reply is zero.
func (a *DeviceAttr) fillExtended(r *uapi.IbUverbsExQueryDeviceResp) {
	odp := &r.OdpCaps
	ops := &odp.PerTransportCaps
	a.ODP = ODPCaps{General: ODPFlags(odp.GeneralCaps), RC: ODPOps(ops.RcOdpCaps), UC: ODPOps(ops.UcOdpCaps),
		UD: ODPOps(ops.UdOdpCaps), XRC: ODPOps(r.XrcOdpCaps)}
	a.TimestampMask, a.HCACoreClock = r.TimestampMask, r.HcaCoreClock
	a.CapFlags |= DeviceCapFlags(r.DeviceCapFlagsEx)
	tm := &r.TmCaps
	a.TagMatching = TMCaps{int(tm.MaxRndvHdrSize), int(tm.MaxNumTags), int(tm.Flags), int(tm.MaxOps), int(tm.MaxSge)}
	a.MaxModerateCount = int(r.CqModerationCaps.MaxCqModerationCount)
	a.MaxModeratePeriod = time.Duration(r.CqModerationCaps.MaxCqModerationPeriod) * time.Microsecond
	a.MaxDMSize = r.MaxDmSize
}

// fillDriver fills in the attributes that the kernel's driver adds to the reply.
func (a *DeviceAttr) fillDriver(d driver.Description) {
	a.PacketPacing = PacketPacingCaps{d.MinRate, d.MaxRate, d.RateQPTypes}
}

// fwVersion formats the packed version that drivers report: 16 bits each for the major, minor
// and sub-minor number.
func fwVersion(v uint64) string {
	return fmt.Sprintf("%d.%d.%d", uint16(v>>32), uint16(v>>16), uint16(v))
}

// A PortAttr is the state of a port: struct ibv_port_attr, see
// ibv_query_port(3).
type PortAttr struct {
	State         PortState
	MaxMTU        MTU
	ActiveMTU     MTU
	GIDTableLen   int
	CapFlags      PortCapFlags
	CapFlags2     PortCapFlags2
	MaxMsgSize    uint32
	BadPKeyCntr   uint32
	QKeyViolCntr  uint32
	PKeyTableLen  int
	LID           uint16
	SMLID         uint16
	LMC           uint8
	MaxVLNum      uint8 // code: 1, 2, 3, 4, 5 for 1, 2, 4, 8, 15 virtual lanes
	SMSL          uint8
	SubnetTimeout uint8
	InitTypeReply uint8
	ActiveWidth   uint8  // code: 1, 2, 4, 8, 16 for 1X, 4X, 8X, 12X, 2X
	ActiveSpeed   uint32 // code: see IBA PortInfo, extended beyond 8 bits
	PhysState     uint8
	LinkLayer     LinkLayer
	GRHRequired   bool
}

// LinkLayer is the protocol under the transport: IBV_LINK_LAYER_*.
type LinkLayer uint8

// The link layers.
const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2 // RoCE
)

func (l LinkLayer) String() string {
	switch l {
	case LinkUnspecified:
		return "Unspecified"
	case LinkInfiniBand:
		return "InfiniBand"
	case LinkEthernet:
		return "Ethernet"
	}
	return "Unknown"
}

// PortState is the logical state of a port: enum ibv_port_state.
type PortState uint8

// The states of a port.
const (
	PortNop         PortState = 0
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

// String returns the same text as ibv_port_state_str(3).
func (s PortState) String() string {
	names := [...]string{"no state change (NOP)", "down", "init", "armed", "active", "active defer"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// MTU is the IBA's code for the payload size of a packet: 1 to 5 for 256 to 4096 bytes.
type MTU uint8

// The sizes.
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes returns the size in bytes, or 0 for an unknown code.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

func (m MTU) String() string { return fmt.Sprintf("%d bytes", m.Bytes()) }
