package uverbs

import (
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// IPCsum makes the device fill in the IPv4, TCP and UDP checksums of a raw packet:
// IBV_SEND_IP_CSUM. The post returns [ErrQPType] on QPs of other types, and
// [ErrOpNotSupported] if the device does not support it: see [DeviceRawIPCsum] of
// DeviceAttr.CapFlags.
const IPCsum SendFlags = 1 << 4

// QPCreateFlags are optional features of a QP. The values are those of
// ibv_qp_create_flags.
type QPCreateFlags uint32

// The flags of ibv_create_qp_ex(3). All but the first are for raw packets.
const (
	QPBlockSelfMcastLoopback QPCreateFlags = 1 << 1  // the QP does not receive its own multicast packets
	QPScatterFCS             QPCreateFlags = 1 << 8  // receives end with the frame's checksum, 4 bytes
	QPCVLANStripping         QPCreateFlags = 1 << 9  // the VLAN tag of a received frame is in the WC: see WC.CVLAN
	QPPCIWriteEndPadding     QPCreateFlags = 1 << 11 // writes to memory are padded to the end of a cache line
)

const createFlags = QPBlockSelfMcastLoopback | QPScatterFCS | QPCVLANStripping | QPPCIWriteEndPadding

// The bits of DeviceAttr.RawPacketCaps: ibv_raw_packet_caps.
const (
	RawPacketCVLANStripping = 1 << 0
	RawPacketScatterFCS     = 1 << 1
	RawPacketIPCsum         = 1 << 2
	RawPacketDelayDrop      = 1 << 3
)

// Flags of completions of raw packets.
const (
	// WCIPCsumOK means that the frame is IPv4 and that its checksums, including that
	// of TCP or UDP, are correct.
	WCIPCsumOK WCFlags = 1 << 2
	// WCWithCVLAN means that the VLAN tag was removed from the frame: see WC.CVLAN.
	// The C library has no such flag.
	WCWithCVLAN WCFlags = 1 << 7
)

// CVLAN returns the VLAN tag that the device removed from a received raw packet: 3
// bits of priority, the CFI bit and 12 bits of identifier, as ibv_wc_read_cvlan(3)
// does. ok is false if it removed none. Devices remove the tag on QPs and WQs with
// the flag for CVLAN stripping.
func (w *WC) CVLAN() (tag uint16, ok bool) {
	if w.Flags&WCWithCVLAN == 0 {
		return 0, false
	}
	return w.SLID, true
}

// FlowTag returns the ID of the [FlowActionTag] of the flow that directed a raw
// packet to the QP or WQ, or 0 if there is none: ibv_wc_read_flow_tag(3). The
// result is meaningless for other completions.
func (w *WC) FlowTag() uint32 { return w.Imm }

// An RSSConfig makes a raw packet QP distribute packets over the WQs of a table by
// a hash of their headers: struct ibv_rx_hash_conf. Such a QP has no queues, no CQs
// and no state. Flows lead to it, and receives are posted to the WQs.
type RSSConfig struct {
	Table    *RWQIndTable
	Function RSSFunction
	Key      []byte    // key of the hash, 40 bytes
	Fields   RSSFields // 0 for no hash, with a table of one WQ
}

func checkCreateFlags(op string, on *object, f QPCreateFlags) error {
	if extra := f &^ createFlags; extra != 0 {
		return invalid(op, on.String(), fmt.Sprintf("CreateFlags has unknown bits: %#x", uint32(extra)))
	}
	return nil
}

// explainRaw explains why the kernel refused a raw packet QP or a flow. It returns
// "" if the errno has no specific cause.
func explainRaw(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "raw packets and flows need CAP_NET_RAW: run as root, or give the program the capability by setcap " +
			"cap_net_raw=ep"
	case notSupported(err):
		return "the device, its driver or its link layer has no raw packets, or not with these flags: see RawPacketCaps " +
			"and RSS of Context.QueryDevice"
	}
	return ""
}

// explain explains what in r the device does not support.
func (r *RSSConfig) explain(err error) string {
	const toeplitzKey = 40
	ip4, ip6 := r.Fields&(RSSSrcIPv4|RSSDstIPv4) != 0, r.Fields&(RSSSrcIPv6|RSSDstIPv6) != 0
	tcp, udp := r.Fields&(RSSSrcPortTCP|RSSDstPortTCP) != 0, r.Fields&(RSSSrcPortUDP|RSSDstPortUDP) != 0
	spi := r.Fields&RSSIPsecSPI != 0
	switch {
	case !errors.Is(err, unix.EINVAL):
	case r.Function == RSSToeplitz && len(r.Key) != toeplitzKey:
		return "RSS.Key has " + sitoa(len(r.Key)) + " bytes: a Toeplitz key has " + sitoa(toeplitzKey)
	case r.Fields&^RSSInner == 0 && r.Table.size > 1:
		return "RSS.Fields is 0: without a hash the table can have one WQ only"
	case ip4 && ip6:
		return "RSS.Fields has addresses of IPv4 and of IPv6: create a QP for each"
	case bits.OnesCount8(b2u(tcp)|b2u(udp)<<1|b2u(spi)<<2) > 1:
		return "RSS.Fields has fields of TCP, UDP or IPsec at once: create a QP for each"
	}
	return explainRaw(err)
}
