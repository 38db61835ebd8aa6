package uverbs

// A WC is one work completion: struct ibv_wc, and the values of the functions
// described in ibv_start_poll(3): opcode, byte_len, imm_data, invalidated_rkey (see
// [WC.InvalidatedRKey]), qp_num, src_qp, vendor_err, wc_flags, slid, sl,
// dlid_path_bits and completion_ts. If Status is not WCSuccess, only WRID, Status,
// VendorErr and QPNum are valid.
//
// On rxe, which has no LIDs, no service levels, one P_Key, no vendor errors and no
// clock, the fields Timestamp, VendorErr, PKeyIndex, SLID, SL and PathBits are 0.
// rxe sets WCGRH for receives of QPs of every type, although only UD has a GRH. It
// sets WCWithImm also in the completion of the request that sent the immediate
// data.
type WC struct {
	WRID      uint64
	Timestamp uint64 // of the device's clock, 0 if it has none
	ByteLen   uint32 // bytes received or read; 8 for an atomic; for SENDs and WRITEs set by rxe only
	Imm       uint32 // in host order; valid in a receive with WCWithImm; with WCWithInv, the invalidated RKey
	QPNum     uint32 // the local QP
	SrcQP     uint32 // UD: the sender's QPN
	VendorErr uint32
	PKeyIndex uint16 // 0: only GSI QPs have others, and programs cannot create these
	SLID      uint16 // InfiniBand: the sender's LID
	Status    WCStatus
	Opcode    WCOpcode
	Flags     WCFlags
	SL        uint8 // InfiniBand: the service level
	PathBits  uint8 // InfiniBand: the low bits of the destination LID
}

// Err returns nil for a successful completion and the status otherwise.
func (w *WC) Err() error {
	if w.Status == WCSuccess {
		return nil
	}
	return w.Status
}

// InvalidatedRKey returns the key that the peer's SEND invalidated. ok is false if
// it invalidated none.
func (w *WC) InvalidatedRKey() (rkey uint32, ok bool) {
	if w.Flags&WCWithInv == 0 {
		return 0, false
	}
	return w.Imm, true
}

// WCOpcode is the operation that completed. The values are those of ibv_wc_opcode.
type WCOpcode uint8

// The opcodes of completions.
const (
	WCSend        WCOpcode = 0
	WCWrite       WCOpcode = 1
	WCRead        WCOpcode = 2
	WCCompareSwap WCOpcode = 3
	WCFetchAdd    WCOpcode = 4
	WCBindMW      WCOpcode = 5
	WCLocalInv    WCOpcode = 6
	WCTSO         WCOpcode = 7
	WCFlush       WCOpcode = 8
	WCAtomicWrite WCOpcode = 9
	WCRecv        WCOpcode = 128 // a SEND arrived
	WCRecvRDMAImm WCOpcode = 129 // a WRITE_IMM arrived
	WCRawWQE      WCOpcode = 136 // IBV_WC_DRIVER2: of SendBatch.RawWQE
)

var wcOpcodeNames = [...]string{
	WCSend: "SEND", WCWrite: "WRITE", WCRead: "READ", WCCompareSwap: "COMPARE_SWAP", WCFetchAdd: "FETCH_ADD",
	WCBindMW: "BIND_MW", WCLocalInv: "LOCAL_INV", WCTSO: "TSO", WCFlush: "FLUSH", WCAtomicWrite: "ATOMIC_WRITE",
	WCRecv: "RECV", WCRecvRDMAImm: "RECV_RDMA_IMM", WCRawWQE: "RAW_WQE",
}

// String returns the name of the operation, as [Opcode.String] does.
func (o WCOpcode) String() string {
	if int(o) < len(wcOpcodeNames) && wcOpcodeNames[o] != "" {
		return wcOpcodeNames[o]
	}
	return "opcode " + itoa(uint64(o))
}

// WCFlags are the flags of a completion. The values are those of ibv_wc_flags.
type WCFlags uint8

// The flags of ibv_poll_cq(3).
const (
	WCGRH     WCFlags = 1 << 0 // UD: the GRH area of the buffer is valid
	WCWithImm WCFlags = 1 << 1 // Imm is valid
	WCWithInv WCFlags = 1 << 3 // Imm holds the RKey that the peer invalidated
)

// WCStatus is the status of a completion. It is also an error, which can be tested
// as in errors.Is(err, WCRemAccessErr). The values are those of ibv_wc_status.
type WCStatus uint8

// The statuses of ibv_poll_cq(3).
const (
	WCSuccess          WCStatus = 0
	WCLocLenErr        WCStatus = 1
	WCLocQPOpErr       WCStatus = 2
	WCLocEECOpErr      WCStatus = 3
	WCLocProtErr       WCStatus = 4
	WCWRFlushErr       WCStatus = 5
	WCMWBindErr        WCStatus = 6
	WCBadRespErr       WCStatus = 7
	WCLocAccessErr     WCStatus = 8
	WCRemInvReqErr     WCStatus = 9
	WCRemAccessErr     WCStatus = 10
	WCRemOpErr         WCStatus = 11
	WCRetryExcErr      WCStatus = 12
	WCRNRRetryExcErr   WCStatus = 13
	WCLocRDDViolErr    WCStatus = 14
	WCRemInvRDReqErr   WCStatus = 15
	WCRemAbortErr      WCStatus = 16
	WCInvEECNErr       WCStatus = 17
	WCInvEECStateErr   WCStatus = 18
	WCFatalErr         WCStatus = 19
	WCRespTimeoutErr   WCStatus = 20
	WCGeneralErr       WCStatus = 21
	WCTMErr            WCStatus = 22
	WCTMRndvIncomplete WCStatus = 23
)
