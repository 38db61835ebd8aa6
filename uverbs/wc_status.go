package uverbs

// Error returns a description of the status, its usual cause and what to check. See
// also ibv_wc_status_str(3).
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
	WCLocLenErr: "local length error: the message is longer than the receive's buffers, or than the port accepts: give " +
		"the receive more room (RecvWR.SGL), or have the peer send less",
	WCLocQPOpErr: "local QP operation error: the request does not fit the QP: an operation that its type or the " +
		"device does not do, a READ or an atomic with MaxRdAtomic 0 (in cm: the depths of both sides), or an SGE of an " +
		"MR that is closed; of a receive on rxe: the message is longer than the receive's SGEs",
	WCLocEECOpErr: "local EE context operation error",
	WCLocProtErr: "local protection error: an SGE names an MR that is closed, too short, of another PD, or without " +
		"LocalWrite where data comes in",
	WCWRFlushErr: "work request flushed: the QP is in state ERR, or the stream of a DCI has failed and waits for " +
		"mlx5.ResetDCIStream: see the first completion with another status; without " +
		"one, the peer has disconnected, this program has moved the QP to ERR, or, on rxe, the first request " +
		"that is flushed names memory that is not registered (an SGE of an MR that is closed, or of another PD)",
	WCMWBindErr: "memory window bind error: the MR lacks MWBindAccess or the rights of the window, or the device does " +
		"not support the window, its key or the range",
	WCBadRespErr: "bad response: the peer's reply does not fit the request: check that each end's RQPSN is the " +
		"other's SQPSN",
	WCLocAccessErr: "local access error: what a peer sent breaks the rights of the memory here: see the Access of " +
		"the MR",
	WCRemInvReqErr: "remote invalid request: the peer does not accept it: its receive is too short, or its QP does not " +
		"allow the operation (QPConfig.Access there)",
	WCRemAccessErr: "remote access error: RKey, address and length, or rights are not those of the peer's MR: check " +
		"that it is open, its Addr and RKey as they came here, and its Access",
	WCRemOpErr: "remote operation error: the peer could not complete it, see its own completions; rxe also reports this " +
		"when the peer's receive is too short",
	WCRetryExcErr: "transport retry count exceeded: the peer did not reply: is its QP in RTR, with this QP as its " +
		"DestQPN, is the address right, is the network up; if short messages arrive and long ones do not, a link or " +
		"switch of the path has a smaller MTU than QPAttr.PathMTU; on rxe also a peer without a receive posted; " +
		"QPAttr.Timeout and RetryCount determine how long the QP retries",
	WCRNRRetryExcErr: "receiver-not-ready retry count exceeded: the peer has no receive posted: post it before this " +
		"end sends, or raise QPAttr.RNRRetryCount here (7 is for ever) or MinRNRTimer there",
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
