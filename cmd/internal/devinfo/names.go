package devinfo

import "github.com/goverbs/goverbs/uverbs"

// The names in this file are exactly those that ibv_devinfo prints, including
// misspellings, because scripts search for them.

// name returns the name of k, or otherwise if it has none.
func name[K comparable](names map[K]string, k K, otherwise string) string {
	if s, ok := names[k]; ok {
		return s
	}
	return otherwise
}

// A transport corresponds to enum ibv_transport_type.
type transport int

const (
	transportUnknown     transport = -1
	transportIB          transport = 0
	transportIWARP       transport = 1
	transportUSNIC       transport = 2
	transportUSNICUDP    transport = 3
	transportUnspecified transport = 4
)

func transportOf(t uverbs.NodeType) transport {
	switch t {
	case uverbs.NodeCA, uverbs.NodeSwitch, uverbs.NodeRouter:
		return transportIB
	case uverbs.NodeRNIC:
		return transportIWARP
	case uverbs.NodeUSNIC:
		return transportUSNIC
	case uverbs.NodeUSNICUDP:
		return transportUSNICUDP
	case uverbs.NodeUnspecified:
		return transportUnspecified
	}
	return transportUnknown
}

func (t transport) String() string {
	return name(map[transport]string{transportIB: "InfiniBand", transportIWARP: "iWARP", transportUSNIC: "usNIC",
		transportUSNICUDP: "usNIC UDP", transportUnspecified: "unspecified"}, t, "invalid transport")
}

var atomicCaps = map[uverbs.AtomicCap]string{
	uverbs.AtomicNone: "ATOMIC_NONE", uverbs.AtomicHCA: "ATOMIC_HCA", uverbs.AtomicGlob: "ATOMIC_GLOB",
}

var portStates = map[uverbs.PortState]string{
	uverbs.PortDown: "PORT_DOWN", uverbs.PortInit: "PORT_INIT", uverbs.PortArmed: "PORT_ARMED",
	uverbs.PortActive: "PORT_ACTIVE",
}

var physStates = map[uint8]string{
	1: "SLEEP", 2: "POLLING", 3: "DISABLED", 4: "PORT_CONFIGURATION TRAINNING", 5: "LINK_UP",
	6: "LINK_ERROR_RECOVERY", 7: "PHY TEST",
}

var virtualLanes = map[uint8]string{1: "1", 2: "2", 3: "4", 4: "8", 5: "15"}

var widths = map[uint8]string{1: "1", 2: "4", 4: "8", 8: "12", 16: "2"}

var speeds = map[uint32]string{
	1: "2.5 Gbps", 2: "5.0 Gbps", 4: "10.0 Gbps", 8: "10.0 Gbps", 16: "14.0 Gbps", 32: "25.0 Gbps", 64: "50.0 Gbps",
	128: "100.0 Gbps", 256: "200.0 Gbps",
}

// capFlags names the bits of enum ibv_device_cap_flags.
var capFlags = []bit{
	{1 << 0, "RESIZE_MAX_WR"}, {1 << 1, "BAD_PKEY_CNTR"}, {1 << 2, "BAD_QKEY_CNTR"}, {1 << 3, "RAW_MULTI"},
	{1 << 4, "AUTO_PATH_MIG"}, {1 << 5, "CHANGE_PHY_PORT"}, {1 << 6, "UD_AV_PORT_ENFORCE"}, {1 << 7, "CURR_QP_STATE_MOD"},
	{1 << 8, "SHUTDOWN_PORT"}, {1 << 9, "INIT_TYPE"}, {1 << 10, "PORT_ACTIVE_EVENT"}, {1 << 11, "SYS_IMAGE_GUID"},
	{1 << 12, "RC_RNR_NAK_GEN"}, {1 << 13, "SRQ_RESIZE"}, {1 << 14, "N_NOTIFY_CQ"}, {1 << 17, "MEM_WINDOW"},
	{1 << 18, "UD_IP_CSUM"}, {1 << 20, "XRC"}, {1 << 21, "MEM_MGT_EXTENSIONS"}, {1 << 23, "MEM_WINDOW_TYPE_2A"},
	{1 << 24, "MEM_WINDOW_TYPE_2B"}, {1 << 25, "RC_IP_CSUM"}, {1 << 26, "RAW_IP_CSUM"}, {1 << 29, "MANAGED_FLOW_STEERING"},
}

// capFlagsEx names bits of the upper half of device_cap_flags_ex.
var capFlagsEx = []bit{
	{1 << 34, "RAW_SCATTER_FCS"}, {1 << 36, "PCI_WRITE_END_PADDING"},
}

var odpGeneral = []bit{{1 << 0, "ODP_SUPPORT"}, {1 << 1, "ODP_SUPPORT_IMPLICIT"}}

// odpTransport names the bits of enum ibv_odp_transport_cap_bits that ibv_devinfo
// of rdma-core 56.1 knows.
var odpTransport = []bit{
	{1 << 0, "SUPPORT_SEND"}, {1 << 1, "SUPPORT_RECV"}, {1 << 2, "SUPPORT_WRITE"}, {1 << 3, "SUPPORT_READ"},
	{1 << 4, "SUPPORT_ATOMIC"}, {1 << 5, "SUPPORT_SRQ"},
}

var rawPacketCaps = []bit{
	{1 << 0, "C-VLAN stripping offload"}, {1 << 1, "Scatter FCS offload"}, {1 << 2, "IP csum offload"},
	{1 << 3, "Delay drop"},
}

// offloadQPTypes are bits numbered by enum ibv_qp_type: RAW_PACKET is 8, UD is 4.
var offloadQPTypes = []bit{{1 << 8, "SUPPORT_RAW_PACKET"}, {1 << 4, "SUPPORT_UD"}}

var tagMatchingFlags = []bit{{1 << 0, "IBV_TM_CAP_RC"}}
