package uverbs

import "fmt"

// The limits of a PathConfig.
const (
	maxSL           = 15
	maxFlowLabel    = 1<<20 - 1
	defaultHopLimit = 64
)

// A PathConfig determines how packets to a peer are marked and how the network
// treats them. [QP.Connect], [QP.Handshake] and [QP.AHAttr] use QPConfig.Path. The
// zero value suits most networks. Lossless RoCE networks need TrafficClass, or SL
// on a VLAN: see docs/hardware.md.
//
// Each end marks only the packets it sends. Use the same values at both ends.
type PathConfig struct {
	// TrafficClass is the TOS byte of the IP header on RoCE v2, and the traffic class
	// of the GRH otherwise. It is the DSCP times 4, plus the ECN bits. On InfiniBand,
	// only packets with a GRH carry it.
	TrafficClass uint8
	// SL is the service level, 0 to 15. On RoCE its lower 3 bits are the priority in
	// the packets' VLAN tag.
	SL uint8
	// FlowLabel has 20 bits. On RoCE v2 the UDP source port is computed from it, see
	// [FlowLabelUDPPort]. Switches use this port to spread traffic over equal paths.
	// If FlowLabel is 0, the driver chooses the port; mlx5 computes it from the
	// numbers of both QPs. On InfiniBand, only packets with a GRH carry the flow
	// label.
	FlowLabel uint32
	// HopLimit is the maximum number of routers on the path, which is the TTL on RoCE
	// v2. 0 means 64. On RoCE the kernel's driver may replace it.
	HopLimit uint8
	// StaticRate limits the send rate, for a peer with a slower port. [RatePort],
	// which is 0, is the port's rate.
	StaticRate Rate
}

// Apply sets the fields of a whose values in p are not zero. Use it for addresses
// from another source, such as rdma_cm.
func (p PathConfig) Apply(a *AHAttr) {
	if p.TrafficClass != 0 {
		a.TrafficClass = p.TrafficClass
	}
	if p.SL != 0 {
		a.SL = p.SL
	}
	if p.FlowLabel != 0 {
		a.FlowLabel = p.FlowLabel
	}
	if p.HopLimit != 0 {
		a.HopLimit = p.HopLimit
	}
	if p.StaticRate != RatePort {
		a.StaticRate = p.StaticRate
	}
}

// check returns [ErrInvalid] if a value does not fit in a packet. It calls object only for an error.
func (p PathConfig) check(op string, object func() string) error {
	switch {
	case p.SL > maxSL:
		return invalid(op, object(), fmt.Sprintf("Path.SL is %d: service levels are 0 to %d", p.SL, maxSL))
	case p.FlowLabel > maxFlowLabel:
		return invalid(op, object(), fmt.Sprintf("Path.FlowLabel is %#x: flow labels have 20 bits", p.FlowLabel))
	}
	return nil
}
