package uverbs

// Error tells the status and its usual cause: ibv_wc_status_str(3) and what to
// look at.
func (s WCStatus) Error() string {
	if s == WCSuccess {
		return "uverbs: completion successful"
	}
	if int(s) < len(statusTexts) && statusTexts[s] != "" {
		return "uverbs: completion failed: " + statusTexts[s]
	}
	return "uverbs: completion failed: status " + itoa(uint64(s))
}

var statusTexts = [...]string{
	WCLocLenErr:        "local length error: a message longer than the receive's buffers, or over the port's limit",
	WCLocQPOpErr:       "local QP operation error: the request is not consistent with the QP",
	WCLocEECOpErr:      "local EE context operation error",
	WCLocProtErr:       "local protection error: a local buffer's MR is closed, too short, or of another PD",
	WCWRFlushErr:       "work request flushed: the QP is in state ERR; an earlier completion tells why",
	WCMWBindErr:        "memory window bind error",
	WCBadRespErr:       "bad response: the peer sent an unexpected opcode",
	WCLocAccessErr:     "local access error: the MR does not allow what a WRITE_IMM did",
	WCRemInvReqErr:     "remote invalid request: the peer's receive was too short, or it does not take this operation (QPConfig.Access)",
	WCRemAccessErr:     "remote access error: RKey, address or rights are not those of the peer's MR",
	WCRemOpErr:         "remote operation error: the peer could not complete it, see its own completions",
	WCRetryExcErr:      "transport retry count exceeded: the peer does not answer; is its QP in RTR, is the address right, is the network up",
	WCRNRRetryExcErr:   "receiver-not-ready retry count exceeded: the peer has no receive posted",
	WCLocRDDViolErr:    "local RDD violation",
	WCRemInvRDReqErr:   "remote invalid RD request",
	WCRemAbortErr:      "remote aborted",
	WCInvEECNErr:       "invalid EE context number",
	WCInvEECStateErr:   "invalid EE context state",
	WCFatalErr:         "fatal error: the device has failed",
	WCRespTimeoutErr:   "response timeout",
	WCGeneralErr:       "general error: see VendorErr",
	WCTMErr:            "tag matching error",
	WCTMRndvIncomplete: "tag matching: the software must complete the rendezvous",
}
