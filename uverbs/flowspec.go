package uverbs

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A FlowSpec is a part of a flow: what a layer of the frame must look like, or
// what becomes of it. The types are FlowEth, FlowIPv4, FlowIPv6, FlowESP,
// FlowTCP, FlowUDP, FlowVXLAN, FlowGRE, FlowMPLS, FlowActionTag and
// FlowActionDrop, as in ibv_create_flow(3).
//
// A layer matches when it agrees with Val in the bits that are set in Mask. Inner is for
// the packet in a tunnel. Numbers are in host order.
type FlowSpec interface {
	// encode appends the specification as the kernel has it.
	encode(b []byte) []byte
}

// The types of specifications: ibv_flow_spec_type.
const (
	specEth   = 0x20
	specIPv4  = 0x30
	specIPv6  = 0x31
	specESP   = 0x34
	specTCP   = 0x40
	specUDP   = 0x41
	specVXLAN = 0x50
	specGRE   = 0x51
	specMPLS  = 0x60
	specInner = 0x100
	specTag   = 0x1000
	specDrop  = 0x1001
)

func specHdr[T any](typ uint32, inner bool) uapi.IbUverbsFlowSpecHdr {
	if inner {
		typ |= specInner
	}
	return uapi.IbUverbsFlowSpecHdr{Type: typ, Size: uint16(ioctl.SizeOf[T]())}
}

// FlowEth is a frame's Ethernet header: struct ibv_flow_spec_eth.
type FlowEth struct {
	Val, Mask EthFilter
	Inner     bool
}

// An EthFilter is what a [FlowEth] looks at.
type EthFilter struct {
	DstMAC, SrcMAC [6]byte
	EtherType      uint16 // behind the VLAN's tag
	VLANTag        uint16 // priority, 3 bits, CFI, identifier, 12 bits; a mask of 0 takes frames without tag too
}

func (f *EthFilter) raw() uapi.IbUverbsFlowEthFilter {
	return uapi.IbUverbsFlowEthFilter{DstMac: f.DstMAC, SrcMac: f.SrcMAC, EtherType: be16(f.EtherType), VlanTag: be16(f.VLANTag)}
}

func (s FlowEth) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecEth
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specEth, s.Inner), Val: s.Val.raw(), Mask: s.Mask.raw()})...)
}

// FlowIPv4 is an IPv4 header: struct ibv_flow_spec_ipv4_ext.
type FlowIPv4 struct {
	Val, Mask IPv4Filter
	Inner     bool
}

// An IPv4Filter is what a [FlowIPv4] looks at. Flags are the kernel's: 2 is do not
// fragment, 4 more fragments.
type IPv4Filter struct {
	Src, Dst               [4]byte
	Proto, TOS, TTL, Flags uint8
}

func (f *IPv4Filter) raw() uapi.IbUverbsFlowIpv4Filter {
	r := uapi.IbUverbsFlowIpv4Filter{Proto: f.Proto, Tos: f.TOS, Ttl: f.TTL, Flags: f.Flags}
	b := ioctl.BytesOf(&r)
	copy(b, f.Src[:])
	copy(b[4:], f.Dst[:])
	return r
}

func (s FlowIPv4) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecIpv4
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specIPv4, s.Inner), Val: s.Val.raw(), Mask: s.Mask.raw()})...)
}

// FlowIPv6 is an IPv6 header: struct ibv_flow_spec_ipv6.
type FlowIPv6 struct {
	Val, Mask IPv6Filter
	Inner     bool
}

// An IPv6Filter is what a [FlowIPv6] looks at.
type IPv6Filter struct {
	Src, Dst                           [16]byte
	FlowLabel                          uint32 // 20 bits
	NextHeader, TrafficClass, HopLimit uint8
}

func (f *IPv6Filter) raw() uapi.IbUverbsFlowIpv6Filter {
	return uapi.IbUverbsFlowIpv6Filter{SrcIp: f.Src, DstIp: f.Dst, FlowLabel: be32(f.FlowLabel), NextHdr: f.NextHeader,
		TrafficClass: f.TrafficClass, HopLimit: f.HopLimit}
}

func (s FlowIPv6) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecIpv6
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specIPv6, s.Inner), Val: s.Val.raw(), Mask: s.Mask.raw()})...)
}

// FlowTCP is a TCP header: struct ibv_flow_spec_tcp_udp.
type FlowTCP struct {
	Val, Mask PortFilter
	Inner     bool
}

// FlowUDP is a UDP header: struct ibv_flow_spec_tcp_udp.
type FlowUDP struct {
	Val, Mask PortFilter
	Inner     bool
}

// A PortFilter is what a [FlowTCP] or a [FlowUDP] looks at.
type PortFilter struct {
	Dst, Src uint16
}

func encodePorts(b []byte, typ uint32, inner bool, val, mask PortFilter) []byte {
	type spec = uapi.IbUverbsFlowSpecTcpUdp
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](typ, inner),
		Val:  uapi.IbUverbsFlowTcpUdpFilter{DstPort: be16(val.Dst), SrcPort: be16(val.Src)},
		Mask: uapi.IbUverbsFlowTcpUdpFilter{DstPort: be16(mask.Dst), SrcPort: be16(mask.Src)}})...)
}

func (s FlowTCP) encode(b []byte) []byte { return encodePorts(b, specTCP, s.Inner, s.Val, s.Mask) }
func (s FlowUDP) encode(b []byte) []byte { return encodePorts(b, specUDP, s.Inner, s.Val, s.Mask) }

// FlowESP is an IPsec header: struct ibv_flow_spec_esp.
type FlowESP struct {
	Val, Mask ESPFilter
	Inner     bool
}

// An ESPFilter is what a [FlowESP] looks at.
type ESPFilter struct {
	SPI, Seq uint32
}

func (s FlowESP) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecEsp
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specESP, s.Inner),
		Val:  uapi.IbUverbsFlowSpecEspFilter{Spi: be32(s.Val.SPI), Seq: be32(s.Val.Seq)},
		Mask: uapi.IbUverbsFlowSpecEspFilter{Spi: be32(s.Mask.SPI), Seq: be32(s.Mask.Seq)}})...)
}

// FlowVXLAN is a VXLAN tunnel: struct ibv_flow_spec_tunnel. Val and Mask are of its
// VNI, 24 bits.
type FlowVXLAN struct {
	Val, Mask uint32
}

func (s FlowVXLAN) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecTunnel
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specVXLAN, false),
		Val:  uapi.IbUverbsFlowTunnelFilter{TunnelId: be32(s.Val)},
		Mask: uapi.IbUverbsFlowTunnelFilter{TunnelId: be32(s.Mask)}})...)
}

// FlowGRE is a GRE tunnel: struct ibv_flow_spec_gre.
type FlowGRE struct {
	Val, Mask GREFilter
}

// A GREFilter is what a [FlowGRE] looks at. Head is the header's first two bytes:
// C, K, S and the version.
type GREFilter struct {
	Head, Protocol uint16
	Key            uint32
}

func (f *GREFilter) raw() uapi.IbUverbsFlowGreFilter {
	return uapi.IbUverbsFlowGreFilter{CKsRes0Ver: be16(f.Head), Protocol: be16(f.Protocol), Key: be32(f.Key)}
}

func (s FlowGRE) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecGre
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specGRE, false), Val: s.Val.raw(), Mask: s.Mask.raw()})...)
}

// FlowMPLS is an entry of an MPLS stack: struct ibv_flow_spec_mpls. Val and Mask are label,
// 20 bits, traffic class, 3, bottom of stack, 1, and TTL, 8.
type FlowMPLS struct {
	Val, Mask uint32
	Inner     bool
}

func (s FlowMPLS) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecMpls
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specMPLS, s.Inner),
		Val:  uapi.IbUverbsFlowMplsFilter{Label: be32(s.Val)},
		Mask: uapi.IbUverbsFlowMplsFilter{Label: be32(s.Mask)}})...)
}

// FlowActionTag marks the completions of the flow: struct
// ibv_flow_spec_action_tag. [WC.FlowTag] tells ID, which has 24 bits.
type FlowActionTag struct {
	ID uint32
}

func (s FlowActionTag) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecActionTag
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specTag, false), TagId: s.ID})...)
}

// FlowActionDrop has the frames dropped: struct ibv_flow_spec_action_drop.
type FlowActionDrop struct{}

func (s FlowActionDrop) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecActionDrop
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specDrop, false)})...)
}

func be16(v uint16) uint16 { return bits.ReverseBytes16(v) }
func be32(v uint32) uint32 { return bits.ReverseBytes32(v) }
