package prm

// Opcodes of completions (CQEOpcode).
const (
	CQEReq         = 0
	CQERespWrite   = 1 // WRITE with immediate
	CQERespSend    = 2
	CQERespSendImm = 3
	CQERespSendInv = 4
	CQEResize      = 5
	CQEReqErr      = 13
	CQERespErr     = 14
	CQEInvalid     = 15
)

// Values of CQEFormat and of CQEL3Type.
const (
	CQEFormatPlain    = 0
	CQEFormatInline32 = 1 // the data is in the CQE's first 32 bytes
	CQEFormatInline64 = 2 // the data is in the preceding 64 bytes

	CQEL3GRH  = 0
	CQEL3IPv6 = 1
	CQEL3IPv4 = 2
)

// CQE is a completion of 64 bytes, or the second half of one of 128 bytes.
var (
	CQE = layout("cqe64", 64)

	CQEWQEID      = CQE.field("wqe_id", 2, 0, 16)
	CQEMLPath     = CQE.field("ml_path", 17, 0, 8)
	CQEChecksum   = CQE.field("check_sum", 20, 0, 16)
	CQESLID       = CQE.field("slid", 22, 0, 16)
	CQEGRH        = CQE.field("grh", 24, 2, 2)
	CQESL         = CQE.field("sl", 24, 4, 4)
	CQEL3Type     = CQE.alias("roce_l3_hdr_type", 24, 6, 2)
	CQERemoteQPN  = CQE.field("rqpn", 25, 0, 24)
	CQEL4OK       = CQE.field("l4_ok", 28, 5, 1)
	CQEL3OK       = CQE.field("l3_ok", 28, 6, 1)
	CQEL2OK       = CQE.field("l2_ok", 28, 7, 1)
	CQEL4HdrType  = CQE.field("l4_hdr_type", 29, 1, 3)
	CQEL3HdrType  = CQE.field("l3_hdr_type", 29, 4, 2)
	CQEVLAN       = CQE.field("cv", 29, 7, 1)
	CQEVLANInfo   = CQE.field("vlan_info", 30, 0, 16)
	CQEUserIndex  = CQE.field("srqn_uidx", 32, 8, 24)
	CQEImm        = CQE.field("imm_inval_pkey", 36, 0, 32)
	CQEByteCount  = CQE.field("byte_cnt", 44, 0, 32)
	CQETimestamp  = CQE.field("timestamp", 48, 0, 64)
	CQESendOpcode = CQE.field("send_opcode", 56, 0, 8)
	CQEQPN        = CQE.field("qpn", 57, 0, 24)
	CQEWQECounter = CQE.field("wqe_counter", 60, 0, 16)
	CQESignature  = CQE.field("signature", 62, 0, 8)
	CQEOpcode     = CQE.field("opcode", 63, 0, 4)
	CQEFormat     = CQE.field("format", 63, 4, 2)
	CQESolicited  = CQE.field("se", 63, 6, 1)
	CQEOwner      = CQE.field("owner", 63, 7, 1)

	CQEVendorSyndrome = CQE.alias("vendor_err_synd", 54, 0, 8)
	CQESyndrome       = CQE.alias("syndrome", 55, 0, 8)
	CQERSSHash        = CQE.alias("rss_hash_result", 12, 0, 32)
	CQERSSType        = CQE.alias("rss_hash_type", 16, 0, 8)
)
