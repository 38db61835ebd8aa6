package prm

// The context of a DCT.
var (
	DCTC                = layout("dctc", 0x40)
	DCTCState           = DCTC.field("state", 0x0, 4, 4)
	DCTCDPOrderingForce = DCTC.field("dp_ordering_force", 0x4, 7, 1)
	DCTCUserIndex       = DCTC.field("user_index", 0x5, 0, 24)
	DCTCCQN             = DCTC.field("cqn", 0x9, 0, 24)
	DCTCCounterSetID    = DCTC.field("counter_set_id", 0xc, 0, 8)
	DCTCAtomicMode      = DCTC.field("atomic_mode", 0xd, 0, 4)
	DCTCRRE             = DCTC.field("rre", 0xd, 4, 1)
	DCTCRWE             = DCTC.field("rwe", 0xd, 5, 1)
	DCTCRAE             = DCTC.field("rae", 0xd, 6, 1)
	DCTCRLKY            = DCTC.field("rlky", 0xe, 1, 1)
	DCTCDPOrdering0     = DCTC.field("dp_ordering_0", 0xe, 3, 1)
	DCTCDPOrdering1     = DCTC.field("dp_ordering_1", 0xe, 4, 1)
	DCTCCSRes           = DCTC.field("cs_res", 0x11, 0, 8)
	DCTCMinRNRNak       = DCTC.field("min_rnr_nak", 0x12, 3, 5)
	DCTCSRQN            = DCTC.field("srqn_xrqn", 0x15, 0, 24)
	DCTCPD              = DCTC.field("pd", 0x19, 0, 24)
	DCTCTclass          = DCTC.field("tclass", 0x1c, 0, 8)
	DCTCFlowLabel       = DCTC.field("flow_label", 0x1d, 4, 20)
	DCTCAccessKey       = DCTC.field("dc_access_key", 0x20, 0, 64)
	DCTCMTU             = DCTC.field("mtu", 0x28, 5, 3)
	DCTCPort            = DCTC.field("port", 0x29, 0, 8)
	DCTCPKeyIndex       = DCTC.field("pkey_index", 0x2a, 0, 16)
	DCTCMyAddrIndex     = DCTC.field("my_addr_index", 0x2d, 0, 8)
	DCTCHopLimit        = DCTC.field("hop_limit", 0x2f, 0, 8)
	DCTCViolationCount  = DCTC.field("dc_access_key_violation_count", 0x30, 0, 32)
	DCTCEthPrio         = DCTC.field("eth_prio", 0x36, 5, 3)
	DCTCECE             = DCTC.field("ece", 0x3c, 0, 32)
)

var (
	CreateDCTIn     = input("create_dct", 0x80)
	CreateDCTInDCTC = CreateDCTIn.nest("dct_context_entry", 0x10, DCTC)
)

var (
	CreateDCTOut     = output("create_dct", 0x10)
	CreateDCTOutDCTN = CreateDCTOut.field("dctn", 0x9, 0, 24)
	CreateDCTOutECE  = CreateDCTOut.field("ece", 0xc, 0, 32)
)

// The commands that name a DCT and nothing else: DESTROY_DCT, DRAIN_DCT, QUERY_DCT and ARM_DCT.
var (
	DCTIn     = input("dct", 0x10)
	DCTInDCTN = DCTIn.field("dctn", 0x9, 0, 24)
)

var DCTOut = output("dct", 0x10)

var (
	QueryDCTOut     = output("query_dct", 0x80)
	QueryDCTOutDCTC = QueryDCTOut.nest("dct_context_entry", 0x10, DCTC)
)
