package prm

// The context of a flow table.
var (
	FlowTable                     = layout("flow_table_context", 0x28)
	FlowTableReformatEn           = FlowTable.field("reformat_en", 0x0, 0, 1)
	FlowTableDecapEn              = FlowTable.field("decap_en", 0x0, 1, 1)
	FlowTableSWOwner              = FlowTable.field("sw_owner", 0x0, 2, 1)
	FlowTableTerminationTable     = FlowTable.field("termination_table", 0x0, 3, 1)
	FlowTableTableMissAction      = FlowTable.field("table_miss_action", 0x0, 4, 4)
	FlowTableLevel                = FlowTable.field("level", 0x1, 0, 8)
	FlowTableRtcValid             = FlowTable.field("rtc_valid", 0x2, 0, 1)
	FlowTableLogSize              = FlowTable.field("log_size", 0x3, 0, 8)
	FlowTableTableMissID          = FlowTable.field("table_miss_id", 0x5, 0, 24)
	FlowTableLAGMasterNextTableID = FlowTable.field("lag_master_next_table_id", 0x9, 0, 24)
)

// Match parameters of the headers up to layer 4.
var (
	FlowHeaders            = layout("fte_match_set_lyr_2_4", 0x40)
	FlowHeadersEthertype   = FlowHeaders.field("ethertype", 0x6, 0, 16)
	FlowHeadersFirstPrio   = FlowHeaders.field("first_prio", 0xe, 0, 3)
	FlowHeadersFirstCFI    = FlowHeaders.field("first_cfi", 0xe, 3, 1)
	FlowHeadersFirstVid    = FlowHeaders.field("first_vid", 0xe, 4, 12)
	FlowHeadersIPProtocol  = FlowHeaders.field("ip_protocol", 0x10, 0, 8)
	FlowHeadersIPDSCP      = FlowHeaders.field("ip_dscp", 0x11, 0, 6)
	FlowHeadersIPECN       = FlowHeaders.field("ip_ecn", 0x11, 6, 2)
	FlowHeadersCvlanTag    = FlowHeaders.field("cvlan_tag", 0x12, 0, 1)
	FlowHeadersSvlanTag    = FlowHeaders.field("svlan_tag", 0x12, 1, 1)
	FlowHeadersFrag        = FlowHeaders.field("frag", 0x12, 2, 1)
	FlowHeadersIPVersion   = FlowHeaders.field("ip_version", 0x12, 3, 4)
	FlowHeadersTCPFlags    = FlowHeaders.field("tcp_flags", 0x12, 7, 9)
	FlowHeadersTCPSport    = FlowHeaders.field("tcp_sport", 0x14, 0, 16)
	FlowHeadersTCPDport    = FlowHeaders.field("tcp_dport", 0x16, 0, 16)
	FlowHeadersL4Type      = FlowHeaders.field("l4_type", 0x18, 0, 2)
	FlowHeadersIPV4Ihl     = FlowHeaders.field("ipv4_ihl", 0x1a, 0, 4)
	FlowHeadersTTLHoplimit = FlowHeaders.field("ttl_hoplimit", 0x1b, 0, 8)
	FlowHeadersUDPSport    = FlowHeaders.field("udp_sport", 0x1c, 0, 16)
	FlowHeadersUDPDport    = FlowHeaders.field("udp_dport", 0x1e, 0, 16)
	FlowHeadersSMAC        = FlowHeaders.field("smac", 0x0, 0, 48)
	FlowHeadersDMAC        = FlowHeaders.field("dmac", 0x8, 0, 48)
	FlowHeadersSrcIP       = FlowHeaders.field("src_ip", 0x20, 0, 128)
	FlowHeadersDstIP       = FlowHeaders.field("dst_ip", 0x30, 0, 128)
)

// Other match parameters used here.
var (
	FlowMisc                   = layout("fte_match_set_misc", 0x40)
	FlowMiscSourceVHCAPort     = FlowMisc.field("source_vhca_port", 0x0, 4, 4)
	FlowMiscSourceSQN          = FlowMisc.field("source_sqn", 0x1, 0, 24)
	FlowMiscSourcePort         = FlowMisc.field("source_port", 0x6, 0, 16)
	FlowMiscGREProtocol        = FlowMisc.field("gre_protocol", 0xe, 0, 16)
	FlowMiscVxlanVNI           = FlowMisc.field("vxlan_vni", 0x14, 0, 24)
	FlowMiscBTHOpcode          = FlowMisc.field("bth_opcode", 0x17, 0, 8)
	FlowMiscOuterIPV6FlowLabel = FlowMisc.field("outer_ipv6_flow_label", 0x1d, 4, 20)
	FlowMiscInnerIPV6FlowLabel = FlowMisc.field("inner_ipv6_flow_label", 0x21, 4, 20)
	FlowMiscBTHDstQP           = FlowMisc.field("bth_dst_qp", 0x29, 0, 24)
)

// Match parameters of a flow.
var (
	FlowMatch      = layout("fte_match_param", 0x200)
	FlowMatchOuter = FlowMatch.nest("outer_headers", 0x0, FlowHeaders)
	FlowMatchMisc  = FlowMatch.nest("misc_parameters", 0x40, FlowMisc)
	FlowMatchInner = FlowMatch.nest("inner_headers", 0x80, FlowHeaders)
)

// The context of a flow: match value and actions.
var (
	FlowContext                    = layout("flow_context", 0x300)
	FlowContextGroupID             = FlowContext.field("group_id", 0x4, 0, 32)
	FlowContextFlowTag             = FlowContext.field("flow_tag", 0x9, 0, 24)
	FlowContextAction              = FlowContext.field("action", 0xe, 0, 16)
	FlowContextExtendedDestination = FlowContext.field("extended_destination", 0x10, 0, 1)
	FlowContextFlowSource          = FlowContext.field("flow_source", 0x10, 2, 2)
	FlowContextDestinationListSize = FlowContext.field("destination_list_size", 0x11, 0, 24)
	FlowContextFlowCounterListSize = FlowContext.field("flow_counter_list_size", 0x15, 0, 24)
	FlowContextFlowMatch           = FlowContext.nest("match_value", 0x40, FlowMatch)
	FlowContextDestination         = FlowContext.tail("destination", 0x300, 64)
)

// A destination of a flow.
var (
	FlowDest                                   = layout("dest_format", 0x8)
	FlowDestDestinationType                    = FlowDest.field("destination_type", 0x0, 0, 8)
	FlowDestDestinationID                      = FlowDest.field("destination_id", 0x1, 0, 24)
	FlowDestDestinationEswitchOwnerVHCAIDValid = FlowDest.field("destination_eswitch_owner_vhca_id_valid", 0x4, 0, 1)
	FlowDestPacketReformat                     = FlowDest.field("packet_reformat", 0x4, 1, 1)
	FlowDestDestinationTableType               = FlowDest.field("destination_table_type", 0x5, 0, 8)
	FlowDestDestinationEswitchOwnerVHCAID      = FlowDest.field("destination_eswitch_owner_vhca_id", 0x6, 0, 16)
)
