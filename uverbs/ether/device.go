package ether

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A DeviceAttr has the capabilities and limits of a device that concern Ethernet, of
// struct ibv_device_attr_ex.
type DeviceAttr struct {
	TSO           TSOCaps
	RSS           RSSCaps
	MaxRawEthyQP  int // maximum number of raw packet QPs
	MaxWQTypeRQ   int // maximum number of WQs
	RawPacketCaps RawPacketCaps
}

// QueryDevice returns the capabilities and limits of a device: ibv_query_device_ex(3). All are zero
// on a device without raw packets. It returns uverbs.ErrClosed after Close of the Context.
func QueryDevice(c *uverbs.Context) (*DeviceAttr, error) {
	a, err := driver.QueryEthernet(c)
	if err != nil {
		return nil, err
	}
	return &DeviceAttr{
		TSO: TSOCaps{int(a.MaxTSO), a.TSOQPTypes},
		RSS: RSSCaps{SupportedQPTs: a.RSSQPTypes, MaxRWQIndirectionTables: int(a.MaxRWQTables),
			MaxRWQIndirectionTableSize: int(a.MaxRWQTableSize), Functions: RSSFunction(a.HashFunctions),
			Fields: RSSFields(a.HashFields)},
		MaxRawEthyQP: int(a.MaxRawEthyQP), MaxWQTypeRQ: int(a.MaxWQ), RawPacketCaps: RawPacketCaps(a.RawPacketCaps),
	}, nil
}

// RawPacketCaps are optional features of raw packets: ibv_raw_packet_caps.
type RawPacketCaps uint32

// The features of raw packets.
const (
	RawPacketCVLANStripping RawPacketCaps = 1 << 0
	RawPacketScatterFCS     RawPacketCaps = 1 << 1
	RawPacketIPCsum         RawPacketCaps = 1 << 2
	RawPacketDelayDrop      RawPacketCaps = 1 << 3
)

// TSOCaps are the limits of TCP segmentation offload: struct ibv_tso_caps.
type TSOCaps struct {
	MaxSize       int    // bytes that one request can send; 0: no offload
	SupportedQPTs uint32 // bit n: QPs of QPType n
}

// RSSCaps are the limits of receive-side scaling: struct ibv_rss_caps.
type RSSCaps struct {
	SupportedQPTs              uint32 // bit n: QPs of QPType n
	MaxRWQIndirectionTables    int
	MaxRWQIndirectionTableSize int
	Functions                  RSSFunction // all hash functions of the device
	Fields                     RSSFields   // all fields that the device can hash
}

// An RSSFunction is a hash function. The values are those of
// ibv_rx_hash_function_flags.
type RSSFunction uint8

// The functions of ibv_create_qp_ex(3).
const RSSToeplitz RSSFunction = 1 << 0

// RSSFields are the header fields that are hashed: addresses of one IP version and
// ports of one protocol. Packets without these fields go to the first WQ. The
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
	RSSInner      RSSFields = 1 << 31 // use the fields of the packet inside the tunnel
)
