package uverbs

import (
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// RawPacket is the service of raw Ethernet frames: IBV_QPT_RAW_PACKET. It needs
// CAP_NET_RAW.
//
// A SEND is a whole frame, from its destination address on and without its
// checksum. Its beginning may be inline, before its SGL. Some adapters want the
// first 18 bytes so: where nothing is inline they are copied from the SGEs'
// memory, which must be this process's, else see [ErrFrameHeader]. A receive is filled with a
// frame that a [Flow] of the QP wants. No other operation is possible.
const RawPacket QPType = 8

// IPCsum has the device fill in the checksums of IPv4, TCP and UDP of a raw
// packet: IBV_SEND_IP_CSUM. [ErrOpcode] on QPs of other types, and where the
// device does not do it: [DeviceRawIPCsum] of DeviceAttr.CapFlags.
const IPCsum SendFlags = 1 << 4

// QPCreateFlags change what a QP does. The values are those of
// ibv_qp_create_flags.
type QPCreateFlags uint32

// The flags of ibv_create_qp_ex(3). Those of raw packets but the first.
const (
	QPBlockSelfMcastLoopback QPCreateFlags = 1 << 1  // its own multicasts do not come back
	QPScatterFCS             QPCreateFlags = 1 << 8  // receives have the frame's checksum, 4 bytes, at their end
	QPCVLANStripping         QPCreateFlags = 1 << 9  // receives have the VLAN's tag in the WC: see WC.CVLAN
	QPPCIWriteEndPadding     QPCreateFlags = 1 << 11 // writes to memory end at a cache line's end
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
	// WCIPCsumOK: the frame is IPv4, and its checksums, of TCP or UDP too, are
	// right.
	WCIPCsumOK WCFlags = 1 << 2
	// WCWithCVLAN: the VLAN's tag was taken out of the frame: see WC.CVLAN. C
	// has no such flag.
	WCWithCVLAN WCFlags = 1 << 7
)

// CVLAN is the VLAN's tag that the device took out of the raw packet that was
// received: priority, 3 bits, CFI, and identifier, 12 bits; as
// ibv_wc_read_cvlan(3) has it. ok is false where it took out none. It does so
// for QPs and WQs with the flag for CVLAN stripping.
func (w *WC) CVLAN() (tag uint16, ok bool) {
	if w.Flags&WCWithCVLAN == 0 {
		return 0, false
	}
	return w.SLID, true
}

// FlowTag is the ID of the [FlowActionTag] of the flow that led a raw packet to the QP or WQ:
// ibv_wc_read_flow_tag(3). 0 stands for none. Of completions of other kinds it
// means nothing.
func (w *WC) FlowTag() uint32 { return w.Imm }

// An RSSConfig makes a raw packet QP one that spreads packets over the WQs of a
// table, by a hash of their headers: struct ibv_rx_hash_conf. It has no queue, no CQ and
// no state: flows lead to it, and receives are posted to the WQs.
type RSSConfig struct {
	Table    *RWQIndTable
	Function RSSFunction
	Key      []byte    // of the hash: 40 bytes
	Fields   RSSFields // 0: no hash, for a table of one WQ
}

// An RSSFunction is how packets are hashed. The values are those of
// ibv_rx_hash_function_flags.
type RSSFunction uint8

// The functions of ibv_create_qp_ex(3).
const RSSToeplitz RSSFunction = 1 << 0

// RSSFields are what of a packet is hashed: addresses of one version of IP, and
// ports of one protocol. A packet that has them not goes to the first WQ. The
// values are those of ibv_rx_hash_fields.
type RSSFields uint64

// The fields of ibv_create_qp_ex(3).
const (
	RSSSrcIPv4    RSSFields = 1 << 0
	RSSDstIPv4    RSSFields = 1 << 1
	RSSSrcIPv6    RSSFields = 1 << 2
	RSSDstIPv6    RSSFields = 1 << 3
	RSSSrcPortTCP RSSFields = 1 << 4
	RSSDstPortTCP RSSFields = 1 << 5
	RSSSrcPortUDP RSSFields = 1 << 6
	RSSDstPortUDP RSSFields = 1 << 7
	RSSIPsecSPI   RSSFields = 1 << 8
	RSSInner      RSSFields = 1 << 31 // the fields are those of the packet in the tunnel
)

// checkRSS looks at a configuration with RSS, which has no queues.
func (p *PD) checkRSS(cfg *QPConfig) error {
	const op = "create QP"
	r := cfg.RSS
	switch {
	case cfg.Type != RawPacket:
		return invalid(op, p.String(), "RSS is for QPs of type RawPacket")
	case r.Table == nil:
		return invalid(op, p.String(), "RSS.Table is nil")
	case r.Table.ctx != p.ctx:
		return invalid(op, p.String(), r.Table.String()+" belongs to another Context than the PD")
	case cfg.SendCQ != nil || cfg.RecvCQ != nil || cfg.SRQ != nil ||
		cfg.MaxSendWR|cfg.MaxRecvWR|cfg.MaxSendSGE|cfg.MaxRecvSGE|cfg.MaxInline != 0:
		return invalid(op, p.String(), "with RSS the QP has no queues: leave out the CQs, the SRQ and the sizes")
	}
	return nil
}

func checkCreateFlags(op string, on *object, f QPCreateFlags) error {
	if extra := f &^ createFlags; extra != 0 {
		return invalid(op, on.String(), fmt.Sprintf("CreateFlags has unknown bits: %#x", uint32(extra)))
	}
	return nil
}

// explainRaw says what a raw packet QP or a flow needs, when the kernel refused
// it.
func explainRaw(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "raw packets and flows need CAP_NET_RAW: run as root, or give the program the capability by setcap cap_net_raw=ep"
	case notSupported(err):
		return "the device, its driver or its link layer has no raw packets, or not with these flags: see RawPacketCaps and RSS of Context.QueryDevice"
	}
	return ""
}

// notEthernet is the error for raw packets of a device without Ethernet, whose
// drivers answer EINVAL. It is nil where that is not the cause.
func (c *Context) notEthernet(err error, cfg *QPConfig) error {
	if cfg.Type != RawPacket || !errors.Is(err, unix.EINVAL) {
		return nil
	}
	for port := 1; port <= c.device.Ports; port++ {
		if a, qerr := c.QueryPort(port); qerr != nil || a.LinkLayer != LinkInfiniBand {
			return nil
		}
	}
	return &Error{Op: "create QP", Object: c.name, Kind: ErrNotSupported, Errno: unix.EINVAL,
		Detail: "raw packets are Ethernet's, and the link layer of the device's ports is InfiniBand"}
}

// explain looks for what the device does not take of r.
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
		return "RSS.Fields has addresses of IPv4 and of IPv6: make a QP for each"
	case bits.OnesCount8(b2u(tcp)|b2u(udp)<<1|b2u(spi)<<2) > 1:
		return "RSS.Fields has fields of TCP, UDP or IPsec at once: make a QP for each"
	}
	return explainRaw(err)
}
