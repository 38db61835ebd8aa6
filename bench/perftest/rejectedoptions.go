package perftest

import (
	"errors"
	"strings"

	"github.com/goverbs/goverbs/internal/getopt"
)

// refusals are options that perftest has for this test or another, and this
// program has not. taken are those that it has.
func rejectedOptions(supported []getopt.Option) (t []getopt.Option) {
	has := map[string]bool{}
	for _, o := range supported {
		has[o.Long] = true
	}
	for _, r := range []struct {
		short     byte
		arg, long string
		why       string
	}{
		{'a', "", "all", "an atomic has 8 bytes"},
		{'s', "size", "size", "an atomic has 8 bytes"},
		{'b', "", "bidirectional", "it is of the bandwidth tests"},
		{'l', "size", "post_list", "it is of the bandwidth tests"},
		{'N', "", "noPeak", "it is of the bandwidth tests"},
		{'q', "num", "qp", "it is of the bandwidth tests: a latency test has one queue pair"},
		{'Q', "num", "cq-mod", "it is of the bandwidth tests"},
		{'t', "dep", "tx-depth", "it is of the bandwidth tests: a latency test has one request under way"},
		{'H', "", "report-histogrm", "it is of the latency tests"},
		{'U', "", "report-unsorted", "it is of the latency tests"},
		{'e', "", "events", "a WRITE makes no completion where it arrives: try --write_with_imm without -e, or send_lat -e"},
		{'X', "vector", "vector", "there are no events in WRITE tests"},
		{'I', "size", "inline_size", "what a READ or an atomic fetches cannot be inline"},
		{'o', "num", "outs", "it is of the READ and atomic tests"},
		{'r', "dep", "rx-depth", "READs and atomics take no receives"},
		{'A', "type", "atomic_type", "it is of the atomic tests"},
		{'C', "", "report-cycles", "there is no counter of CPU cycles here: times are in microseconds"},
		{'g', "", "mcg", "multicast tests are left out"},
		{'M', "gid", "MGID", "multicast tests are left out"},
		{'O', "", "dualport", "tests of two ports are left out: run two"},
		{'w', "value", "limit_bw", "it is of the bandwidth tests"},
		{'y', "value", "limit_msgrate", "it is of the bandwidth tests"},
		{'W', "list", "report-counters", "left out: read them under /sys/class/infiniband before and after"},
		{'L', "limit", "hop_limit", "it is of the tests of raw Ethernet, which are left out"},
		{0, "", "dont_xchg_versions", "perftest itself has not talked to such a peer since 6.24"},
		{0, "", "use_hugepages", "memory from 2 MiB on asks for huge pages by itself"},
		{0, "", "latency_gap", "it is of the latency tests"},
		{0, "", "report_gbits", "it is of the bandwidth tests"},
		{0, "", "report-both", "it is of the bandwidth tests"},
		{0, "", "write_with_imm", "it is of the WRITE tests"},
		{0, "", "use-srq", "it is of the SEND tests"},
		{0, "", "mr_per_qp", "it is of the bandwidth tests: a latency test has one queue pair"},
		{0, "", "perform_warm_up", "it is of the bandwidth tests of WRITE, READ and atomics"},
		{0, "", "reversed", "it is of the bandwidth tests: in a latency test both send"},
		{0, "", "run_infinitely", "it is of the bandwidth tests: a latency test takes -D"},
		{0, "file", "payload_file_path", "write_lat counts its messages in the payload"},
		{0, "", "connectionless", "multicast tests are left out"},
		{0, "", "report-per-port", "tests of two ports are left out: run two"},
		{0, "", "unsolicited_write", "it is of SRD queue pairs, which are left out"},
		{0, "", "use-null-mr", "left out: memory that nobody reads measures another thing"},
		{0, "value", "force-link", "the link is what the port says"},
		{0, "size", "recv_post_list", "it is of the bandwidth tests that take receives"},
	} {
		if has[r.long] {
			continue
		}
		t = append(t, getopt.New(r.short, r.long, r.arg, "", func(string) error { return errors.New(r.why) }))
	}
	return append(t, unsupportedOptions(has)...)
}

// leftOut are perftest's other options, to be told from misspelt ones.
func unsupportedOptions(has map[string]bool) (t []getopt.Option) {
	for _, l := range []struct{ arg, why, names string }{
		{"value", "limits of the rate are left out: rdma and tc set the adapter's", "rate_limit rate_units rate_limit_type burst_size typical_pkt_size"},
		{"file", "memory of other devices is left out: uverbs.PD.RegDMABuf takes it", "mmap mmap-offset use_cuda use_cuda_bus_id use_rocm use_neuron use_hl use_mlu"},
		{"", "memory of other devices is left out: uverbs.PD.RegDMABuf takes it", "use_cuda_dmabuf use_neuron_dmabuf"},
		{"value", "encryption is left out", "aes_block_size kek_path credentials_path data_enc_keys_number data_enc_key_app_path"},
		{"", "encryption is left out", "aes_xts encrypt_on_tx sig_before"},
		{"value", "DC queue pairs are left out: choose RC, UC or UD by -c", "log_dci_streams log_active_dci_streams"},
		{"value", "it is of adapters of HiSilicon", "congest_type"},
		{"", "perftest has it for some adapters, and this program does not", "no_ddp use_ooo"},
		{"value", rawEthernet, "source_mac dest_mac dest_ip source_ip dest_port source_port ethertype remote_mac local_mac remote_ip local_ip " +
			"remote_port local_port flows flows_burst reply_every vlan_pcp"},
		{"", rawEthernet, "server client mac_fwd use_rss tcp raw_ipv6 promiscuous sniffer raw_mcast vlan_en"},
	} {
		for _, name := range strings.Fields(l.names) {
			if !has[name] {
				t = append(t, getopt.New(rawShort[name], name, l.arg, "", func(string) error { return errors.New(l.why) }))
			}
		}
	}
	return t
}

const rawEthernet = "it is of the tests of raw Ethernet, which are left out"

// rawShort are short forms of the options of raw Ethernet.
var rawShort = map[string]byte{"source_mac": 'B', "dest_mac": 'E', "dest_ip": 'J', "source_ip": 'j', "dest_port": 'K', "source_port": 'k',
	"ethertype": 'Y', "server": 'Z', "client": 'P', "mac_fwd": 'v', "use_rss": 'G'}
