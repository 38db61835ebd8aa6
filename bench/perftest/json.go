package perftest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// fields builds a JSON object with keys in the order of perftest's reports and values
// in its format.
type fields struct{ b strings.Builder }

func (f *fields) add(key, format string, value any) {
	if f.b.Len() > 0 {
		f.b.WriteString(",\n")
	}
	fmt.Fprintf(&f.b, "%q: "+format, key, value)
}

func (o *Options) infoJSON() *fields {
	f := &fields{}
	f.add("test", "%q", o.name("_"))
	if o.Events {
		f.add("Test with events", "%q", fmt.Sprintf("Using_%s_comp%d", o.device, o.Vector))
	}
	f.add("Dual_port", "%q", "OFF")
	f.add("Device", "%q", o.device)
	f.add("Number_of_qps", "%d", o.qpCount())
	f.add("Transport_type", "%q", o.transport())
	f.add("Connection_type", "%q", o.typeName())
	f.add("Using_SRQ", "%q", onOff(o.SRQ))
	f.add("PCIe_relax_order", "%q", onOff(o.relaxed()))
	f.add("ibv_wr_API", "%q", "OFF")
	if o.active() || o.Bidirectional {
		f.add("TX_depth", "%d", o.TxDepth)
	}
	if o.PostList > 1 {
		f.add("Post_List", "%d", o.PostList)
	}
	if o.RecvPostList > 1 {
		f.add("Recv_Post_List", "%d", o.RecvPostList)
	}
	if o.receives() && (!o.active() || o.Bidirectional) {
		f.add("RX_depth", "%d", o.RxDepth)
	}
	if o.Bandwidth {
		f.add("CQ_Moderation", "%d", o.CQMod)
	}
	f.add("Mtu", "%d", o.mtu.Bytes())
	f.add("Link_type", "%q", o.linkName())
	if o.withGID {
		f.add("GID_index", "%d", o.gid.Index)
	}
	if o.fetches() {
		f.add("Outstand_reads", "%d", o.Outs)
	} else {
		f.add("Max_inline_data", "%d", o.Inline)
	}
	f.add("rdma_cm_QPs", "%q", onOff(o.RDMACM))
	f.add("Use_ROCm_memory", "%q", "OFF")
	f.add("Data_ex_method", "%q", o.exchangeMethod())
	if o.RDMACM && o.TOS >= 0 {
		f.add("TOS", "%d", o.TOS)
	}
	return f
}

func (o *Options) latencyJSON(r latencyFigures) *fields {
	f := &fields{}
	switch {
	case !o.fullReport() && o.Duration > 0:
		f.add("t_avg", "%f", r.avg)
		return f
	case !o.fullReport():
		f.add("avg_lat", "%f", r.avg)
		return f
	}
	f.add("MsgSize", "%d", r.size)
	f.add("n_iterations", "%d", r.iters)
	if o.Duration > 0 {
		f.add("t_avg", "%.2f", r.avg)
		f.add("tps_average", "%.2f", r.perSecond)
		o.addCPU(f)
		return f
	}
	f.add("t_min", "%.2f", r.min)
	f.add("t_max", "%.2f", r.max)
	f.add("t_typical", "%.2f", r.typical)
	f.add("t_avg", "%.2f", r.avg)
	f.add("t_stdev", "%.2f", r.stdev)
	f.add("percentile_99", "%.2f", r.percentile99)
	f.add("percentile_99.9", "%.2f", r.percentile999)
	return f
}

func (o *Options) bandwidthJSON(r bwReport) *fields {
	f := &fields{}
	switch o.Output {
	case "bandwidth":
		f.add("bw_avg", "%f", r.avg)
		return f
	case "message_rate":
		f.add("msgRate_avg", "%f", r.rate)
		return f
	}
	digits := "%.2f"
	if o.Gbits && r.avg < 0.1 {
		digits = "%.6f"
	}
	f.add("MsgSize", "%d", r.size)
	f.add("n_iterations", "%d", r.iters)
	f.add("BW_peak", digits, r.peak)
	f.add("BW_average", digits, r.avg)
	f.add("MsgRate", "%.6f", r.rate)
	o.addCPU(f)
	return f
}

func (o *Options) addCPU(f *fields) {
	if o.CPUUtil {
		f.add("CPU_util", "%.2f", o.busy)
	}
}

// checkJSON checks the path of the JSON file before the measurement.
func (o *Options) checkJSON() error {
	if !o.JSON {
		return nil
	}
	if at, err := os.Stat(o.JSONFile); err == nil && at.IsDir() {
		return here("--out_json_file", "%s is a directory: give the name of a file", o.JSONFile)
	}
	if at, err := os.Stat(filepath.Dir(o.JSONFile)); err != nil || !at.IsDir() {
		return here("--out_json_file", "there is no directory %s: create it first", filepath.Dir(o.JSONFile))
	}
	return nil
}

// writeJSON writes the JSON file, if there is one. With -a each size overwrites it, and
// the last one remains.
func (o *Options) writeJSON(results *fields) {
	if !o.JSON {
		return
	}
	text := fmt.Sprintf("{\n\"test_info\": {\n%s\n},\n\"results\": {\n%s\n}\n}\n", o.infoJSON().b.String(),
		results.b.String())
	if err := os.WriteFile(o.JSONFile, []byte(text), 0o600); err != nil && o.outputErr == nil {
		o.outputErr = fmt.Errorf("--out_json_file: %w", err)
	}
}
