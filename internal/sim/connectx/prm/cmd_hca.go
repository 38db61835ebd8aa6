package prm

var (
	EnableHCAIn                    = input("enable_hca", 0x10)
	EnableHCAInEmbeddedCPUFunction = EnableHCAIn.field("embedded_cpu_function", 0x8, 0, 1)
	EnableHCAInFunctionID          = EnableHCAIn.field("function_id", 0xa, 0, 16)
)

var EnableHCAOut = output("enable_hca", 0xc)

var (
	DisableHCAIn                    = input("disable_hca", 0x10)
	DisableHCAInEmbeddedCPUFunction = DisableHCAIn.field("embedded_cpu_function", 0x8, 0, 1)
	DisableHCAInFunctionID          = DisableHCAIn.field("function_id", 0xa, 0, 16)
)

var DisableHCAOut = output("disable_hca", 0xc)

var QueryISSIIn = input("query_issi", 0x10)

var (
	QueryISSIOut                 = output("query_issi", 0x70)
	QueryISSIOutCurrentISSI      = QueryISSIOut.field("current_issi", 0xa, 0, 16)
	QueryISSIOutSupportedISSIDW0 = QueryISSIOut.field("supported_issi_dw0", 0x6c, 0, 32)
)

var (
	SetISSIIn            = input("set_issi", 0x10)
	SetISSIInCurrentISSI = SetISSIIn.field("current_issi", 0xa, 0, 16)
)

var SetISSIOut = output("set_issi", 0x10)

var (
	QueryPagesIn                    = input("query_pages", 0x10)
	QueryPagesInEmbeddedCPUFunction = QueryPagesIn.field("embedded_cpu_function", 0x8, 0, 1)
	QueryPagesInFunctionID          = QueryPagesIn.field("function_id", 0xa, 0, 16)
)

var (
	QueryPagesOut                    = output("query_pages", 0x10)
	QueryPagesOutEmbeddedCPUFunction = QueryPagesOut.field("embedded_cpu_function", 0x8, 0, 1)
	QueryPagesOutFunctionID          = QueryPagesOut.field("function_id", 0xa, 0, 16)
	QueryPagesOutNumPages            = QueryPagesOut.field("num_pages", 0xc, 0, 32)
)

var (
	ManagePagesIn                    = input("manage_pages", 0x10)
	ManagePagesInEmbeddedCPUFunction = ManagePagesIn.field("embedded_cpu_function", 0x8, 0, 1)
	ManagePagesInFunctionID          = ManagePagesIn.field("function_id", 0xa, 0, 16)
	ManagePagesInInputNumEntries     = ManagePagesIn.field("input_num_entries", 0xc, 0, 32)
	ManagePagesInPAS                 = ManagePagesIn.tail("pas", 0x10, 64)
)

var (
	ManagePagesOut                 = output("manage_pages", 0x10)
	ManagePagesOutOutputNumEntries = ManagePagesOut.field("output_num_entries", 0x8, 0, 32)
	ManagePagesOutPAS              = ManagePagesOut.tail("pas", 0x10, 64)
)

var (
	QueryHCACapIn              = input("query_hca_cap", 0x10)
	QueryHCACapInOtherFunction = QueryHCACapIn.field("other_function", 0x8, 0, 1)
	QueryHCACapInECVFFunction  = QueryHCACapIn.field("ec_vf_function", 0x8, 1, 1)
	QueryHCACapInFunctionID    = QueryHCACapIn.field("function_id", 0xa, 0, 16)
)

var (
	QueryHCACapOut           = output("query_hca_cap", 0x1010)
	QueryHCACapOutCapability = QueryHCACapOut.field("capability", 0x10, 0, 32768)
)

var (
	SetHCACapIn              = input("set_hca_cap", 0x1010)
	SetHCACapInOtherFunction = SetHCACapIn.field("other_function", 0x8, 0, 1)
	SetHCACapInECVFFunction  = SetHCACapIn.field("ec_vf_function", 0x8, 1, 1)
	SetHCACapInFunctionID    = SetHCACapIn.field("function_id", 0xa, 0, 16)
	SetHCACapInCapability    = SetHCACapIn.field("capability", 0x10, 0, 32768)
)

var SetHCACapOut = output("set_hca_cap", 0x10)

var (
	InitHCAIn          = input("init_hca", 0x20)
	InitHCAInSWVHCAID  = InitHCAIn.field("sw_vhca_id", 0xc, 2, 14)
	InitHCAInSWOwnerID = InitHCAIn.array("sw_owner_id", 0x10, 32, 4)
)

var InitHCAOut = output("init_hca", 0x10)

var (
	TeardownHCAIn        = input("teardown_hca", 0x10)
	TeardownHCAInProfile = TeardownHCAIn.field("profile", 0xa, 0, 16)
)

var (
	TeardownHCAOut      = output("teardown_hca", 0x10)
	TeardownHCAOutState = TeardownHCAOut.field("state", 0xf, 7, 1)
)

// The result of QUERY_ADAPTER.
var (
	Adapter             = layout("adapter", 0x100)
	AdapterIEEEVendorID = Adapter.field("ieee_vendor_id", 0x19, 0, 24)
	AdapterVSDVendorID  = Adapter.field("vsd_vendor_id", 0x1e, 0, 16)
	AdapterVSD          = Adapter.field("vsd", 0x20, 0, 1664)
	AdapterVSDContdPSID = Adapter.field("vsd_contd_psid", 0xf0, 0, 128)
)

var QueryAdapterIn = input("query_adapter", 0x10)

var (
	QueryAdapterOut        = output("query_adapter", 0x110)
	QueryAdapterOutAdapter = QueryAdapterOut.nest("query_adapter_struct", 0x10, Adapter)
)

var QuerySpecialContextsIn = input("query_special_contexts", 0x10)

var (
	QuerySpecialContextsOut                         = output("query_special_contexts", 0x20)
	QuerySpecialContextsOutDumpFillMKey             = QuerySpecialContextsOut.field("dump_fill_mkey", 0x8, 0, 32)
	QuerySpecialContextsOutResdLKey                 = QuerySpecialContextsOut.field("resd_lkey", 0xc, 0, 32)
	QuerySpecialContextsOutNullMKey                 = QuerySpecialContextsOut.field("null_mkey", 0x10, 0, 32)
	QuerySpecialContextsOutTerminateScatterListMKey = QuerySpecialContextsOut.field("terminate_scatter_list_mkey", 0x14,
		0, 32)
	QuerySpecialContextsOutRepeatedMKey = QuerySpecialContextsOut.field("repeated_mkey", 0x18, 0, 32)
)

var NOPIn = input("nop", 0x10)

var NOPOut = output("nop", 0x10)

var (
	SetDriverVersionIn              = input("set_driver_version", 0x50)
	SetDriverVersionInDriverVersion = SetDriverVersionIn.field("driver_version", 0x10, 0, 512)
)

var SetDriverVersionOut = output("set_driver_version", 0x10)

var (
	AccessRegisterIn             = input("access_register", 0x10)
	AccessRegisterInRegisterID   = AccessRegisterIn.field("register_id", 0xa, 0, 16)
	AccessRegisterInArgument     = AccessRegisterIn.field("argument", 0xc, 0, 32)
	AccessRegisterInRegisterData = AccessRegisterIn.tail("register_data", 0x10, 32)
)

var (
	AccessRegisterOut             = output("access_register", 0x10)
	AccessRegisterOutRegisterData = AccessRegisterOut.tail("register_data", 0x10, 32)
)

var (
	MADIFCIn           = input("mad_ifc", 0x110)
	MADIFCInRemoteLID  = MADIFCIn.field("remote_lid", 0x8, 0, 16)
	MADIFCInPlaneIndex = MADIFCIn.field("plane_index", 0xa, 0, 8)
	MADIFCInPort       = MADIFCIn.field("port", 0xb, 0, 8)
	MADIFCInMAD        = MADIFCIn.field("mad", 0x10, 0, 2048)
)

var (
	MADIFCOut                  = output("mad_ifc", 0x110)
	MADIFCOutResponseMADPacket = MADIFCOut.field("response_mad_packet", 0x10, 0, 2048)
)
