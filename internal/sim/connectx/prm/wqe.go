package prm

// Opcodes of send work queue elements (CtrlOpcode).
const (
	OpcodeNOP            = 0x00
	OpcodeSendInval      = 0x01
	OpcodeWrite          = 0x08
	OpcodeWriteImm       = 0x09
	OpcodeSend           = 0x0a
	OpcodeSendImm        = 0x0b
	OpcodeTSO            = 0x0e
	OpcodeRead           = 0x10
	OpcodeAtomicCS       = 0x11
	OpcodeAtomicFA       = 0x12
	OpcodeAtomicMaskedCS = 0x14
	OpcodeAtomicMaskedFA = 0x15
	OpcodeLocalInval     = 0x1b
	OpcodeUMR            = 0x25
)

// Values of CtrlCompletion (CE) and CtrlFence (FM), and the memory key that ends
// a receive list.
const (
	CompletionOnError = 0 // the default: a CQE for an error only
	CompletionAlways  = 2
	CompletionEvent   = 3

	FenceNone      = 0
	FenceSmall     = 1 // initiator small fence
	FenceStrong    = 2 // strong ordering
	FenceFull      = 4 // preceding READs and atomics
	EndOfReceiveSG = 0x100
)

// WQECtrl is the first segment of every send work queue element.
var (
	WQECtrl = layout("wqe_ctrl_seg", 16)

	CtrlOpMod      = WQECtrl.field("opmod", 0, 0, 8)
	CtrlWQEIndex   = WQECtrl.field("wqe_index", 1, 0, 16)
	CtrlOpcode     = WQECtrl.field("opcode", 3, 0, 8)
	CtrlQPN        = WQECtrl.field("qp_or_sq", 4, 0, 24)
	CtrlReserved7  = WQECtrl.field("reserved_at_38", 7, 0, 2)
	CtrlDS         = WQECtrl.field("ds", 7, 2, 6)
	CtrlSignature  = WQECtrl.field("signature", 8, 0, 8)
	CtrlStream     = WQECtrl.field("dci_stream_channel_id", 9, 0, 16)
	CtrlFence      = WQECtrl.field("fm", 11, 0, 3)
	CtrlReserved11 = WQECtrl.field("reserved_at_5b", 11, 3, 1)
	CtrlCompletion = WQECtrl.field("ce", 11, 4, 2)
	CtrlSolicited  = WQECtrl.field("se", 11, 6, 1)
	CtrlReserved12 = WQECtrl.field("reserved_at_5f", 11, 7, 1)
	CtrlImm        = WQECtrl.field("imm", 12, 0, 32)
)

// WQERaddr is the remote memory of a request.
var (
	WQERaddr = layout("wqe_raddr_seg", 16)

	RaddrAddress  = WQERaddr.field("raddr", 0, 0, 64)
	RaddrKey      = WQERaddr.field("rkey", 8, 0, 32)
	RaddrReserved = WQERaddr.field("reserved", 12, 0, 32)
)

// WQEAtomic has the operands of an atomic; WQEMaskedAtomic8 those of a masked
// one of eight bytes, WQEMaskedAtomic4 those of four bytes.
var (
	WQEAtomic     = layout("wqe_atomic_seg", 16)
	AtomicSwapAdd = WQEAtomic.field("swap_add", 0, 0, 64)
	AtomicCompare = WQEAtomic.field("compare", 8, 0, 64)

	WQEMaskedAtomic8  = layout("wqe_masked_atomic_seg", 32)
	MaskedSwapAdd     = WQEMaskedAtomic8.field("swap_add", 0, 0, 64)
	MaskedCompare     = WQEMaskedAtomic8.field("compare", 8, 0, 64)
	MaskedSwapAddMask = WQEMaskedAtomic8.field("swap_add_mask", 16, 0, 64)
	MaskedCompareMask = WQEMaskedAtomic8.field("compare_mask", 24, 0, 64)
)

// WQEData points to memory. If DataInline is set, InlineLength bytes of data
// follow in the WQE instead.
var (
	WQEData = layout("wqe_data_seg", 16)

	DataInline   = WQEData.field("inline", 0, 0, 1)
	DataLength   = WQEData.field("byte_count", 0, 1, 31)
	DataKey      = WQEData.field("lkey", 4, 0, 32)
	DataAddress  = WQEData.field("addr", 8, 0, 64)
	InlineLength = WQEData.alias("inline_byte_count", 0, 22, 10)
)

// WQEAV is the address vector of a datagram.
var (
	WQEAV = layout("wqe_av", 48)

	AVQKey       = WQEAV.field("qkey", 0, 0, 32)
	AVReserved   = WQEAV.field("reserved", 4, 0, 32)
	AVDCKey      = WQEAV.alias("dc_key", 0, 0, 64) // of a DCI
	AVExtended   = WQEAV.field("ext", 8, 0, 1)
	AVDestQPN    = WQEAV.field("dqp_dct", 8, 8, 24)
	AVStaticRate = WQEAV.field("stat_rate", 12, 0, 4)
	AVSL         = WQEAV.field("sl", 12, 4, 4)
	AVForceLB    = WQEAV.field("fl", 13, 0, 1)
	AVMLID       = WQEAV.field("mlid", 13, 1, 7)
	AVDLID       = WQEAV.field("rlid", 14, 0, 16) // RoCE v2: the UDP source port
	AVDMAC       = WQEAV.field("rmac", 20, 0, 48)
	AVTClass     = WQEAV.field("tclass", 26, 0, 8)
	AVHopLimit   = WQEAV.field("hop_limit", 27, 0, 8)
	AVGRH        = WQEAV.field("grh", 28, 1, 1)
	AVSGIDIndex  = WQEAV.field("src_addr_index", 28, 4, 8)
	AVFlowLabel  = WQEAV.field("flow_label", 28, 12, 20)
	AVDGID       = WQEAV.field("rgid", 32, 0, 128)
)

// WQEXRC is the number of the peer's SRQ.
var (
	WQEXRC      = layout("wqe_xrc_seg", 16)
	XRCSRQN     = WQEXRC.field("xrc_srqn", 0, 8, 24)
	XRCReserved = WQEXRC.field("reserved", 4, 0, 32)
)

// WQEUMR controls an update of a memory key; the context of the key (MKC) and the
// list or a pointer to it follow.
var (
	WQEUMR = layout("wqe_umr_ctrl_seg", 48)

	UMRInline        = WQEUMR.field("inline", 0, 0, 1)
	UMRCheckFree     = WQEUMR.field("check_free", 0, 1, 1)     // fail if the key is free
	UMRCheckNotFree  = WQEUMR.field("check_not_free", 0, 2, 1) // fail if the key is not free
	UMROffsetEnable  = WQEUMR.field("translation_offset_en", 0, 3, 1)
	UMRCheckQPN      = WQEUMR.field("check_qpn", 0, 4, 1)
	UMROctowords     = WQEUMR.field("xlt_octowords", 4, 0, 16)
	UMROffset        = WQEUMR.field("xlt_offset", 6, 0, 16)
	UMRMask          = WQEUMR.field("mkey_mask", 8, 0, 64)
	UMROffsetHigh    = WQEUMR.field("xlt_offset_47_16", 16, 0, 32)
	UMRReservedFlags = WQEUMR.field("reserved_at_8", 1, 0, 24)
)

// Bits of UMRMask: the fields of the memory key that an update changes.
const (
	UMRMaskLen          = 1 << 0
	UMRMaskPageSize     = 1 << 1
	UMRMaskStart        = 1 << 6
	UMRMaskPD           = 1 << 7
	UMRMaskRemoteInval  = 1 << 8
	UMRMaskSigErr       = 1 << 9
	UMRMaskBSF          = 1 << 12
	UMRMaskKey          = 1 << 13
	UMRMaskQPN          = 1 << 14
	UMRMaskLocalRead    = 1 << 17
	UMRMaskLocalWrite   = 1 << 18
	UMRMaskRemoteRead   = 1 << 19
	UMRMaskRemoteWrite  = 1 << 20
	UMRMaskAtomic       = 1 << 21
	UMRMaskSmallFence   = 1 << 23
	UMRMaskRelaxedWrite = 1 << 25
	UMRMaskFree         = 1 << 29
	UMRMaskRelaxedRead  = 1 << 47
	UMRMaskKnown        = UMRMaskLen | UMRMaskPageSize | UMRMaskStart | UMRMaskPD | UMRMaskRemoteInval | umrMaskKnownRights
	umrMaskKnownRights  = UMRMaskKey | UMRMaskQPN | UMRMaskLocalRead | UMRMaskLocalWrite | UMRMaskRemoteRead |
		umrMaskKnownOther
	umrMaskKnownOther = UMRMaskRemoteWrite | UMRMaskAtomic | UMRMaskSmallFence | UMRMaskRelaxedWrite | UMRMaskFree |
		umrMaskKnownIgnored
	umrMaskKnownIgnored = UMRMaskRelaxedRead | UMRMaskSigErr | UMRMaskBSF
)

// KLM is an entry of an indirect memory key's list.
var (
	KLM = layout("klm", 16)

	KLMLength  = KLM.field("byte_count", 0, 0, 32)
	KLMKey     = KLM.field("mkey", 4, 0, 32)
	KLMAddress = KLM.field("address", 8, 0, 64)
)

// WQENext links the work queue elements of an SRQ.
var (
	WQENext = layout("wqe_srq_next_seg", 16)

	NextIndex     = WQENext.field("next_wqe_index", 2, 0, 16)
	NextSignature = WQENext.field("signature", 4, 0, 8)
)

// WQEEth is the Ethernet segment of a raw packet.
var (
	WQEEth = layout("wqe_eth_seg", 16)

	EthL4Checksum = WQEEth.field("l4_cs", 4, 0, 1)
	EthL3Checksum = WQEEth.field("l3_cs", 4, 1, 1)
	EthMSS        = WQEEth.field("mss", 6, 0, 16)
	EthInlineSize = WQEEth.field("inline_hdr_sz", 12, 0, 16)
	EthInsertVLAN = WQEEth.alias("insert_vlan", 12, 0, 1) // then EthInline is the tag
	EthInline     = WQEEth.field("inline_hdr_start", 14, 0, 16)
)
