package prm

// Register 0x5004: types and speeds of a port.
var (
	PTYS                      = layout("ptys_reg", 0x40)
	PTYSAnDisableAdmin        = PTYS.field("an_disable_admin", 0x0, 1, 1)
	PTYSAnDisableCap          = PTYS.field("an_disable_cap", 0x0, 2, 1)
	PTYSLocalPort             = PTYS.field("local_port", 0x1, 0, 8)
	PTYSPlaneInd              = PTYS.field("plane_ind", 0x3, 0, 4)
	PTYSProtoMask             = PTYS.field("proto_mask", 0x3, 5, 3)
	PTYSAnStatus              = PTYS.field("an_status", 0x4, 0, 4)
	PTYSDataRateOper          = PTYS.field("data_rate_oper", 0x6, 0, 16)
	PTYSExtEthProtoCapability = PTYS.field("ext_eth_proto_capability", 0x8, 0, 32)
	PTYSEthProtoCapability    = PTYS.field("eth_proto_capability", 0xc, 0, 32)
	PTYSIBLinkWidthCapability = PTYS.field("ib_link_width_capability", 0x10, 0, 16)
	PTYSIBProtoCapability     = PTYS.field("ib_proto_capability", 0x12, 0, 16)
	PTYSExtEthProtoAdmin      = PTYS.field("ext_eth_proto_admin", 0x14, 0, 32)
	PTYSEthProtoAdmin         = PTYS.field("eth_proto_admin", 0x18, 0, 32)
	PTYSIBLinkWidthAdmin      = PTYS.field("ib_link_width_admin", 0x1c, 0, 16)
	PTYSIBProtoAdmin          = PTYS.field("ib_proto_admin", 0x1e, 0, 16)
	PTYSExtEthProtoOper       = PTYS.field("ext_eth_proto_oper", 0x20, 0, 32)
	PTYSEthProtoOper          = PTYS.field("eth_proto_oper", 0x24, 0, 32)
	PTYSIBLinkWidthOper       = PTYS.field("ib_link_width_oper", 0x28, 0, 16)
	PTYSIBProtoOper           = PTYS.field("ib_proto_oper", 0x2a, 0, 16)
	PTYSConnectorType         = PTYS.field("connector_type", 0x2f, 4, 4)
	PTYSEthProtoLpAdvertise   = PTYS.field("eth_proto_lp_advertise", 0x30, 0, 32)
)

// Register 0x5001: the capability mask of an InfiniBand port.
var (
	PCAP                   = layout("pcap_reg", 0x14)
	PCAPLocalPort          = PCAP.field("local_port", 0x1, 0, 8)
	PCAPPortCapabilityMask = PCAP.field("port_capability_mask", 0x4, 0, 32)
)

// Register 0x5003: MTUs of a port.
var (
	PMTU          = layout("pmtu_reg", 0x10)
	PMTULocalPort = PMTU.field("local_port", 0x1, 0, 8)
	PMTUMaxMTU    = PMTU.field("max_mtu", 0x4, 0, 16)
	PMTUAdminMTU  = PMTU.field("admin_mtu", 0x8, 0, 16)
	PMTUOperMTU   = PMTU.field("oper_mtu", 0xc, 0, 16)
)

// Register 0x500f: virtual lanes of a port.
var (
	PVLC              = layout("pvlc_reg", 0x10)
	PVLCLocalPort     = PVLC.field("local_port", 0x1, 0, 8)
	PVLCVLHWCap       = PVLC.field("vl_hw_cap", 0x7, 4, 4)
	PVLCVLAdmin       = PVLC.field("vl_admin", 0xb, 4, 4)
	PVLCVLOperational = PVLC.field("vl_operational", 0xf, 4, 4)
)

// Register 0x5007: flow control of a port.
var (
	PFCC          = layout("pfcc_reg", 0x20)
	PFCCLocalPort = PFCC.field("local_port", 0x1, 0, 8)
	PFCCPPTX      = PFCC.field("pptx", 0x8, 0, 1)
	PFCCPPRX      = PFCC.field("pprx", 0xc, 0, 1)
)

// Register 0x5006: administrative and operational state of a port.
var (
	PAOS            = layout("paos_reg", 0x10)
	PAOSSWID        = PAOS.field("swid", 0x0, 0, 8)
	PAOSLocalPort   = PAOS.field("local_port", 0x1, 0, 8)
	PAOSAdminStatus = PAOS.field("admin_status", 0x2, 4, 4)
	PAOSOperStatus  = PAOS.field("oper_status", 0x3, 4, 4)
	PAOSAse         = PAOS.field("ase", 0x4, 0, 1)
	PAOSEe          = PAOS.field("ee", 0x4, 1, 1)
	PAOSE           = PAOS.field("e", 0x7, 6, 2)
)

// Register 0x5008: counters of a port.
var (
	PPCNT           = layout("ppcnt_reg", 0x100)
	PPCNTSWID       = PPCNT.field("swid", 0x0, 0, 8)
	PPCNTLocalPort  = PPCNT.field("local_port", 0x1, 0, 8)
	PPCNTPnat       = PPCNT.field("pnat", 0x2, 0, 2)
	PPCNTGrp        = PPCNT.field("grp", 0x3, 2, 6)
	PPCNTClr        = PPCNT.field("clr", 0x4, 0, 1)
	PPCNTPrioTC     = PPCNT.field("prio_tc", 0x7, 3, 5)
	PPCNTCounterSet = PPCNT.field("counter_set", 0x8, 0, 1984)
)
