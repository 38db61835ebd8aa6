package prm

var (
	CreateTISIn     = input("create_tis", 0xc0)
	CreateTISInTISC = CreateTISIn.nest("ctx", 0x20, TISC)
)

var (
	CreateTISOut     = output("create_tis", 0x10)
	CreateTISOutTISN = CreateTISOut.field("tisn", 0x9, 0, 24)
)

var (
	ModifyTISIn                               = input("modify_tis", 0xc0)
	ModifyTISInTISN                           = ModifyTISIn.field("tisn", 0x9, 0, 24)
	ModifyTISInBitmaskLAGTXPortAffinity       = ModifyTISIn.field("bitmask.lag_tx_port_affinity", 0x17, 5, 1)
	ModifyTISInBitmaskStrictLAGTXPortAffinity = ModifyTISIn.field("bitmask.strict_lag_tx_port_affinity", 0x17, 6, 1)
	ModifyTISInBitmaskPrio                    = ModifyTISIn.field("bitmask.prio", 0x17, 7, 1)
	ModifyTISInTISC                           = ModifyTISIn.nest("ctx", 0x20, TISC)
)

var ModifyTISOut = output("modify_tis", 0x10)

var (
	QueryTISIn     = input("query_tis", 0x10)
	QueryTISInTISN = QueryTISIn.field("tisn", 0x9, 0, 24)
)

var (
	QueryTISOut     = output("query_tis", 0xb0)
	QueryTISOutTISC = QueryTISOut.nest("tis_context", 0x10, TISC)
)

var (
	DestroyTISIn     = input("destroy_tis", 0x10)
	DestroyTISInTISN = DestroyTISIn.field("tisn", 0x9, 0, 24)
)

var DestroyTISOut = output("destroy_tis", 0x10)

var (
	CreateTIRIn     = input("create_tir", 0x110)
	CreateTIRInTIRC = CreateTIRIn.nest("ctx", 0x20, TIRC)
)

var (
	CreateTIROut     = output("create_tir", 0x10)
	CreateTIROutTIRN = CreateTIROut.field("tirn", 0x9, 0, 24)
)

var (
	ModifyTIRIn                   = input("modify_tir", 0x110)
	ModifyTIRInTIRN               = ModifyTIRIn.field("tirn", 0x9, 0, 24)
	ModifyTIRInBitmaskSelfLBEn    = ModifyTIRIn.field("bitmask.self_lb_en", 0x17, 3, 1)
	ModifyTIRInBitmaskHash        = ModifyTIRIn.field("bitmask.hash", 0x17, 5, 1)
	ModifyTIRInBitmaskPacketMerge = ModifyTIRIn.field("bitmask.packet_merge", 0x17, 7, 1)
	ModifyTIRInTIRC               = ModifyTIRIn.nest("ctx", 0x20, TIRC)
)

var ModifyTIROut = output("modify_tir", 0x10)

var (
	QueryTIRIn     = input("query_tir", 0x10)
	QueryTIRInTIRN = QueryTIRIn.field("tirn", 0x9, 0, 24)
)

var (
	QueryTIROut     = output("query_tir", 0x110)
	QueryTIROutTIRC = QueryTIROut.nest("tir_context", 0x20, TIRC)
)

var (
	DestroyTIRIn     = input("destroy_tir", 0x10)
	DestroyTIRInTIRN = DestroyTIRIn.field("tirn", 0x9, 0, 24)
)

var DestroyTIROut = output("destroy_tir", 0x10)

var (
	CreateRQTIn     = input("create_rqt", 0x110)
	CreateRQTInRQTC = CreateRQTIn.nest("rqt_context", 0x20, RQTC)
)

var (
	CreateRQTOut     = output("create_rqt", 0x10)
	CreateRQTOutRQTN = CreateRQTOut.field("rqtn", 0x9, 0, 24)
)

var (
	ModifyRQTIn               = input("modify_rqt", 0x110)
	ModifyRQTInRQTN           = ModifyRQTIn.field("rqtn", 0x9, 0, 24)
	ModifyRQTInBitmaskRQNList = ModifyRQTIn.field("bitmask.rqn_list", 0x17, 7, 1)
	ModifyRQTInRQTC           = ModifyRQTIn.nest("ctx", 0x20, RQTC)
)

var ModifyRQTOut = output("modify_rqt", 0x10)

var (
	QueryRQTIn     = input("query_rqt", 0x10)
	QueryRQTInRQTN = QueryRQTIn.field("rqtn", 0x9, 0, 24)
)

var (
	QueryRQTOut     = output("query_rqt", 0x110)
	QueryRQTOutRQTC = QueryRQTOut.nest("rqt_context", 0x20, RQTC)
)

var (
	DestroyRQTIn     = input("destroy_rqt", 0x10)
	DestroyRQTInRQTN = DestroyRQTIn.field("rqtn", 0x9, 0, 24)
)

var DestroyRQTOut = output("destroy_rqt", 0x10)

var (
	CreateRQIn    = input("create_rq", 0x110)
	CreateRQInRQC = CreateRQIn.nest("ctx", 0x20, RQC)
)

var (
	CreateRQOut    = output("create_rq", 0x10)
	CreateRQOutRQN = CreateRQOut.field("rqn", 0x9, 0, 24)
)

var (
	ModifyRQIn              = input("modify_rq", 0x110)
	ModifyRQInRQState       = ModifyRQIn.field("rq_state", 0x8, 0, 4)
	ModifyRQInRQN           = ModifyRQIn.field("rqn", 0x9, 0, 24)
	ModifyRQInModifyBitmask = ModifyRQIn.field("modify_bitmask", 0x10, 0, 64)
	ModifyRQInRQC           = ModifyRQIn.nest("ctx", 0x20, RQC)
)

var ModifyRQOut = output("modify_rq", 0x10)

var (
	QueryRQIn    = input("query_rq", 0x10)
	QueryRQInRQN = QueryRQIn.field("rqn", 0x9, 0, 24)
)

var (
	QueryRQOut    = output("query_rq", 0x110)
	QueryRQOutRQC = QueryRQOut.nest("rq_context", 0x20, RQC)
)

var (
	DestroyRQIn    = input("destroy_rq", 0x10)
	DestroyRQInRQN = DestroyRQIn.field("rqn", 0x9, 0, 24)
)

var DestroyRQOut = output("destroy_rq", 0x10)

var (
	CreateSQIn    = input("create_sq", 0x110)
	CreateSQInSQC = CreateSQIn.nest("ctx", 0x20, SQC)
)

var (
	CreateSQOut    = output("create_sq", 0x10)
	CreateSQOutSQN = CreateSQOut.field("sqn", 0x9, 0, 24)
)

var (
	ModifySQIn              = input("modify_sq", 0x110)
	ModifySQInSQState       = ModifySQIn.field("sq_state", 0x8, 0, 4)
	ModifySQInSQN           = ModifySQIn.field("sqn", 0x9, 0, 24)
	ModifySQInModifyBitmask = ModifySQIn.field("modify_bitmask", 0x10, 0, 64)
	ModifySQInSQC           = ModifySQIn.nest("ctx", 0x20, SQC)
)

var ModifySQOut = output("modify_sq", 0x10)

var (
	QuerySQIn    = input("query_sq", 0x10)
	QuerySQInSQN = QuerySQIn.field("sqn", 0x9, 0, 24)
)

var (
	QuerySQOut    = output("query_sq", 0x110)
	QuerySQOutSQC = QuerySQOut.nest("sq_context", 0x20, SQC)
)

var (
	DestroySQIn    = input("destroy_sq", 0x10)
	DestroySQInSQN = DestroySQIn.field("sqn", 0x9, 0, 24)
)

var DestroySQOut = output("destroy_sq", 0x10)
