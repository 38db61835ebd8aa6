package prm

var (
	QueryHCAVportContextIn            = input("query_hca_vport_context", 0x10)
	QueryHCAVportContextInOtherVport  = QueryHCAVportContextIn.field("other_vport", 0x8, 0, 1)
	QueryHCAVportContextInPortNum     = QueryHCAVportContextIn.field("port_num", 0x9, 4, 4)
	QueryHCAVportContextInVportNumber = QueryHCAVportContextIn.field("vport_number", 0xa, 0, 16)
)

var (
	QueryHCAVportContextOut         = output("query_hca_vport_context", 0x210)
	QueryHCAVportContextOutHCAVport = QueryHCAVportContextOut.nest("hca_vport_context", 0x10, HCAVport)
)

var (
	ModifyHCAVportContextIn            = input("modify_hca_vport_context", 0x210)
	ModifyHCAVportContextInOtherVport  = ModifyHCAVportContextIn.field("other_vport", 0x8, 0, 1)
	ModifyHCAVportContextInPortNum     = ModifyHCAVportContextIn.field("port_num", 0x9, 4, 4)
	ModifyHCAVportContextInVportNumber = ModifyHCAVportContextIn.field("vport_number", 0xa, 0, 16)
	ModifyHCAVportContextInHCAVport    = ModifyHCAVportContextIn.nest("hca_vport_context", 0x10, HCAVport)
)

var ModifyHCAVportContextOut = output("modify_hca_vport_context", 0x10)

var (
	QueryHCAVportGIDIn            = input("query_hca_vport_gid", 0x10)
	QueryHCAVportGIDInOtherVport  = QueryHCAVportGIDIn.field("other_vport", 0x8, 0, 1)
	QueryHCAVportGIDInPortNum     = QueryHCAVportGIDIn.field("port_num", 0x9, 4, 4)
	QueryHCAVportGIDInVportNumber = QueryHCAVportGIDIn.field("vport_number", 0xa, 0, 16)
	QueryHCAVportGIDInGIDIndex    = QueryHCAVportGIDIn.field("gid_index", 0xe, 0, 16)
)

var (
	QueryHCAVportGIDOut        = output("query_hca_vport_gid", 0x10)
	QueryHCAVportGIDOutGIDsNum = QueryHCAVportGIDOut.field("gids_num", 0xc, 0, 16)
	QueryHCAVportGIDOutGID     = QueryHCAVportGIDOut.tail("gid", 0x10, 0)
)

var (
	QueryHCAVportPKeyIn            = input("query_hca_vport_pkey", 0x10)
	QueryHCAVportPKeyInOtherVport  = QueryHCAVportPKeyIn.field("other_vport", 0x8, 0, 1)
	QueryHCAVportPKeyInPortNum     = QueryHCAVportPKeyIn.field("port_num", 0x9, 4, 4)
	QueryHCAVportPKeyInVportNumber = QueryHCAVportPKeyIn.field("vport_number", 0xa, 0, 16)
	QueryHCAVportPKeyInPKeyIndex   = QueryHCAVportPKeyIn.field("pkey_index", 0xe, 0, 16)
)

var (
	QueryHCAVportPKeyOut     = output("query_hca_vport_pkey", 0x10)
	QueryHCAVportPKeyOutPKey = QueryHCAVportPKeyOut.tail("pkey", 0x10, 32)
)

var (
	QueryNICVportContextIn                = input("query_nic_vport_context", 0x10)
	QueryNICVportContextInOtherVport      = QueryNICVportContextIn.field("other_vport", 0x8, 0, 1)
	QueryNICVportContextInVportNumber     = QueryNICVportContextIn.field("vport_number", 0xa, 0, 16)
	QueryNICVportContextInAllowedListType = QueryNICVportContextIn.field("allowed_list_type", 0xc, 5, 3)
)

var (
	QueryNICVportContextOut         = output("query_nic_vport_context", 0x110)
	QueryNICVportContextOutNICVport = QueryNICVportContextOut.nest("nic_vport_context", 0x10, NICVport)
)

// The fields that MODIFY_NIC_VPORT_CONTEXT changes.
var (
	NICVportSelect                 = layout("modify_nic_vport_field_select", 0x4)
	NICVportSelectAffiliation      = NICVportSelect.field("affiliation", 0x2, 2, 1)
	NICVportSelectDisableUCLocalLB = NICVportSelect.field("disable_uc_local_lb", 0x2, 4, 1)
	NICVportSelectDisableMCLocalLB = NICVportSelect.field("disable_mc_local_lb", 0x2, 5, 1)
	NICVportSelectNodeGUID         = NICVportSelect.field("node_guid", 0x2, 6, 1)
	NICVportSelectPortGUID         = NICVportSelect.field("port_guid", 0x2, 7, 1)
	NICVportSelectMinInline        = NICVportSelect.field("min_inline", 0x3, 0, 1)
	NICVportSelectMTU              = NICVportSelect.field("mtu", 0x3, 1, 1)
	NICVportSelectChangeEvent      = NICVportSelect.field("change_event", 0x3, 2, 1)
	NICVportSelectPromisc          = NICVportSelect.field("promisc", 0x3, 3, 1)
	NICVportSelectPermanentAddress = NICVportSelect.field("permanent_address", 0x3, 4, 1)
	NICVportSelectAddressesList    = NICVportSelect.field("addresses_list", 0x3, 5, 1)
	NICVportSelectRoCEEn           = NICVportSelect.field("roce_en", 0x3, 6, 1)
)

var (
	ModifyNICVportContextIn               = input("modify_nic_vport_context", 0x200)
	ModifyNICVportContextInOtherVport     = ModifyNICVportContextIn.field("other_vport", 0x8, 0, 1)
	ModifyNICVportContextInVportNumber    = ModifyNICVportContextIn.field("vport_number", 0xa, 0, 16)
	ModifyNICVportContextInNICVportSelect = ModifyNICVportContextIn.nest("field_select", 0xc, NICVportSelect)
	ModifyNICVportContextInNICVport       = ModifyNICVportContextIn.nest("nic_vport_context", 0x100, NICVport)
)

var ModifyNICVportContextOut = output("modify_nic_vport_context", 0x10)

var (
	QueryVportStateIn            = input("query_vport_state", 0x10)
	QueryVportStateInOtherVport  = QueryVportStateIn.field("other_vport", 0x8, 0, 1)
	QueryVportStateInVportNumber = QueryVportStateIn.field("vport_number", 0xa, 0, 16)
)

var (
	QueryVportStateOut           = output("query_vport_state", 0x10)
	QueryVportStateOutAdminState = QueryVportStateOut.field("admin_state", 0xf, 0, 4)
	QueryVportStateOutState      = QueryVportStateOut.field("state", 0xf, 4, 4)
)

var (
	ModifyVportStateIn            = input("modify_vport_state", 0x10)
	ModifyVportStateInOtherVport  = ModifyVportStateIn.field("other_vport", 0x8, 0, 1)
	ModifyVportStateInVportNumber = ModifyVportStateIn.field("vport_number", 0xa, 0, 16)
	ModifyVportStateInAdminState  = ModifyVportStateIn.field("admin_state", 0xf, 0, 4)
)

var ModifyVportStateOut = output("modify_vport_state", 0x10)

var (
	QueryVportCounterIn            = input("query_vport_counter", 0x20)
	QueryVportCounterInOtherVport  = QueryVportCounterIn.field("other_vport", 0x8, 0, 1)
	QueryVportCounterInPortNum     = QueryVportCounterIn.field("port_num", 0x9, 4, 4)
	QueryVportCounterInVportNumber = QueryVportCounterIn.field("vport_number", 0xa, 0, 16)
	QueryVportCounterInClear       = QueryVportCounterIn.field("clear", 0x18, 0, 1)
)

var (
	QueryVportCounterOut                         = output("query_vport_counter", 0x210)
	QueryVportCounterOutReceivedErrorsPackets    = QueryVportCounterOut.field("received_errors.packets", 0x10, 0, 64)
	QueryVportCounterOutReceivedErrorsOctets     = QueryVportCounterOut.field("received_errors.octets", 0x18, 0, 64)
	QueryVportCounterOutTransmitErrorsPackets    = QueryVportCounterOut.field("transmit_errors.packets", 0x20, 0, 64)
	QueryVportCounterOutTransmitErrorsOctets     = QueryVportCounterOut.field("transmit_errors.octets", 0x28, 0, 64)
	QueryVportCounterOutReceivedIBUnicastPackets = QueryVportCounterOut.field("received_ib_unicast.packets", 0x30,
		0, 64)
	QueryVportCounterOutReceivedIBUnicastOctets = QueryVportCounterOut.field("received_ib_unicast.octets", 0x38, 0,
		64)
	QueryVportCounterOutTransmittedIBUnicastPackets = QueryVportCounterOut.field("transmitted_ib_unicast.packets",
		0x40, 0, 64)
	QueryVportCounterOutTransmittedIBUnicastOctets = QueryVportCounterOut.field("transmitted_ib_unicast.octets", 0x48,
		0, 64)
	QueryVportCounterOutReceivedIBMulticastPackets = QueryVportCounterOut.field("received_ib_multicast.packets", 0x50,
		0, 64)
	QueryVportCounterOutReceivedIBMulticastOctets = QueryVportCounterOut.field("received_ib_multicast.octets", 0x58,
		0, 64)
	QueryVportCounterOutTransmittedIBMulticastPackets = QueryVportCounterOut.field("transmitted_ib_multicast.packets",
		0x60, 0, 64)
	QueryVportCounterOutTransmittedIBMulticastOctets = QueryVportCounterOut.field("transmitted_ib_multicast.octets",
		0x68, 0, 64)
	QueryVportCounterOutReceivedEthBroadcastPackets = QueryVportCounterOut.field("received_eth_broadcast.packets",
		0x70, 0, 64)
	QueryVportCounterOutReceivedEthBroadcastOctets = QueryVportCounterOut.field("received_eth_broadcast.octets", 0x78,
		0, 64)
	QueryVportCounterOutTransmittedEthBroadcastPackets = QueryVportCounterOut.field("transmitted_eth_broadcast.packets",
		0x80, 0, 64)
	QueryVportCounterOutTransmittedEthBroadcastOctets = QueryVportCounterOut.field("transmitted_eth_broadcast.octets",
		0x88, 0, 64)
	QueryVportCounterOutReceivedEthUnicastPackets = QueryVportCounterOut.field("received_eth_unicast.packets", 0x90,
		0, 64)
	QueryVportCounterOutReceivedEthUnicastOctets = QueryVportCounterOut.field("received_eth_unicast.octets", 0x98,
		0, 64)
	QueryVportCounterOutTransmittedEthUnicastPackets = QueryVportCounterOut.field("transmitted_eth_unicast.packets",
		0xa0, 0, 64)
	QueryVportCounterOutTransmittedEthUnicastOctets = QueryVportCounterOut.field("transmitted_eth_unicast.octets",
		0xa8, 0, 64)
	QueryVportCounterOutReceivedEthMulticastPackets = QueryVportCounterOut.field("received_eth_multicast.packets",
		0xb0, 0, 64)
	QueryVportCounterOutReceivedEthMulticastOctets = QueryVportCounterOut.field("received_eth_multicast.octets", 0xb8,
		0, 64)
	QueryVportCounterOutTransmittedEthMulticastPackets = QueryVportCounterOut.field("transmitted_eth_multicast.packets",
		0xc0, 0, 64)
	QueryVportCounterOutTransmittedEthMulticastOctets = QueryVportCounterOut.field("transmitted_eth_multicast.octets",
		0xc8, 0, 64)
	QueryVportCounterOutLocalLoopbackPackets = QueryVportCounterOut.field("local_loopback.packets", 0xd0, 0, 64)
	QueryVportCounterOutLocalLoopbackOctets  = QueryVportCounterOut.field("local_loopback.octets", 0xd8, 0, 64)
)

var (
	SetRoCEAddressIn                 = input("set_roce_address", 0x30)
	SetRoCEAddressInRoCEAddressIndex = SetRoCEAddressIn.field("roce_address_index", 0x8, 0, 16)
	SetRoCEAddressInVHCAPortNum      = SetRoCEAddressIn.field("vhca_port_num", 0xb, 4, 4)
	SetRoCEAddressInRoCEAddr         = SetRoCEAddressIn.nest("roce_address", 0x10, RoCEAddr)
)

var SetRoCEAddressOut = output("set_roce_address", 0x10)

var (
	QueryRoCEAddressIn                 = input("query_roce_address", 0x10)
	QueryRoCEAddressInRoCEAddressIndex = QueryRoCEAddressIn.field("roce_address_index", 0x8, 0, 16)
	QueryRoCEAddressInVHCAPortNum      = QueryRoCEAddressIn.field("vhca_port_num", 0xb, 4, 4)
)

var (
	QueryRoCEAddressOut         = output("query_roce_address", 0x30)
	QueryRoCEAddressOutRoCEAddr = QueryRoCEAddressOut.nest("roce_address", 0x10, RoCEAddr)
)

var (
	SetL2TableEntryIn                = input("set_l2_table_entry", 0x40)
	SetL2TableEntryInTableIndex      = SetL2TableEntryIn.field("table_index", 0x15, 0, 24)
	SetL2TableEntryInSilentModeValid = SetL2TableEntryIn.field("silent_mode_valid", 0x1e, 0, 1)
	SetL2TableEntryInSilentMode      = SetL2TableEntryIn.field("silent_mode", 0x1e, 1, 1)
	SetL2TableEntryInVLANValid       = SetL2TableEntryIn.field("vlan_valid", 0x1e, 3, 1)
	SetL2TableEntryInVLAN            = SetL2TableEntryIn.field("vlan", 0x1e, 4, 12)
	SetL2TableEntryInMAC             = SetL2TableEntryIn.field("mac_address", 0x22, 0, 48)
)

var SetL2TableEntryOut = output("set_l2_table_entry", 0x10)

var (
	QueryL2TableEntryIn           = input("query_l2_table_entry", 0x40)
	QueryL2TableEntryInTableIndex = QueryL2TableEntryIn.field("table_index", 0x15, 0, 24)
)

var (
	QueryL2TableEntryOut          = output("query_l2_table_entry", 0x40)
	QueryL2TableEntryOutVLANValid = QueryL2TableEntryOut.field("vlan_valid", 0x1e, 3, 1)
	QueryL2TableEntryOutVLAN      = QueryL2TableEntryOut.field("vlan", 0x1e, 4, 12)
	QueryL2TableEntryOutMAC       = QueryL2TableEntryOut.field("mac_address", 0x22, 0, 48)
)

var (
	DeleteL2TableEntryIn           = input("delete_l2_table_entry", 0x40)
	DeleteL2TableEntryInTableIndex = DeleteL2TableEntryIn.field("table_index", 0x15, 0, 24)
)

var DeleteL2TableEntryOut = output("delete_l2_table_entry", 0x10)
