package perftest

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/getopt"
)

// ErrHelp is returned by [Parse] if the command line requests help: see [Usage].
var ErrHelp = getopt.ErrHelp

// Parse parses the command line of a test: perftest's options, and for a client the
// server's host. It returns an error for options that contradict each other. Options
// that the device or the peer does not support are errors of [Run].
func Parse(t Test, args []string) (*Options, error) {
	o := Defaults(t)
	o.given = map[byte]bool{}
	operands, err := getopt.Parse(args, o.table())
	if err != nil {
		return nil, err
	}
	if len(operands) > 1 {
		return nil, fmt.Errorf("the only argument is the server's host, and there are %d: %s", len(operands),
			strings.Join(operands, " "))
	}
	if len(operands) == 1 {
		o.Server = operands[0]
	}
	if o.ShowVersion {
		return o, nil
	}
	normalized := *o
	return o, normalized.normalize()
}

// table returns the options of the test, including those that are rejected.
func (o *Options) table() []getopt.Option {
	t := o.supported()
	for i := range t {
		t[i].Set = o.once(t[i])
	}
	return append(t, rejectedOptions(t)...)
}

// supported returns the options that the test has.
func (o *Options) supported() []getopt.Option {
	return slices.Concat(o.common(), choose(o.Bandwidth, o.bandwidthTable, o.latencyTable)(), o.verbTable())
}

// once returns a setter that rejects an option that is given twice, as perftest does.
func (o *Options) once(opt getopt.Option) func(string) error {
	seen := false
	return func(value string) error {
		if seen {
			return errors.New("it is given twice")
		}
		seen = true
		if opt.Short != 0 {
			o.given[opt.Short] = true
		}
		return opt.Set(value)
	}
}

func (o *Options) common() []getopt.Option {
	n, i, f, s := getopt.New, getopt.Int[int], getopt.Flag, getopt.String
	return []getopt.Option{
		n('c', "connection", "RC/UC/UD/DC", "Connection type (default RC)", o.setType),
		n('d', "ib-dev", "dev", "Use IB device <dev> (default first device found)", s(&o.Device)),
		n('D', "duration", "seconds", "Run test for a customized period of seconds", i(&o.Duration, 1, 1<<31-1)),
		n('f', "margin", "seconds", "Measure results within margins (default a quarter of the duration)",
			i(&o.Margin, 0, 1<<31-1)),
		n('F', "CPU-freq", "", "Accepted for compatibility: the CPU's frequency does not matter", f(new(bool))),
		n('i', "ib-port", "port", "Use port <port> of IB device (default 1)", i(&o.IBPort, 1, 255)),
		n('m', "mtu", "mtu", "MTU size: 256 - 4096 (default port mtu)", i(&o.MTU, 256, 4096)),
		n('n', "iters", "iters", fmt.Sprintf("Number of exchanges (at least %d, default %d)", minIters, o.Iters),
			i(&o.Iters, minIters, 1<<32)),
		n('p', "port", "port", fmt.Sprintf("Listen on/connect to port <port> (default %d)", defaultPort),
			i(&o.Port, 1, 65535)),
		n('R', "rdma_cm", "", "Connect QPs with rdma_cm and run test on those QPs", f(&o.RDMACM)),
		n('S', "sl", "sl", "SL (default 0)", i(&o.SL, 0, 15)),
		n('T', "tos", "tos", "Type of service of rdma_cm QPs, only with -R (default off)", i(&o.TOS, 0, 255)),
		n('u', "qp-timeout", "timeout", "QP timeout, 4 usec * 2^timeout (default 14)", i(&o.QPTimeout, 0, 31)),
		n('V', "version", "", "Display version number", f(&o.ShowVersion)),
		n('W', "report-counters", "list of counter names", "Report performance counter change (example: "+
			"\"counters/port_xmit_data,hw_counters/out_of_buffer\")", o.setCounters),
		n('x', "gid-index", "index", "Test uses GID with GID index", i(&o.GIDIndex, 0, 255)),
		n('z', "comm_rdma_cm", "", "Communicate with rdma_cm module to exchange data - use regular QPs", f(&o.CommCM)),
		n(0, "out_json", "", "Save the report in a json file", f(&o.JSON)),
		n(0, "out_json_file", "file", "Name of the report json file (default "+defaultJSON+" in the working directory)",
			s(&o.JSONFile)),
		n(0, "no_lock", "", "Use queues without locks, for one goroutine", f(&o.NoLock)),
		n(0, "disable_pcie_relaxed", "", "Disable PCIe relaxed ordering", f(&o.StrictOrder)),
		n(0, "ipv6", "", "Use IPv6 GID (default IPv4)", f(&o.IPv6)),
		n(0, "ipv6-addr", "", "Use IPv6 address for parameters negotiation (default IPv4)", f(&o.IPv6Addr)),
		n(0, "bind_source_ip", "address", "Source IP of the interface used for connection establishment", o.setSource),
		n(0, "output", "units", "Set verbosity output level: bandwidth, message_rate, latency", o.setOutput),
		n(0, "use_old_post_send", "", "Requests are always posted that way; like --no_ddp", f(&o.InOrder)),
		n(0, "no_ddp", "", "Do not use out of order data placement, which RC and DC have by default on mlx5", f(&o.InOrder)),
		n(0, "pkey_index", "index", "PKey index to use for QP", i(&o.PKeyIndex, 0, 65535)),
		n(0, "retry_count", "value", "Set retry count value in rdma_cm mode", i(&o.RetryCount, 0, 7)),
		n(0, "tclass", "value", "Set the Traffic Class in GRH (if GRH is in use)", i(&o.TrafficClass, 0, 255)),
		n(0, "flow_label", "fl0,fl1,...", "Set the flow_label in GRH for each qp in turn (if GRH is in use)",
			o.setFlowLabels),
		n(0, "dlid", "lid", "Set a Destination LID instead of getting it from the other side", i(&o.DLID, 1, 0xffff)),
		n(0, "odp", "", "Use On Demand Paging instead of Memory Registration", f(&o.OnDemand)),
		n(0, "use_hugepages", "", "Use huge pages, which /proc/sys/vm/nr_hugepages reserves", f(&o.HugePages)),
		n(0, "cpu_util", "", "Show CPU Utilization in report, valid only in Duration mode", f(&o.CPUUtil)),
		n(0, "wait_destroy", "seconds", "Wait <seconds> before destroying allocated resources",
			i(&o.WaitDestroy, 0, 1<<31-1)),
	}
}

func (o *Options) bandwidthTable() []getopt.Option {
	n, i, f := getopt.New, getopt.Int[int], getopt.Flag
	return append(o.rateTable(),
		n('b', "bidirectional", "", "Measure bidirectional bandwidth (default unidirectional)", f(&o.Bidirectional)),
		n('l', "post_list", "size", "Post list of send WQEs of <size> size (instead of single post)",
			i(&o.PostList, 1, maxTxDepth)),
		n('N', "noPeak", "", "Cancel peak-bw calculation (default with peak up to iters=20000)", f(&o.NoPeak)),
		n('q', "qp", "num", "Num of qp's (default 1)", i(&o.QPs, 1, maxQPs)),
		n('Q', "cq-mod", "num", "Generate Cqe only after <num> completion", i(&o.CQMod, 1, maxCQMod)),
		n('t', "tx-depth", "dep", fmt.Sprintf("Size of tx queue (default %d)", o.TxDepth), i(&o.TxDepth, 1, maxTxDepth)),
		n('w', "limit_bw", "value", "Set verifier limit for bandwidth", setFloat(&o.LimitBW)),
		n('y', "limit_msgrate", "value", "Set verifier limit for Msg Rate", setFloat(&o.LimitRate)),
		n(0, "mr_per_qp", "", "Create memory region for each qp", f(&o.MRPerQP)),
		n(0, "perform_warm_up", "", "Fill the send queues once before anything is measured; in WRITE, READ and atomic tests",
			f(&o.WarmUp)),
		n(0, "reversed", "", "Reverse traffic direction - Server send to client", f(&o.Reversed)),
		n(0, "run_infinitely", "", fmt.Sprintf("Run test forever, print results every <duration> seconds (default %d)",
			defaultPeriod), f(&o.Infinite)),
		n(0, "report-both", "", "Report RX & TX results separately on Bidirectional BW tests", f(&o.ReportBoth)),
		n(0, "report_gbits", "", "Report Max/Average BW of test in Gbit/sec (instead of MiB/sec)", f(&o.Gbits)))
}

func (o *Options) latencyTable() []getopt.Option {
	n, i, f := getopt.New, getopt.Int[int], getopt.Flag
	return []getopt.Option{
		n('H', "report-histogrm", "", "Print out all results (default print summary only)", f(&o.Histogram)),
		n('U', "report-unsorted", "", "Print out unsorted results (default sorted)", f(&o.Unsorted)),
		n(0, "latency_gap", "usec", "Delay time between each post send", i(&o.LatencyGap, 0, 1<<31-1)),
	}
}

func (o *Options) verbTable() (t []getopt.Option) {
	n, i, f := getopt.New, getopt.Int[int], getopt.Flag
	if o.Verb != Atomic {
		t = append(t, n('a', "all", "", "Run sizes from 2 till 2^23", f(&o.All)),
			n('s', "size", "size", fmt.Sprintf("Size of message to exchange (default %d)", o.Size), o.setSize))
	} else {
		t = append(t, n('A', "atomic_type", "type", "CMP_AND_SWAP or FETCH_AND_ADD (default FETCH_AND_ADD)", o.setAtomic))
	}
	if o.fetches() {
		t = append(t, n('o', "outs", "num", "Num of outstanding read/atom (default max of device)", i(&o.Outs, 0, 255)))
	} else {
		t = append(t, n('I', "inline_size", "size", "Max size of message to be sent in inline", i(&o.Inline, 0, maxInline)))
	}
	if o.Verb != Write {
		t = append(t, n('e', "events", "", "Sleep on CQ events (default poll)", f(&o.Events)),
			n('X', "vector", "vector", "Set <completion vector> used for events", i(&o.Vector, 0, 2048)))
	} else {
		t = append(t, n(0, "write_with_imm", "", "Use write-with-immediate verb instead of write", o.setImm))
	}
	if o.Verb == Send {
		t = append(t,
			n('g', "mcg", "", "Send messages to multicast group with 1 QP attached to it, on Ethernet", f(&o.Multicast)),
			n('M', "MGID", "multicast_gid", "In multicast, uses <multicast_gid> as the group MGID", o.setMGID),
			n(0, "use-srq", "", "Use a Shared Receive Queue. --rx-depth controls max-wr size of the SRQ", f(&o.SRQ)))
	}
	if o.Bandwidth || o.Verb != Write {
		t = append(t, n(0, "payload_file_path", "file", "Set the payload from a text file of words: 0xaaaaaaaa, "+
			"0xbbbbbbbb, ...", o.setPayload))
	}
	if o.receives() || o.Verb == Write {
		t = append(t, n('r', "rx-depth", "dep", fmt.Sprintf("Rx queue size (default %d)", defaultRxDepth),
			i(&o.RxDepth, 1, maxRxDepth)))
		if o.Bandwidth {
			t = append(t, n(0, "recv_post_list", "size", "Post list of receive WQEs of <size> size (instead of single post)",
				i(&o.RecvPostList, 1, maxRxDepth)))
		}
	}
	return t
}

// Usage returns the help text of a test, with a line for each option.
func Usage(t Test) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %v            start a server and wait for connection\n"+
		"  %v <host>     connect to server at <host>\n\nOptions:\n", t, t)
	o := Defaults(t)
	_ = getopt.Usage(&b, o.supported()) // writing to a Builder does not fail
	return b.String()
}

func (o *Options) setType(value string) error {
	t, ok := connections[value]
	switch {
	case value == "XRC" || value == "SRD":
		return fmt.Errorf("%s is not supported: choose RC, UC, UD or DC", value)
	case !ok:
		return fmt.Errorf("%q is not one of RC, UC, UD and DC", value)
	}
	o.Type = t
	return nil
}

// setSize parses a number of bytes, or of KiB or MiB with the suffix K or M.
func (o *Options) setSize(value string) error {
	digits, factor := value, int64(1)
	switch {
	case strings.HasSuffix(value, "K"):
		digits, factor = value[:len(value)-1], 1<<10
	case strings.HasSuffix(value, "M"):
		digits, factor = value[:len(value)-1], 1<<20
	}
	n, err := strconv.ParseInt(digits, 0, 64)
	if err != nil || n < 1 || n > maxLength/factor {
		return fmt.Errorf("%q is not a number of bytes from 1 to %d; the suffixes K and M mean 1024 and 1048576", value,
			maxLength)
	}
	o.Size = int(n * factor)
	return nil
}

func (o *Options) setAtomic(value string) error {
	if value != "CMP_AND_SWAP" && value != "FETCH_AND_ADD" {
		return fmt.Errorf("%q is not one of CMP_AND_SWAP and FETCH_AND_ADD", value)
	}
	o.CompareSwap = value == "CMP_AND_SWAP"
	return nil
}

func (o *Options) setImm(string) error {
	o.Verb = WriteImm
	return nil
}

func (o *Options) setSource(value string) error {
	if _, err := netip.ParseAddr(value); err != nil {
		return err
	}
	o.SourceIP = value
	return nil
}

func (o *Options) setOutput(value string) error {
	allowed := []string{"latency"}
	if o.Bandwidth {
		allowed = []string{"bandwidth", "message_rate"}
	}
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("%q is not one that %v has: %s", value, o.Test, strings.Join(allowed, ", "))
	}
	o.Output = value
	return nil
}

func setFloat(v *float64) func(string) error {
	return func(value string) error {
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || !(f >= 0) || math.IsInf(f, 0) { // also rejects NaN
			return fmt.Errorf("%q is not a number of at least 0", value)
		}
		*v = f
		return nil
	}
}

// setFlowLabels parses flow labels separated by commas.
func (o *Options) setFlowLabels(value string) error {
	for field := range strings.SplitSeq(value, ",") {
		v, err := strconv.ParseUint(field, 0, 20)
		if err != nil {
			return fmt.Errorf("%q is not a flow label, a number of at most 20 bits", field)
		}
		o.FlowLabels = append(o.FlowLabels, int(v))
	}
	return nil
}

// setPayload reads a file of words such as 0x01020304, separated by commas or white
// space. Words are little-endian in the message.
func (o *Options) setPayload(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var bytes []byte
	for field := range strings.FieldsFuncSeq(string(text),
		func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
		digits, found := strings.CutPrefix(field, "0x")
		word, err := strconv.ParseUint(digits, 16, 32)
		if !found || len(digits) != 8 || err != nil {
			return fmt.Errorf("%s: %q is not a word of eight hexadecimal digits such as 0x01020304", file, field)
		}
		bytes = append(bytes, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
	}
	if len(bytes) == 0 {
		return fmt.Errorf("%s contains no words", file)
	}
	o.payload = bytes
	return nil
}
