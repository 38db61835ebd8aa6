//go:build vm

package differential

// A difference is a field in which traces may differ.
type difference struct {
	ignore string // as trace.Options has it
	scene  string // how the names of the only scenes begin that have it; all if empty
	why    string
}

// differences are what the traces of C and Go may differ in. Each has to be seen
// in some scene.
var differences = []difference{
	{ignore: "wqe.unused", why: "where a request has no immediate data, C's builder leaves what the ring had there"},
}

// queries are commands that tell something and change nothing. The libraries ask
// for different things at different times, and the kernel's network device
// asks for its counters.
var queries = []string{
	"command.QUERY_QP", "command.QUERY_ADAPTER", "command.QUERY_NIC_VPORT_CONTEXT", "command.QUERY_HCA_VPORT_CONTEXT", "command.QUERY_HCA_VPORT_GID",
	"command.QUERY_HCA_VPORT_PKEY", "command.QUERY_VPORT_COUNTER", "command.QUERY_Q_COUNTER", "command.ACCESS_REG", "command.MAD_IFC",
}

// chosen are values that the kernel chooses: parts of keys, the pages that it
// finds memory to have, ports of UDP by the numbers of queue pairs.
var chosen = []string{
	"command.CREATE_MKEY.memory_key_mkey_entry.mkey_7_0",
	"command.CREATE_MKEY.translations_octword_actual_size", "command.CREATE_MKEY.memory_key_mkey_entry.translations_octword_size",
	"command.CREATE_MKEY.memory_key_mkey_entry.log_page_size",
	"command.CREATE_QP.qpc.log_page_size", "command.CREATE_QP.qpc.page_offset",
	"command.CREATE_CQ.cq_context.log_page_size", "command.CREATE_CQ.cq_context.page_offset",
	"command.MODIFY_CQ.cq_context.log_page_size", "command.MODIFY_CQ.cq_context.page_offset",
	"command.CREATE_RMP.ctx.wq.log_wq_pg_sz", "command.CREATE_RMP.ctx.wq.page_offset",
	"command.CREATE_XRC_SRQ.xrc_srq_context_entry.log_page_size", "command.CREATE_XRC_SRQ.xrc_srq_context_entry.page_offset",
	"command.CREATE_SQ.ctx.wq.log_wq_pg_sz", "command.CREATE_SQ.ctx.wq.page_offset", "command.CREATE_RQ.ctx.wq.log_wq_pg_sz", "command.CREATE_RQ.ctx.wq.page_offset",
	"command.INIT2RTR_QP.qpc.primary_address_path.udp_sport",
}
