package ether

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A FlowSpec is a part of a flow: a match on the header of a layer, or an action. The types are
// FlowEth, FlowIPv4, FlowIPv6, FlowESP, FlowTCP, FlowUDP, FlowVXLAN, FlowGRE, FlowMPLS,
// FlowActionTag and FlowActionDrop, as in ibv_create_flow(3).
//
// A layer matches if it equals Val in the bits that are set in Mask. Inner selects the packet
// inside a tunnel. Numbers are in host order.
type FlowSpec interface {
	// encode appends the specification in the kernel's format.
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

// FlowEth matches a frame's Ethernet header: struct ibv_flow_spec_eth.
type FlowEth struct {
	Val, Mask EthFilter
	Inner     bool
}

// An EthFilter has the fields that a [FlowEth] matches.
type EthFilter struct {
	DstMAC, SrcMAC [6]byte
	EtherType      uint16 // after the VLAN tag
	VLANTag        uint16 // priority (3 bits), CFI, ID (12 bits); with mask 0, untagged frames match too
}

func (f *EthFilter) raw() uapi.IbUverbsFlowEthFilter {
	return uapi.IbUverbsFlowEthFilter{DstMac: f.DstMAC, SrcMac: f.SrcMAC, EtherType: be16(f.EtherType),
		VlanTag: be16(f.VLANTag)}
}

func (s FlowEth) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecEth
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specEth, s.Inner), Val: s.Val.raw(), Mask: s.Mask.raw()})...)
}

// FlowIPv4 matches an IPv4 header: struct ibv_flow_spec_ipv4_ext.
type FlowIPv4 struct {
	Val, Mask IPv4Filter
	Inner     bool
}

// An IPv4Filter has the fields that a [FlowIPv4] matches. Flags are the kernel's: 2 is don't
// fragment, 4 is more fragments.
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

// FlowIPv6 matches an IPv6 header: struct ibv_flow_spec_ipv6.
type FlowIPv6 struct {
	Val, Mask IPv6Filter
	Inner     bool
}

// An IPv6Filter has the fields that a [FlowIPv6] matches.
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

// FlowTCP matches a TCP header: struct ibv_flow_spec_tcp_udp.
type FlowTCP struct {
	Val, Mask PortFilter
	Inner     bool
}

// FlowUDP matches a UDP header: struct ibv_flow_spec_tcp_udp.
type FlowUDP struct {
	Val, Mask PortFilter
	Inner     bool
}

// A PortFilter has the fields that a [FlowTCP] or a [FlowUDP] matches.
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

// FlowESP matches an IPsec header: struct ibv_flow_spec_esp.
type FlowESP struct {
	Val, Mask ESPFilter
	Inner     bool
}

// An ESPFilter has the fields that a [FlowESP] matches.
type ESPFilter struct {
	SPI, Seq uint32
}

func (s FlowESP) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecEsp
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specESP, s.Inner),
		Val:  uapi.IbUverbsFlowSpecEspFilter{Spi: be32(s.Val.SPI), Seq: be32(s.Val.Seq)},
		Mask: uapi.IbUverbsFlowSpecEspFilter{Spi: be32(s.Mask.SPI), Seq: be32(s.Mask.Seq)}})...)
}

// FlowVXLAN matches a VXLAN header: struct ibv_flow_spec_tunnel. Val and Mask apply to its VNI,
// 24 bits.
type FlowVXLAN struct {
	Val, Mask uint32
}

func (s FlowVXLAN) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecTunnel
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specVXLAN, false),
		Val:  uapi.IbUverbsFlowTunnelFilter{TunnelId: be32(s.Val)},
		Mask: uapi.IbUverbsFlowTunnelFilter{TunnelId: be32(s.Mask)}})...)
}

// FlowGRE matches a GRE header: struct ibv_flow_spec_gre.
type FlowGRE struct {
	Val, Mask GREFilter
}

// A GREFilter has the fields that a [FlowGRE] matches. Head is the first two bytes of the
// header: C, K, S and the version.
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

// FlowMPLS matches an entry of an MPLS label stack: struct ibv_flow_spec_mpls. Val and Mask
// consist of the label (20 bits), traffic class (3), bottom of stack (1) and TTL (8).
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

// FlowActionTag marks the completions of the flow's frames: struct ibv_flow_spec_action_tag.
// [FlowTag] returns the ID, which has 24 bits.
type FlowActionTag struct {
	ID uint32
}

func (s FlowActionTag) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecActionTag
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specTag, false), TagId: s.ID})...)
}

// FlowActionDrop drops the flow's frames: struct ibv_flow_spec_action_drop.
type FlowActionDrop struct{}

func (s FlowActionDrop) encode(b []byte) []byte {
	type spec = uapi.IbUverbsFlowSpecActionDrop
	return append(b, ioctl.BytesOf(&spec{Hdr: specHdr[spec](specDrop, false)})...)
}

func be16(v uint16) uint16 { return bits.ReverseBytes16(v) }
func be32(v uint32) uint32 { return bits.ReverseBytes32(v) }
