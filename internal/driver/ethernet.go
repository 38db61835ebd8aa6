package driver

import (
	"errors"

	"golang.org/x/sys/unix"
)

// This file contains what package ether and the providers know of raw packets, and uverbs does not
// export.

// Flags of requests and completions of raw packets. Package ether documents them.
const (
	SendIPCsum  = 1 << 4 // of uverbs.SendFlags
	WCIPCsumOK  = 1 << 2 // of uverbs.WCFlags
	WCWithCVLAN = 1 << 7
)

// Flags of uverbs.QPCreateFlags for raw packets.
const (
	QPScatterFCS         = 1 << 8
	QPCVLANStripping     = 1 << 9
	QPPCIWriteEndPadding = 1 << 11
)

// An RSSConfig describes a raw packet QP that distributes packets over the WQs of a table.
type RSSConfig struct {
	Table    Extension
	Handle   uint32 // of the table
	Function uint8
	Key      []byte
	Fields   uint64
}

// CreateRSS creates a uverbs.QP on a uverbs.PD. Package uverbs sets it.
var CreateRSS func(pd any, cfg *RSSConfig) (qp any, err error)

// EthernetAttr has the attributes of a device that concern raw packets.
type EthernetAttr struct {
	MaxTSO, TSOQPTypes            uint32
	RSSQPTypes                    uint32
	MaxRWQTables, MaxRWQTableSize uint32
	HashFunctions                 uint8
	HashFields                    uint64
	MaxWQ, RawPacketCaps          uint32
	MaxRawEthyQP                  uint32
}

// QueryEthernet queries the device of a uverbs.Context. Package uverbs sets it.
var QueryEthernet func(ctx any) (EthernetAttr, error)

// HandleOf returns the kernel's handle of an object of package uverbs. Package uverbs sets it.
var HandleOf func(object any) uint32

// MemoryOf returns what the queues on a uverbs.PD use as memory. Package uverbs sets it.
var MemoryOf func(pd any) Memory

// Purge drops the unpolled completions of a provider's queue from a uverbs.CQ: see [Purger]. Package
// uverbs sets it.
var Purge func(cq, queue any)

// NoObjectLeft is the detail of ENOMEM if no limit of the device explains it.
const NoObjectLeft = "the kernel has no memory for it, or the device no object left"

// ExplainRaw explains why the kernel refused a raw packet QP, a WQ or a flow. It returns "" if the
// errno has no specific cause.
func ExplainRaw(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "raw packets and flows need CAP_NET_RAW: run as root, or give the program the capability by setcap " +
			"cap_net_raw=ep"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPROTONOSUPPORT),
		errors.Is(err, unix.ENOTTY):
		return "the device, its driver or its link layer has no raw packets, or not with these flags: see RawPacketCaps " +
			"and RSS of ether.QueryDevice"
	}
	return ""
}
