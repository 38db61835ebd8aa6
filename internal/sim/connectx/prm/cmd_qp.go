package prm

var (
	CreateQPIn             = input("create_qp", 0x110)
	CreateQPInQPCExt       = CreateQPIn.field("qpc_ext", 0x8, 0, 1)
	CreateQPInInputQPN     = CreateQPIn.field("input_qpn", 0x9, 0, 24)
	CreateQPInOptParamMask = CreateQPIn.field("opt_param_mask", 0x10, 0, 32)
	CreateQPInECE          = CreateQPIn.field("ece", 0x14, 0, 32)
	CreateQPInQPC          = CreateQPIn.nest("qpc", 0x18, QPC)
	CreateQPInWQUMemOffset = CreateQPIn.field("wq_umem_offset", 0x100, 0, 64)
	CreateQPInWQUMemID     = CreateQPIn.field("wq_umem_id", 0x108, 0, 32)
	CreateQPInWQUMemValid  = CreateQPIn.field("wq_umem_valid", 0x10c, 0, 1)
	CreateQPInPAS          = CreateQPIn.tail("pas", 0x110, 64)
)

var (
	CreateQPOut    = output("create_qp", 0x10)
	CreateQPOutQPN = CreateQPOut.field("qpn", 0x9, 0, 24)
	CreateQPOutECE = CreateQPOut.field("ece", 0xc, 0, 32)
)

var (
	DestroyQPIn    = input("destroy_qp", 0x10)
	DestroyQPInQPN = DestroyQPIn.field("qpn", 0x9, 0, 24)
)

var DestroyQPOut = output("destroy_qp", 0x10)

// The commands that change the state of a queue pair with a context: RST2INIT to SQD_RTS.
var (
	ModifyQPIn             = input("modify_qp", 0x110)
	ModifyQPInQPN          = ModifyQPIn.field("qpn", 0x9, 0, 24)
	ModifyQPInOptParamMask = ModifyQPIn.field("opt_param_mask", 0x10, 0, 32)
	ModifyQPInECE          = ModifyQPIn.field("ece", 0x14, 0, 32)
	ModifyQPInQPC          = ModifyQPIn.nest("qpc", 0x18, QPC)

	// With qpc_ext, parameters of the context's extension follow.
	ModifyQPInQPCExt      = ModifyQPIn.field("qpc_ext", 0x8, 0, 1)
	ModifyQPInOptMask9532 = ModifyQPIn.field("opt_param_mask_95_32", 0x108, 0, 64)
	ModifyQPInQPCDataExt  = ModifyQPIn.tail("qpc_data_ext", 0x110, 8)
)

// The extension of a queue pair's context.
var (
	QPCExt                   = layout("qpc_ext", 0xc0)
	QPCExtDCIStreamChannelID = QPCExt.field("dci_stream_channel_id", 0x2, 0, 16)
)

var (
	ModifyQPOut    = output("modify_qp", 0x10)
	ModifyQPOutECE = ModifyQPOut.field("ece", 0xc, 0, 32)
)

// The commands that change the state of a queue pair without a context: 2ERR and 2RST.
var (
	MoveQPIn    = input("move_qp", 0x10)
	MoveQPInQPN = MoveQPIn.field("qpn", 0x9, 0, 24)
)

var MoveQPOut = output("move_qp", 0x10)

var (
	QueryQPIn       = input("query_qp", 0x10)
	QueryQPInQPCExt = QueryQPIn.field("qpc_ext", 0x8, 0, 1)
	QueryQPInQPN    = QueryQPIn.field("qpn", 0x9, 0, 24)
)

var (
	QueryQPOut             = output("query_qp", 0x110)
	QueryQPOutOptParamMask = QueryQPOut.field("opt_param_mask", 0x10, 0, 32)
	QueryQPOutECE          = QueryQPOut.field("ece", 0x14, 0, 32)
	QueryQPOutQPC          = QueryQPOut.nest("qpc", 0x18, QPC)
	QueryQPOutPAS          = QueryQPOut.tail("pas", 0x110, 64)
)

var (
	AttachToMCGIn             = input("attach_to_mcg", 0x20)
	AttachToMCGInQPN          = AttachToMCGIn.field("qpn", 0x9, 0, 24)
	AttachToMCGInMulticastGID = AttachToMCGIn.field("multicast_gid", 0x10, 0, 128)
)

var AttachToMCGOut = output("attach_to_mcg", 0x10)

var (
	DetachFromMCGIn             = input("detach_from_mcg", 0x20)
	DetachFromMCGInQPN          = DetachFromMCGIn.field("qpn", 0x9, 0, 24)
	DetachFromMCGInMulticastGID = DetachFromMCGIn.field("multicast_gid", 0x10, 0, 128)
)

var DetachFromMCGOut = output("detach_from_mcg", 0x10)
