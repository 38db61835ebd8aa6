package cm

import (
	"encoding/binary"
	"strconv"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// SetTOS sets the type of service of the connection's packets: RDMA_OPTION_ID_TOS.
// Call it before the address is resolved. It returns [uverbs.ErrClosed] after Close.
func (id *ID) SetTOS(tos uint8) error {
	return id.setOption("set TOS of", uapi.RDMA_OPTION_ID, uapi.RDMA_OPTION_ID_TOS, []byte{tos})
}

// SetReuseAddr allows several ids to bind to the same address and port if all of them
// set it before Bind: RDMA_OPTION_ID_REUSEADDR. It is for ids that connect. Listen
// resets it because a listener never shares its address and port: Bind of a second id
// fails with EADDRINUSE, and so does Listen while other ids are bound. SetReuseAddr
// returns [uverbs.ErrInvalid] after Bind, and [uverbs.ErrClosed] after Close.
func (id *ID) SetReuseAddr(on bool) error {
	return id.setOption("set address reuse of", uapi.RDMA_OPTION_ID, uapi.RDMA_OPTION_ID_REUSEADDR, boolOption(on))
}

// SetAFOnly makes an id that is bound to the unspecified IPv6 address accept IPv6
// only: RDMA_OPTION_ID_AFONLY. It returns [uverbs.ErrInvalid] if the id already
// listens or resolves, and [uverbs.ErrClosed] after Close.
func (id *ID) SetAFOnly(on bool) error {
	return id.setOption("set address family of", uapi.RDMA_OPTION_ID, uapi.RDMA_OPTION_ID_AFONLY, boolOption(on))
}

// SetAckTimeout sets how long the QP waits for an acknowledgement, as 4.096 us *
// 2^timeout: RDMA_OPTION_ID_ACK_TIMEOUT. Call it before the connection is
// established. It returns [uverbs.ErrInvalid] for a timeout above 31 and for a UD
// id, and [uverbs.ErrClosed] after Close.
func (id *ID) SetAckTimeout(timeout uint8) error {
	if timeout > 31 {
		return invalid("set ack timeout of", "id", "the timeout is "+strconv.Itoa(int(timeout))+": it has 5 bits, at most 31")
	}
	return id.setOption("set ack timeout of", uapi.RDMA_OPTION_ID, uapi.RDMA_OPTION_ID_ACK_TIMEOUT, []byte{timeout})
}

// SetPaths sets the route of the id instead of ResolveRoute: RDMA_OPTION_IB_PATH.
// EventRouteResolved follows. SetPaths returns [uverbs.ErrInvalid] in a state in
// which ResolveRoute is not possible and for paths that the kernel does not accept,
// [uverbs.ErrNoDevice] on RoCE if the network interface that the address was
// resolved with no longer exists, and [uverbs.ErrClosed] after Close.
func (id *ID) SetPaths(paths []PathRecord) error {
	var b []byte
	for _, p := range paths {
		b = p.append(b)
	}
	return id.setOption("set paths of", uapi.RDMA_OPTION_IB, uapi.RDMA_OPTION_IB_PATH, b)
}

func boolOption(on bool) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(b2u(on))) }

func (id *ID) setOption(op string, level, name uint32, value []byte) error {
	explain := explainEINVAL("the value is out of range, or the id is past the state for it:" +
		" set it before Bind, ResolveAddr or Connect")
	return id.command(op, explain, func() error {
		return id.node.file.SetOption(id.kernelID, level, name, value)
	})
}

// A PathRecord is a path through the fabric, as in the subnet administrator's
// database: IBA vol. 1, 15.2.5.16. On RoCE the kernel creates it.
type PathRecord struct {
	Flags        PathFlags
	ServiceID    uint64
	DGID, SGID   uverbs.GID
	DLID, SLID   uint16
	RawTraffic   bool
	FlowLabel    uint32
	HopLimit     uint8
	TrafficClass uint8
	Reversible   bool
	NumPaths     uint8
	PKey         uint16
	QoSClass     uint16
	SL           uint8
	MTU          uverbs.MTU
	Rate         uverbs.Rate
	LifeTime     uint8 // 4.096 us * 2^LifeTime
	Preference   uint8
}

// PathFlags say what a [PathRecord] is for: IB_PATH_GMP, ... (rdma/ib_user_sa.h). The path of a
// connection has PathGMP, PathPrimary and PathBidirectional.
type PathFlags uint32

// The flags of a PathRecord.
const (
	PathGMP            PathFlags = 0x1
	PathPrimary        PathFlags = 0x2
	PathAlternate      PathFlags = 0x4
	PathOutbound       PathFlags = 0x8
	PathInbound        PathFlags = 0x10
	PathInboundReverse PathFlags = 0x20
	PathBidirectional            = PathOutbound | PathInboundReverse
)

const (
	pathDataLen   = 72 // struct ib_path_rec_data
	exactly       = 2  // selector of MTU, rate and life time
	selectorShift = 6
)

// append encodes the record as struct ib_path_rec_data: flags, a reserved word, and
// the wire format.
func (p *PathRecord) append(b []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(p.Flags))
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, p.ServiceID)
	b = append(append(b, p.DGID[:]...), p.SGID[:]...)
	b = binary.BigEndian.AppendUint16(b, p.DLID)
	b = binary.BigEndian.AppendUint16(b, p.SLID)
	b = binary.BigEndian.AppendUint32(b, uint32(b2u(p.RawTraffic))<<31|p.FlowLabel&0xfffff<<8|uint32(p.HopLimit))
	b = append(b, p.TrafficClass, b2u(p.Reversible)<<7|p.NumPaths&0x7f)
	b = binary.BigEndian.AppendUint16(b, p.PKey)
	b = binary.BigEndian.AppendUint16(b, p.QoSClass<<4|uint16(p.SL&0xf))
	const sel = exactly << selectorShift
	b = append(b, sel|uint8(p.MTU)&0x3f, sel|uint8(p.Rate)&0x3f, sel|p.LifeTime&0x3f, p.Preference)
	return append(b, make([]byte, 6)...)
}

// parsePath decodes the format that append writes.
func parsePath(b []byte) (PathRecord, bool) {
	if len(b) != pathDataLen {
		return PathRecord{}, false
	}
	r := b[8:]
	route := binary.BigEndian.Uint32(r[44:])
	return PathRecord{
		Flags:     PathFlags(binary.NativeEndian.Uint32(b)),
		ServiceID: binary.BigEndian.Uint64(r),
		DGID:      uverbs.GID(r[8:24]), SGID: uverbs.GID(r[24:40]),
		DLID: binary.BigEndian.Uint16(r[40:]), SLID: binary.BigEndian.Uint16(r[42:]),
		RawTraffic: route>>31 != 0, FlowLabel: route >> 8 & 0xfffff, HopLimit: uint8(route),
		TrafficClass: r[48], Reversible: r[49]>>7 != 0, NumPaths: r[49] & 0x7f,
		PKey:     binary.BigEndian.Uint16(r[50:]),
		QoSClass: binary.BigEndian.Uint16(r[52:]) >> 4, SL: r[53] & 0xf,
		MTU: uverbs.MTU(r[54] & 0x3f), Rate: uverbs.Rate(r[55] & 0x3f), LifeTime: r[56] & 0x3f, Preference: r[57],
	}, true
}

// Paths returns the paths of the id's route after it is resolved. It returns
// [uverbs.ErrClosed] after Close, or what the kernel says.
func (id *ID) Paths() ([]PathRecord, error) {
	var records []uapi.IbPathRecData
	err := id.command("query paths of", explainEINVAL("the route is not resolved yet"), func() (err error) {
		records, err = id.node.file.QueryPath(id.kernelID)
		return err
	})
	if err != nil {
		return nil, err
	}
	var paths []PathRecord
	for k := range records {
		if p, ok := parsePath(pathBytes(&records[k])); ok {
			paths = append(paths, p)
		}
	}
	return paths, nil
}

// pathBytes returns the bytes of a record as the kernel has written them.
func pathBytes(r *uapi.IbPathRecData) []byte {
	b := binary.NativeEndian.AppendUint32(make([]byte, 0, pathDataLen), r.Flags)
	b = binary.NativeEndian.AppendUint32(b, r.Reserved)
	for _, w := range r.PathRec {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}
