package prm

var AllocPDIn = input("alloc_pd", 0x10)

var (
	AllocPDOut   = output("alloc_pd", 0x10)
	AllocPDOutPD = AllocPDOut.field("pd", 0x9, 0, 24)
)

var (
	DeallocPDIn   = input("dealloc_pd", 0x10)
	DeallocPDInPD = DeallocPDIn.field("pd", 0x9, 0, 24)
)

var DeallocPDOut = output("dealloc_pd", 0x10)

var (
	AllocMEMICIn                      = input("alloc_memic", 0x20)
	AllocMEMICInLogMEMICAddrAlignment = AllocMEMICIn.field("log_memic_addr_alignment", 0xf, 0, 8)
	AllocMEMICInRangeStartAddr        = AllocMEMICIn.field("range_start_addr", 0x10, 0, 64)
	AllocMEMICInRangeSize             = AllocMEMICIn.field("range_size", 0x18, 0, 32)
	AllocMEMICInMEMICSize             = AllocMEMICIn.field("memic_size", 0x1c, 0, 32)
)

var (
	AllocMEMICOut               = output("alloc_memic", 0x10)
	AllocMEMICOutMEMICStartAddr = AllocMEMICOut.field("memic_start_addr", 0x8, 0, 64)
)

var (
	DeallocMEMICIn               = input("dealloc_memic", 0x20)
	DeallocMEMICInMEMICStartAddr = DeallocMEMICIn.field("memic_start_addr", 0x10, 0, 64)
	DeallocMEMICInMEMICSize      = DeallocMEMICIn.field("memic_size", 0x18, 0, 32)
)

var DeallocMEMICOut = output("dealloc_memic", 0x10)

var (
	ModifyMEMICIn                   = input("modify_memic", 0x40)
	ModifyMEMICInMEMICOperationType = ModifyMEMICIn.field("memic_operation_type", 0xf, 0, 8)
	ModifyMEMICInMEMICStartAddr     = ModifyMEMICIn.field("memic_start_addr", 0x10, 0, 64)
)

var (
	ModifyMEMICOut                   = output("modify_memic", 0x40)
	ModifyMEMICOutMEMICOperationAddr = ModifyMEMICOut.field("memic_operation_addr", 0x10, 0, 64)
)

var AllocUARIn = input("alloc_uar", 0x10)

var (
	AllocUAROut    = output("alloc_uar", 0x10)
	AllocUAROutUAR = AllocUAROut.field("uar", 0x9, 0, 24)
)

var (
	DeallocUARIn    = input("dealloc_uar", 0x10)
	DeallocUARInUAR = DeallocUARIn.field("uar", 0x9, 0, 24)
)

var DeallocUAROut = output("dealloc_uar", 0x10)

var AllocXRCDIn = input("alloc_xrcd", 0x10)

var (
	AllocXRCDOut     = output("alloc_xrcd", 0x10)
	AllocXRCDOutXRCD = AllocXRCDOut.field("xrcd", 0x9, 0, 24)
)

var (
	DeallocXRCDIn     = input("dealloc_xrcd", 0x10)
	DeallocXRCDInXRCD = DeallocXRCDIn.field("xrcd", 0x9, 0, 24)
)

var DeallocXRCDOut = output("dealloc_xrcd", 0x10)

var AllocTransportDomainIn = input("alloc_transport_domain", 0x10)

var (
	AllocTransportDomainOut                = output("alloc_transport_domain", 0x10)
	AllocTransportDomainOutTransportDomain = AllocTransportDomainOut.field("transport_domain", 0x9, 0, 24)
)

var (
	DeallocTransportDomainIn                = input("dealloc_transport_domain", 0x10)
	DeallocTransportDomainInTransportDomain = DeallocTransportDomainIn.field("transport_domain", 0x9, 0, 24)
)

var DeallocTransportDomainOut = output("dealloc_transport_domain", 0x10)

var AllocQCounterIn = input("alloc_q_counter", 0x10)

var (
	AllocQCounterOut             = output("alloc_q_counter", 0x10)
	AllocQCounterOutCounterSetID = AllocQCounterOut.field("counter_set_id", 0xb, 0, 8)
)

var (
	DeallocQCounterIn             = input("dealloc_q_counter", 0x10)
	DeallocQCounterInCounterSetID = DeallocQCounterIn.field("counter_set_id", 0xb, 0, 8)
)

var DeallocQCounterOut = output("dealloc_q_counter", 0x10)

var (
	QueryQCounterIn             = input("query_q_counter", 0x20)
	QueryQCounterInOtherVport   = QueryQCounterIn.field("other_vport", 0x8, 0, 1)
	QueryQCounterInVportNumber  = QueryQCounterIn.field("vport_number", 0xa, 0, 16)
	QueryQCounterInClear        = QueryQCounterIn.field("clear", 0x18, 0, 1)
	QueryQCounterInAggregate    = QueryQCounterIn.field("aggregate", 0x18, 1, 1)
	QueryQCounterInCounterSetID = QueryQCounterIn.field("counter_set_id", 0x1f, 0, 8)
)

var (
	QueryQCounterOut                            = output("query_q_counter", 0x100)
	QueryQCounterOutRXWriteRequests             = QueryQCounterOut.field("rx_write_requests", 0x10, 0, 32)
	QueryQCounterOutRXReadRequests              = QueryQCounterOut.field("rx_read_requests", 0x18, 0, 32)
	QueryQCounterOutRXAtomicRequests            = QueryQCounterOut.field("rx_atomic_requests", 0x20, 0, 32)
	QueryQCounterOutRXDCTConnect                = QueryQCounterOut.field("rx_dct_connect", 0x28, 0, 32)
	QueryQCounterOutOutOfBuffer                 = QueryQCounterOut.field("out_of_buffer", 0x30, 0, 32)
	QueryQCounterOutOutOfSequence               = QueryQCounterOut.field("out_of_sequence", 0x38, 0, 32)
	QueryQCounterOutDuplicateRequest            = QueryQCounterOut.field("duplicate_request", 0x40, 0, 32)
	QueryQCounterOutRNRNakRetryErr              = QueryQCounterOut.field("rnr_nak_retry_err", 0x48, 0, 32)
	QueryQCounterOutPacketSeqErr                = QueryQCounterOut.field("packet_seq_err", 0x50, 0, 32)
	QueryQCounterOutImpliedNakSeqErr            = QueryQCounterOut.field("implied_nak_seq_err", 0x58, 0, 32)
	QueryQCounterOutLocalAckTimeoutErr          = QueryQCounterOut.field("local_ack_timeout_err", 0x60, 0, 32)
	QueryQCounterOutReqRNRRetriesExceeded       = QueryQCounterOut.field("req_rnr_retries_exceeded", 0x70, 0, 32)
	QueryQCounterOutRespLocalLengthError        = QueryQCounterOut.field("resp_local_length_error", 0x78, 0, 32)
	QueryQCounterOutReqLocalLengthError         = QueryQCounterOut.field("req_local_length_error", 0x7c, 0, 32)
	QueryQCounterOutRespLocalQPError            = QueryQCounterOut.field("resp_local_qp_error", 0x80, 0, 32)
	QueryQCounterOutLocalOperationError         = QueryQCounterOut.field("local_operation_error", 0x84, 0, 32)
	QueryQCounterOutRespLocalProtection         = QueryQCounterOut.field("resp_local_protection", 0x88, 0, 32)
	QueryQCounterOutReqLocalProtection          = QueryQCounterOut.field("req_local_protection", 0x8c, 0, 32)
	QueryQCounterOutRespCQEError                = QueryQCounterOut.field("resp_cqe_error", 0x90, 0, 32)
	QueryQCounterOutReqCQEError                 = QueryQCounterOut.field("req_cqe_error", 0x94, 0, 32)
	QueryQCounterOutReqMWBinding                = QueryQCounterOut.field("req_mw_binding", 0x98, 0, 32)
	QueryQCounterOutReqBadResponse              = QueryQCounterOut.field("req_bad_response", 0x9c, 0, 32)
	QueryQCounterOutReqRemoteInvalidRequest     = QueryQCounterOut.field("req_remote_invalid_request", 0xa0, 0, 32)
	QueryQCounterOutRespRemoteInvalidRequest    = QueryQCounterOut.field("resp_remote_invalid_request", 0xa4, 0, 32)
	QueryQCounterOutReqRemoteAccessErrors       = QueryQCounterOut.field("req_remote_access_errors", 0xa8, 0, 32)
	QueryQCounterOutRespRemoteAccessErrors      = QueryQCounterOut.field("resp_remote_access_errors", 0xac, 0, 32)
	QueryQCounterOutReqRemoteOperationErrors    = QueryQCounterOut.field("req_remote_operation_errors", 0xb0, 0, 32)
	QueryQCounterOutReqTransportRetriesExceeded = QueryQCounterOut.field("req_transport_retries_exceeded", 0xb4, 0, 32)
	QueryQCounterOutCQOverflow                  = QueryQCounterOut.field("cq_overflow", 0xb8, 0, 32)
	QueryQCounterOutRespCQEFlushError           = QueryQCounterOut.field("resp_cqe_flush_error", 0xbc, 0, 32)
	QueryQCounterOutReqCQEFlushError            = QueryQCounterOut.field("req_cqe_flush_error", 0xc0, 0, 32)
	QueryQCounterOutRoCEAdpRetrans              = QueryQCounterOut.field("roce_adp_retrans", 0xc8, 0, 32)
	QueryQCounterOutRoCEAdpRetransTo            = QueryQCounterOut.field("roce_adp_retrans_to", 0xcc, 0, 32)
	QueryQCounterOutRoCESlowRestart             = QueryQCounterOut.field("roce_slow_restart", 0xd0, 0, 32)
	QueryQCounterOutRoCESlowRestartCnps         = QueryQCounterOut.field("roce_slow_restart_cnps", 0xd4, 0, 32)
	QueryQCounterOutRoCESlowRestartTrans        = QueryQCounterOut.field("roce_slow_restart_trans", 0xd8, 0, 32)
)

var (
	CreateMKeyIn                              = input("create_mkey", 0x110)
	CreateMKeyInPGAccess                      = CreateMKeyIn.field("pg_access", 0xc, 0, 1)
	CreateMKeyInMKeyUMemValid                 = CreateMKeyIn.field("mkey_umem_valid", 0xc, 1, 1)
	CreateMKeyInDataDirect                    = CreateMKeyIn.field("data_direct", 0xc, 2, 1)
	CreateMKeyInMKC                           = CreateMKeyIn.nest("memory_key_mkey_entry", 0x10, MKC)
	CreateMKeyInTranslationsOctwordActualSize = CreateMKeyIn.field("translations_octword_actual_size", 0x60, 0, 32)
	CreateMKeyInMKeyUMemID                    = CreateMKeyIn.field("mkey_umem_id", 0x64, 0, 32)
	CreateMKeyInMKeyUMemOffset                = CreateMKeyIn.field("mkey_umem_offset", 0x68, 0, 64)
	CreateMKeyInKLMPASMTT                     = CreateMKeyIn.tail("klm_pas_mtt", 0x110, 32)
)

var (
	CreateMKeyOut          = output("create_mkey", 0x10)
	CreateMKeyOutMKeyIndex = CreateMKeyOut.field("mkey_index", 0x9, 0, 24)
)

var (
	QueryMKeyIn          = input("query_mkey", 0x10)
	QueryMKeyInMKeyIndex = QueryMKeyIn.field("mkey_index", 0x9, 0, 24)
	QueryMKeyInPGAccess  = QueryMKeyIn.field("pg_access", 0xc, 0, 1)
)

var (
	QueryMKeyOut                 = output("query_mkey", 0x130)
	QueryMKeyOutMKC              = QueryMKeyOut.nest("memory_key_mkey_entry", 0x10, MKC)
	QueryMKeyOutBSF0Klm0PASMtt01 = QueryMKeyOut.field("bsf0_klm0_pas_mtt0_1", 0x110, 0, 128)
	QueryMKeyOutBsf1Klm1PASMtt23 = QueryMKeyOut.field("bsf1_klm1_pas_mtt2_3", 0x120, 0, 128)
)

var (
	DestroyMKeyIn          = input("destroy_mkey", 0x10)
	DestroyMKeyInMKeyIndex = DestroyMKeyIn.field("mkey_index", 0x9, 0, 24)
)

var DestroyMKeyOut = output("destroy_mkey", 0x10)

var (
	PageFaultResumeIn         = input("page_fault_resume", 0x10)
	PageFaultResumeInError    = PageFaultResumeIn.field("error", 0x8, 0, 1)
	PageFaultResumeInType     = PageFaultResumeIn.field("page_fault_type", 0x8, 5, 3)
	PageFaultResumeInWQNumber = PageFaultResumeIn.field("wq_number", 0x9, 0, 24)
	PageFaultResumeInToken    = PageFaultResumeIn.field("fault_token", 0xd, 0, 24)
)

var PageFaultResumeOut = output("page_fault_resume", 0x10)

var (
	CreateEQIn             = input("create_eq", 0x110)
	CreateEQInEQC          = CreateEQIn.nest("eq_context_entry", 0x10, EQC)
	CreateEQInEventBitmask = CreateEQIn.array("event_bitmask", 0x58, 64, 4)
	CreateEQInPAS          = CreateEQIn.tail("pas", 0x110, 64)
)

var (
	CreateEQOut         = output("create_eq", 0x10)
	CreateEQOutEQNumber = CreateEQOut.field("eq_number", 0xb, 0, 8)
)

var (
	QueryEQIn         = input("query_eq", 0x10)
	QueryEQInEQNumber = QueryEQIn.field("eq_number", 0xb, 0, 8)
)

var (
	QueryEQOut             = output("query_eq", 0x110)
	QueryEQOutEQC          = QueryEQOut.nest("eq_context_entry", 0x10, EQC)
	QueryEQOutEventBitmask = QueryEQOut.field("event_bitmask", 0x58, 0, 64)
	QueryEQOutPAS          = QueryEQOut.tail("pas", 0x110, 64)
)

var (
	DestroyEQIn         = input("destroy_eq", 0x10)
	DestroyEQInEQNumber = DestroyEQIn.field("eq_number", 0xb, 0, 8)
)

var DestroyEQOut = output("destroy_eq", 0x10)

var (
	CreateCQIn             = input("create_cq", 0x110)
	CreateCQInCQC          = CreateCQIn.nest("cq_context", 0x10, CQC)
	CreateCQInCQUMemOffset = CreateCQIn.field("cq_umem_offset", 0x50, 0, 64)
	CreateCQInCQUMemID     = CreateCQIn.field("cq_umem_id", 0x58, 0, 32)
	CreateCQInCQUMemValid  = CreateCQIn.field("cq_umem_valid", 0x5c, 0, 1)
	CreateCQInPAS          = CreateCQIn.tail("pas", 0x110, 64)
)

var (
	CreateCQOut    = output("create_cq", 0x10)
	CreateCQOutCQN = CreateCQOut.field("cqn", 0x9, 0, 24)
)

var (
	QueryCQIn    = input("query_cq", 0x10)
	QueryCQInCQN = QueryCQIn.field("cqn", 0x9, 0, 24)
)

var (
	QueryCQOut    = output("query_cq", 0x110)
	QueryCQOutCQC = QueryCQOut.nest("cq_context", 0x10, CQC)
	QueryCQOutPAS = QueryCQOut.tail("pas", 0x110, 64)
)

var (
	DestroyCQIn    = input("destroy_cq", 0x10)
	DestroyCQInCQN = DestroyCQIn.field("cqn", 0x9, 0, 24)
)

var DestroyCQOut = output("destroy_cq", 0x10)

var (
	ModifyCQIn             = input("modify_cq", 0x110)
	ModifyCQInCQN          = ModifyCQIn.field("cqn", 0x9, 0, 24)
	ModifyCQInFieldSelect  = ModifyCQIn.field("field_select", 0xc, 0, 32)
	ModifyCQInCQC          = ModifyCQIn.nest("cq_context", 0x10, CQC)
	ModifyCQInCQUMemOffset = ModifyCQIn.field("cq_umem_offset", 0x50, 0, 64)
	ModifyCQInCQUMemID     = ModifyCQIn.field("cq_umem_id", 0x58, 0, 32)
	ModifyCQInCQUMemValid  = ModifyCQIn.field("cq_umem_valid", 0x5c, 0, 1)
	ModifyCQInPAS          = ModifyCQIn.tail("pas", 0x110, 64)
)

var ModifyCQOut = output("modify_cq", 0x10)
