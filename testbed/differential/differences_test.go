//go:build vm

package differential

// A difference is a field in which the traces may differ.
type difference struct {
	ignore string // as in trace.Options
	scene  string // prefix of the names of the scenes that have it; all if empty
	why    string
}

// differences are the permitted differences between the traces of C and Go.
// Each must occur in some scene.
var differences = []difference{
	{ignore: "command.CREATE_QP.qpc.cs_res", scene: "device memory",
		why: "while a context has memory that only the device can write, no message of Go's arrives in a completion"},
	{ignore: "wqe.unused", why: "if a request has no immediate data, C's builder does not write the field"},
}

// queries are commands without effect. The libraries issue different ones at
// different times, and the kernel's network device queries its counters.
var queries = []string{
	"command.QUERY_QP", "command.QUERY_ADAPTER", "command.QUERY_HCA_CAP", "command.QUERY_NIC_VPORT_CONTEXT",
	"command.QUERY_HCA_VPORT_CONTEXT",
	"command.QUERY_HCA_VPORT_GID",
	"command.QUERY_HCA_VPORT_PKEY", "command.QUERY_VPORT_COUNTER", "command.QUERY_Q_COUNTER", "command.ACCESS_REG",
	"command.MAD_IFC",
}

// chosen are values chosen by the kernel: parts of keys, page sizes of memory,
// UDP ports derived from QP numbers, ports of a LAG in turn.
var chosen = []string{
	"command.CREATE_MKEY.memory_key_mkey_entry.mkey_7_0",
	"command.CREATE_MKEY.translations_octword_actual_size",
	"command.CREATE_MKEY.memory_key_mkey_entry.translations_octword_size",
	"command.CREATE_MKEY.memory_key_mkey_entry.log_page_size",
	"command.CREATE_QP.qpc.log_page_size", "command.CREATE_QP.qpc.page_offset",
	"command.CREATE_CQ.cq_context.log_page_size", "command.CREATE_CQ.cq_context.page_offset",
	"command.MODIFY_CQ.cq_context.log_page_size", "command.MODIFY_CQ.cq_context.page_offset",
	"command.CREATE_RMP.ctx.wq.log_wq_pg_sz", "command.CREATE_RMP.ctx.wq.page_offset",
	"command.CREATE_XRC_SRQ.xrc_srq_context_entry.log_page_size",
	"command.CREATE_XRC_SRQ.xrc_srq_context_entry.page_offset",
	"command.CREATE_SQ.ctx.wq.log_wq_pg_sz", "command.CREATE_SQ.ctx.wq.page_offset",
	"command.CREATE_RQ.ctx.wq.log_wq_pg_sz", "command.CREATE_RQ.ctx.wq.page_offset",
	"command.INIT2RTR_QP.qpc.primary_address_path.udp_sport",
	"command.RST2INIT_QP.qpc.lag_tx_port_affinity", "command.MODIFY_TIS.ctx.lag_tx_port_affinity",
}
