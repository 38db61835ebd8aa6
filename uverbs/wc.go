package uverbs

// A WC is one work completion: struct ibv_wc. When Status is not WCSuccess
// only WRID, Status, VendorErr and QPNum hold something.
type WC struct {
	WRID      uint64
	Timestamp uint64 // device clock, 0 where the device has none
	ByteLen   uint32 // bytes received, or read
	Imm       uint32 // host order; valid with WCWithImm. With WCWithInv: the invalidated RKey
	QPNum     uint32 // the local QP
	SrcQP     uint32 // UD: the sender's QP
	VendorErr uint32
	PKeyIndex uint16
	SLID      uint16
	Status    WCStatus
	Opcode    WCOpcode
	Flags     WCFlags
	SL        uint8
	PathBits  uint8
}

// Err returns nil for a successful completion and the status otherwise.
func (w *WC) Err() error {
	if w.Status == WCSuccess {
		return nil
	}
	return w.Status
}

// InvalidatedRKey is the key that the peer invalidated by its SEND. ok is false
// where it did not.
func (w *WC) InvalidatedRKey() (rkey uint32, ok bool) {
	if w.Flags&WCWithInv == 0 {
		return 0, false
	}
	return w.Imm, true
}

// WCOpcode says what completed. The values are those of ibv_wc_opcode.
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
	WCFlush       WCOpcode = 8
	WCAtomicWrite WCOpcode = 9
	WCRecv        WCOpcode = 128 // a SEND arrived
	WCRecvRDMAImm WCOpcode = 129 // a WRITE_IMM arrived
)

// WCFlags are the flags of a completion. The values are those of ibv_wc_flags.
type WCFlags uint8

// The flags of ibv_poll_cq(3).
const (
	WCGRH     WCFlags = 1 << 0 // UD: the GRH area of the buffer is valid
	WCWithImm WCFlags = 1 << 1 // Imm is valid
	WCWithInv WCFlags = 1 << 3 // Imm holds the RKey that the peer invalidated
)

// WCStatus is the status of a completion, and an error: errors.Is(err,
// WCRemAccessErr) tells what went wrong. The values are those of
// ibv_wc_status.
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
