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
	for _, p := range o.params() {
		text, ok := p.value.(string)
		switch {
		case !p.shown || p.key == "":
		case p.key == "Test with events":
			f.add(p.key, "%q", "Using_"+text)
		case ok:
			f.add(p.key, "%q", text)
		default:
			f.add(p.key, "%d", p.value)
		}
	}
	return f
}

func (o *Options) latencyJSON(r latencyFigures) *fields {
	f := &fields{}
	if !o.fullReport() {
		f.add(choose(o.Duration > 0, "t_avg", "avg_lat"), "%f", r.avg)
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
