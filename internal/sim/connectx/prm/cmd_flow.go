package prm

var (
	SetFlowTableRootIn                             = input("set_flow_table_root", 0x40)
	SetFlowTableRootInOtherVport                   = SetFlowTableRootIn.field("other_vport", 0x8, 0, 1)
	SetFlowTableRootInVportNumber                  = SetFlowTableRootIn.field("vport_number", 0xa, 0, 16)
	SetFlowTableRootInTableType                    = SetFlowTableRootIn.field("table_type", 0x10, 0, 8)
	SetFlowTableRootInTableOfOtherVport            = SetFlowTableRootIn.field("table_of_other_vport", 0x11, 7, 1)
	SetFlowTableRootInTableVportNumber             = SetFlowTableRootIn.field("table_vport_number", 0x12, 0, 16)
	SetFlowTableRootInTableID                      = SetFlowTableRootIn.field("table_id", 0x15, 0, 24)
	SetFlowTableRootInUnderlayQPN                  = SetFlowTableRootIn.field("underlay_qpn", 0x19, 0, 24)
	SetFlowTableRootInTableEswitchOwnerVHCAIDValid = SetFlowTableRootIn.field("table_eswitch_owner_vhca_id_valid", 0x1c,
		0, 1)
	SetFlowTableRootInTableEswitchOwnerVHCAID = SetFlowTableRootIn.field("table_eswitch_owner_vhca_id", 0x1e, 0, 16)
)

var SetFlowTableRootOut = output("set_flow_table_root", 0x10)

var (
	CreateFlowTableIn            = input("create_flow_table", 0x40)
	CreateFlowTableInOtherVport  = CreateFlowTableIn.field("other_vport", 0x8, 0, 1)
	CreateFlowTableInVportNumber = CreateFlowTableIn.field("vport_number", 0xa, 0, 16)
	CreateFlowTableInTableType   = CreateFlowTableIn.field("table_type", 0x10, 0, 8)
	CreateFlowTableInFlowTable   = CreateFlowTableIn.nest("flow_table_context", 0x18, FlowTable)
)

var (
	CreateFlowTableOut        = output("create_flow_table", 0x10)
	CreateFlowTableOutTableID = CreateFlowTableOut.field("table_id", 0x9, 0, 24)
)

var (
	ModifyFlowTableIn                  = input("modify_flow_table", 0x40)
	ModifyFlowTableInOtherVport        = ModifyFlowTableIn.field("other_vport", 0x8, 0, 1)
	ModifyFlowTableInVportNumber       = ModifyFlowTableIn.field("vport_number", 0xa, 0, 16)
	ModifyFlowTableInModifyFieldSelect = ModifyFlowTableIn.field("modify_field_select", 0xe, 0, 16)
	ModifyFlowTableInTableType         = ModifyFlowTableIn.field("table_type", 0x10, 0, 8)
	ModifyFlowTableInTableID           = ModifyFlowTableIn.field("table_id", 0x15, 0, 24)
	ModifyFlowTableInFlowTable         = ModifyFlowTableIn.nest("flow_table_context", 0x18, FlowTable)
)

var ModifyFlowTableOut = output("modify_flow_table", 0x10)

var (
	QueryFlowTableIn          = input("query_flow_table", 0x40)
	QueryFlowTableInTableType = QueryFlowTableIn.field("table_type", 0x10, 0, 8)
	QueryFlowTableInTableID   = QueryFlowTableIn.field("table_id", 0x15, 0, 24)
)

var (
	QueryFlowTableOut          = output("query_flow_table", 0x40)
	QueryFlowTableOutFlowTable = QueryFlowTableOut.nest("flow_table_context", 0x18, FlowTable)
)

var (
	DestroyFlowTableIn            = input("destroy_flow_table", 0x40)
	DestroyFlowTableInOtherVport  = DestroyFlowTableIn.field("other_vport", 0x8, 0, 1)
	DestroyFlowTableInVportNumber = DestroyFlowTableIn.field("vport_number", 0xa, 0, 16)
	DestroyFlowTableInTableType   = DestroyFlowTableIn.field("table_type", 0x10, 0, 8)
	DestroyFlowTableInTableID     = DestroyFlowTableIn.field("table_id", 0x15, 0, 24)
)

var DestroyFlowTableOut = output("destroy_flow_table", 0x10)

var (
	CreateFlowGroupIn                              = input("create_flow_group", 0x400)
	CreateFlowGroupInOtherVport                    = CreateFlowGroupIn.field("other_vport", 0x8, 0, 1)
	CreateFlowGroupInVportNumber                   = CreateFlowGroupIn.field("vport_number", 0xa, 0, 16)
	CreateFlowGroupInTableType                     = CreateFlowGroupIn.field("table_type", 0x10, 0, 8)
	CreateFlowGroupInGroupType                     = CreateFlowGroupIn.field("group_type", 0x11, 4, 4)
	CreateFlowGroupInTableID                       = CreateFlowGroupIn.field("table_id", 0x15, 0, 24)
	CreateFlowGroupInSourceEswitchOwnerVHCAIDValid = CreateFlowGroupIn.field("source_eswitch_owner_vhca_id_valid", 0x18,
		0, 1)
	CreateFlowGroupInStartFlowIndex      = CreateFlowGroupIn.field("start_flow_index", 0x1c, 0, 32)
	CreateFlowGroupInEndFlowIndex        = CreateFlowGroupIn.field("end_flow_index", 0x24, 0, 32)
	CreateFlowGroupInMatchDefinerID      = CreateFlowGroupIn.field("match_definer_id", 0x2a, 0, 16)
	CreateFlowGroupInMatchCriteriaEnable = CreateFlowGroupIn.field("match_criteria_enable", 0x3f, 0, 8)
	CreateFlowGroupInFlowMatch           = CreateFlowGroupIn.nest("match_criteria", 0x40, FlowMatch)
)

var (
	CreateFlowGroupOut        = output("create_flow_group", 0x10)
	CreateFlowGroupOutGroupID = CreateFlowGroupOut.field("group_id", 0x9, 0, 24)
)

var (
	QueryFlowGroupIn          = input("query_flow_group", 0x40)
	QueryFlowGroupInTableType = QueryFlowGroupIn.field("table_type", 0x10, 0, 8)
	QueryFlowGroupInTableID   = QueryFlowGroupIn.field("table_id", 0x15, 0, 24)
	QueryFlowGroupInGroupID   = QueryFlowGroupIn.field("group_id", 0x18, 0, 32)
)

var (
	QueryFlowGroupOut                    = output("query_flow_group", 0x400)
	QueryFlowGroupOutStartFlowIndex      = QueryFlowGroupOut.field("start_flow_index", 0x1c, 0, 32)
	QueryFlowGroupOutEndFlowIndex        = QueryFlowGroupOut.field("end_flow_index", 0x24, 0, 32)
	QueryFlowGroupOutMatchCriteriaEnable = QueryFlowGroupOut.field("match_criteria_enable", 0x3f, 0, 8)
	QueryFlowGroupOutFlowMatch           = QueryFlowGroupOut.nest("match_criteria", 0x40, FlowMatch)
)

var (
	DestroyFlowGroupIn            = input("destroy_flow_group", 0x40)
	DestroyFlowGroupInOtherVport  = DestroyFlowGroupIn.field("other_vport", 0x8, 0, 1)
	DestroyFlowGroupInVportNumber = DestroyFlowGroupIn.field("vport_number", 0xa, 0, 16)
	DestroyFlowGroupInTableType   = DestroyFlowGroupIn.field("table_type", 0x10, 0, 8)
	DestroyFlowGroupInTableID     = DestroyFlowGroupIn.field("table_id", 0x15, 0, 24)
	DestroyFlowGroupInGroupID     = DestroyFlowGroupIn.field("group_id", 0x18, 0, 32)
)

var DestroyFlowGroupOut = output("destroy_flow_group", 0x10)

var (
	SetFTEIn                 = input("set_fte", 0x340)
	SetFTEInOtherVport       = SetFTEIn.field("other_vport", 0x8, 0, 1)
	SetFTEInVportNumber      = SetFTEIn.field("vport_number", 0xa, 0, 16)
	SetFTEInTableType        = SetFTEIn.field("table_type", 0x10, 0, 8)
	SetFTEInTableID          = SetFTEIn.field("table_id", 0x15, 0, 24)
	SetFTEInIgnoreFlowLevel  = SetFTEIn.field("ignore_flow_level", 0x18, 0, 1)
	SetFTEInModifyEnableMask = SetFTEIn.field("modify_enable_mask", 0x1b, 0, 8)
	SetFTEInFlowIndex        = SetFTEIn.field("flow_index", 0x20, 0, 32)
	SetFTEInFlowContext      = SetFTEIn.nest("flow_context", 0x40, FlowContext)
)

var SetFTEOut = output("set_fte", 0x10)

var (
	QueryFTEIn          = input("query_fte", 0x40)
	QueryFTEInTableType = QueryFTEIn.field("table_type", 0x10, 0, 8)
	QueryFTEInTableID   = QueryFTEIn.field("table_id", 0x15, 0, 24)
	QueryFTEInFlowIndex = QueryFTEIn.field("flow_index", 0x20, 0, 32)
)

var (
	QueryFTEOut            = output("query_fte", 0x340)
	QueryFTEOutFlowContext = QueryFTEOut.nest("flow_context", 0x40, FlowContext)
)

var (
	DeleteFTEIn            = input("delete_fte", 0x40)
	DeleteFTEInOtherVport  = DeleteFTEIn.field("other_vport", 0x8, 0, 1)
	DeleteFTEInVportNumber = DeleteFTEIn.field("vport_number", 0xa, 0, 16)
	DeleteFTEInTableType   = DeleteFTEIn.field("table_type", 0x10, 0, 8)
	DeleteFTEInTableID     = DeleteFTEIn.field("table_id", 0x15, 0, 24)
	DeleteFTEInFlowIndex   = DeleteFTEIn.field("flow_index", 0x20, 0, 32)
)

var DeleteFTEOut = output("delete_fte", 0x10)
