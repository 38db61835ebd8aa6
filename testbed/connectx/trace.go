package connectx

import (
	"strings"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
)

func plain(name string, v int) trace.Field { return trace.Num(name, v) }

// traceCommand emits a command with its nonzero fields.
func (d *Device) traceCommand(c *command, opcode uint16, in, out []byte, err error) {
	t := d.config.Tracer
	if !t.On() {
		return
	}
	fields := []trace.Field{trace.Hex("opcode", opcode)}
	if c == nil {
		fields = append(fields, trace.Bytes("in", in[:min(len(in), 64)]))
	} else {
		fields = append(fields, trace.Text("name", c.name))
		fields = appendFields(fields, "", c.in, in)
	}
	if err != nil {
		fields = append(fields, trace.Text("error", err.Error()))
	}
	if c != nil {
		fields = appendFields(fields, "out.", c.out, out)
	}
	t.Emit("command", fields...)
}

func (d *Device) traceEvent(eq *eventQueue, event []byte) {
	t := d.config.Tracer
	if !t.On() {
		return
	}
	t.Emit("eqe", trace.Object("eqn", "eq", eq.number), trace.Hex("type", prm.EQEType.Get(event)),
		trace.Hex("sub_type", prm.EQESubType.Get(event)), trace.Bytes("data", prm.EQEData.Bytes(event)))
}

// appendFields appends the nonzero fields of a layout. Fields that are not
// numbers, such as pages of capabilities, are omitted.
func appendFields(fields []trace.Field, prefix string, l *prm.Layout, b []byte) []trace.Field {
	l.Fields(func(f prm.Field) bool {
		if f.Width > 64 || f.Name == prm.CmdOpcode.Name && prefix == "" {
			return true
		}
		if v := f.Get(b); v != 0 {
			fields = append(fields, trace.Field{Name: prefix + f.Name, Class: classOf(f.Name), Value: v})
		}
		return true
	})
	return fields
}

// classOf returns the class of a field's value, by the last part of its name.
func classOf(name string) trace.Class {
	return classes[name[strings.LastIndexByte(name, '.')+1:]]
}

var classes = map[string]trace.Class{
	"uid": "user_context", "destroyed_uid": "user_context",
	"umem_id": "umem", "cq_umem_id": "umem", "wq_umem_id": "umem", "dbr_umem_id": "umem", "mkey_umem_id": "umem",
	"pd": "pd", "xrcd": "xrcd", "uar": "uar", "uar_page": "uar", "transport_domain": "td", "counter_set_id": "counter",
	"eq_number": "eq", "c_eqn": "eq", "c_eqn_or_apu_element": "eq",
	"cqn": "cq", "cqn_snd": "cq", "cqn_rcv": "cq",
	"qpn": "qp", "input_qpn": "qp", "remote_qpn": "qp", "deth_sqpn": "qp", "underlay_qpn": "qp",
	"rmpn": "srq", "xrc_srqn": "srq", "srqn_rmpn_xrqn": "srq", "srqn_xrqn": "srq",
	"dctn": "qp", "dc_access_key": trace.HexNumber,
	"sqn": "qp", "rqn": "qp", "inline_rqn": "qp", "tirn": "tir", "tisn": "tis", "tis_num_0": "tis", "rqtn": "rqt",
	"indirect_table": "rqt",
	"table_id":       "flow_table", "table_miss_id": "flow_table", "group_id": "flow_group",
	"mkey_index": "mkey", "user_index": "user", "mkey_7_0": trace.HexNumber,
	"dbr_addr": trace.ClassAddress, "start_addr": trace.ClassAddress,
	"field_select": trace.HexNumber, "opt_param_mask": trace.HexNumber, "event_bitmask": trace.HexNumber,
	"syndrome": trace.HexNumber, "system_image_guid": trace.HexNumber, "port_guid": trace.HexNumber,
	"node_guid": trace.HexNumber,
}
