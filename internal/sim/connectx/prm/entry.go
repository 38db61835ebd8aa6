package prm

// An entry of the command queue.
var (
	CmdEntry              = layout("cmd_queue_entry", 0x40)
	CmdEntryType          = CmdEntry.field("type", 0x0, 0, 8)
	CmdEntryInputLength   = CmdEntry.field("input_length", 0x4, 0, 32)
	CmdEntryInputMailbox  = CmdEntry.field("input_mailbox_pointer", 0x8, 0, 64)
	CmdEntryInput         = CmdEntry.field("command_input_inline_data", 0x10, 0, 128)
	CmdEntryOutput        = CmdEntry.field("command_output_inline_data", 0x20, 0, 128)
	CmdEntryOutputMailbox = CmdEntry.field("output_mailbox_pointer", 0x30, 0, 64)
	CmdEntryOutputLength  = CmdEntry.field("output_length", 0x38, 0, 32)
	CmdEntryToken         = CmdEntry.field("token", 0x3c, 0, 8)
	CmdEntrySignature     = CmdEntry.field("signature", 0x3d, 0, 8)
	CmdEntryStatus        = CmdEntry.field("status", 0x3f, 0, 7)
	CmdEntryOwnership     = CmdEntry.field("ownership", 0x3f, 7, 1)
)

// A mailbox: a block of a command's input or output after its first 16 bytes.
var (
	Mailbox              = layout("cmd_if_box", 0x240)
	MailboxData          = Mailbox.field("mailbox_data", 0x0, 0, 4096)
	MailboxNext          = Mailbox.field("next_pointer", 0x230, 0, 64)
	MailboxBlockNumber   = Mailbox.field("block_number", 0x238, 0, 32)
	MailboxToken         = Mailbox.field("token", 0x23d, 0, 8)
	MailboxCtrlSignature = Mailbox.field("ctrl_signature", 0x23e, 0, 8)
	MailboxSignature     = Mailbox.field("signature", 0x23f, 0, 8)
)

// An entry of an event queue. Its data depends on the type.
var (
	EQE          = layout("eqe", 0x40)
	EQEType      = EQE.field("event_type", 0x1, 0, 8)
	EQESubType   = EQE.field("event_sub_type", 0x3, 0, 8)
	EQEData      = EQE.field("event_data", 0x20, 0, 224)
	EQESignature = EQE.field("signature", 0x3e, 0, 8)
	EQEOwner     = EQE.field("owner", 0x3f, 7, 1)

	EQECommandVector = EQE.alias("command_completion_vector", 0x20, 0, 32) // type 0x0a
	EQECQN           = EQE.alias("completion.cqn", 0x38, 8, 24)            // 0x00
	EQEQPN           = EQE.alias("qp_srq.qpn_rqn_sqn", 0x38, 8, 24)        // 0x01, 0x02, 0x03, 0x05, 0x07, 0x10 to 0x14
	EQEQueueType     = EQE.alias("qp_srq.type", 0x37, 0, 8)                // of these: 0 QP, 1 RQ, 2 SQ
	EQEErrorCQN      = EQE.alias("cq_error.cqn", 0x20, 8, 24)              // 0x04
	EQEErrorSyndrome = EQE.alias("cq_error.syndrome", 0x2b, 0, 8)          // 0x04
	EQEPort          = EQE.alias("port_change.port_num", 0x28, 0, 4)       // 0x09
	// Page faults, 0x0c: of a WQE (sub-type 0), and of a peer's access (1).
	EQEFaultCommitted = EQE.alias("page_fault.bytes_committed", 0x20, 0, 32)
	EQEFaultWQEIndex  = EQE.alias("page_fault.wqe_index", 0x26, 0, 16)
	EQEFaultRKey      = EQE.alias("page_fault.r_key", 0x24, 0, 32)
	EQEFaultLength    = EQE.alias("page_fault.packet_length", 0x2a, 0, 16)
	EQEFaultWQEToken  = EQE.alias("page_fault.wqe_token", 0x2c, 0, 32)
	EQEFaultOpLength  = EQE.alias("page_fault.rdma_op_len", 0x2c, 0, 32)
	EQEFaultVA        = EQE.alias("page_fault.rdma_va", 0x30, 0, 64)
	EQEFaultType      = EQE.alias("page_fault.type", 0x38, 5, 3)
	EQEFaultNumber    = EQE.alias("page_fault.wq_number", 0x39, 0, 24) // of the WQE's queue, or the token

	EQENumPages   = EQE.alias("page_request.num_pages", 0x24, 0, 32)   // 0x0b
	EQEFunctionID = EQE.alias("page_request.function_id", 0x22, 0, 16) // 0x0b
)

// Doorbells of event queues, at 0x40 (arms the queue) and 0x48 of a UAR page.
var (
	EQDoorbell              = layout("eq_doorbell", 0x4)
	EQDoorbellEQN           = EQDoorbell.field("eqn", 0x0, 0, 8)
	EQDoorbellConsumerIndex = EQDoorbell.field("consumer_counter", 0x1, 0, 24)
)
