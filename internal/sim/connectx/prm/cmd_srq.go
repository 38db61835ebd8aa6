package prm

var (
	CreateRMPIn     = input("create_rmp", 0x110)
	CreateRMPInRMPC = CreateRMPIn.nest("ctx", 0x20, RMPC)
)

var (
	CreateRMPOut     = output("create_rmp", 0x10)
	CreateRMPOutRMPN = CreateRMPOut.field("rmpn", 0x9, 0, 24)
)

// The fields that MODIFY_RMP changes.
var (
	RMPBitmask    = layout("rmp_bitmask", 0x8)
	RMPBitmaskLWM = RMPBitmask.field("lwm", 0x7, 7, 1)
)

var (
	ModifyRMPIn           = input("modify_rmp", 0x110)
	ModifyRMPInRMPState   = ModifyRMPIn.field("rmp_state", 0x8, 0, 4)
	ModifyRMPInRMPN       = ModifyRMPIn.field("rmpn", 0x9, 0, 24)
	ModifyRMPInRMPBitmask = ModifyRMPIn.nest("bitmask", 0x10, RMPBitmask)
	ModifyRMPInRMPC       = ModifyRMPIn.nest("ctx", 0x20, RMPC)
)

var ModifyRMPOut = output("modify_rmp", 0x10)

var (
	QueryRMPIn     = input("query_rmp", 0x10)
	QueryRMPInRMPN = QueryRMPIn.field("rmpn", 0x9, 0, 24)
)

var (
	QueryRMPOut     = output("query_rmp", 0x110)
	QueryRMPOutRMPC = QueryRMPOut.nest("rmp_context", 0x20, RMPC)
)

var (
	DestroyRMPIn     = input("destroy_rmp", 0x10)
	DestroyRMPInRMPN = DestroyRMPIn.field("rmpn", 0x9, 0, 24)
)

var DestroyRMPOut = output("destroy_rmp", 0x10)

var (
	CreateXRCSRQIn                = input("create_xrc_srq", 0x110)
	CreateXRCSRQInXRCSRQC         = CreateXRCSRQIn.nest("xrc_srq_context_entry", 0x10, XRCSRQC)
	CreateXRCSRQInXRCSRQUMemValid = CreateXRCSRQIn.field("xrc_srq_umem_valid", 0x5c, 0, 1)
	CreateXRCSRQInPAS             = CreateXRCSRQIn.tail("pas", 0x110, 64)
)

var (
	CreateXRCSRQOut        = output("create_xrc_srq", 0x10)
	CreateXRCSRQOutXRCSRQN = CreateXRCSRQOut.field("xrc_srqn", 0x9, 0, 24)
)

var (
	QueryXRCSRQIn        = input("query_xrc_srq", 0x10)
	QueryXRCSRQInXRCSRQN = QueryXRCSRQIn.field("xrc_srqn", 0x9, 0, 24)
)

var (
	QueryXRCSRQOut        = output("query_xrc_srq", 0x110)
	QueryXRCSRQOutXRCSRQC = QueryXRCSRQOut.nest("xrc_srq_context_entry", 0x10, XRCSRQC)
	QueryXRCSRQOutPAS     = QueryXRCSRQOut.tail("pas", 0x110, 64)
)

var (
	DestroyXRCSRQIn        = input("destroy_xrc_srq", 0x10)
	DestroyXRCSRQInXRCSRQN = DestroyXRCSRQIn.field("xrc_srqn", 0x9, 0, 24)
)

var DestroyXRCSRQOut = output("destroy_xrc_srq", 0x10)

var (
	ArmXRCSRQIn        = input("arm_xrc_srq", 0x10)
	ArmXRCSRQInXRCSRQN = ArmXRCSRQIn.field("xrc_srqn", 0x9, 0, 24)
	ArmXRCSRQInLWM     = ArmXRCSRQIn.field("lwm", 0xe, 0, 16)
)

var ArmXRCSRQOut = output("arm_xrc_srq", 0x10)

// The commands for SRQs of interface version 0, for basic and XRC use at once.
var (
	CreateSRQIn     = input("create_srq", 0x110)
	CreateSRQInSRQC = CreateSRQIn.nest("srq_context_entry", 0x10, XRCSRQC)
	CreateSRQInPAS  = CreateSRQIn.tail("pas", 0x110, 64)
)

var (
	CreateSRQOut     = output("create_srq", 0x10)
	CreateSRQOutSRQN = CreateSRQOut.field("srqn", 0x9, 0, 24)
)

var (
	QuerySRQIn     = input("query_srq", 0x10)
	QuerySRQInSRQN = QuerySRQIn.field("srqn", 0x9, 0, 24)
)

var (
	QuerySRQOut     = output("query_srq", 0x110)
	QuerySRQOutSRQC = QuerySRQOut.nest("srq_context_entry", 0x10, XRCSRQC)
	QuerySRQOutPAS  = QuerySRQOut.tail("pas", 0x110, 64)
)

var (
	DestroySRQIn     = input("destroy_srq", 0x10)
	DestroySRQInSRQN = DestroySRQIn.field("srqn", 0x9, 0, 24)
)

var DestroySRQOut = output("destroy_srq", 0x10)

var (
	ArmRQIn          = input("arm_rq", 0x10)
	ArmRQInSRQNumber = ArmRQIn.field("srq_number", 0x9, 0, 24)
	ArmRQInLWM       = ArmRQIn.field("lwm", 0xe, 0, 16)
)

var ArmRQOut = output("arm_rq", 0x10)
