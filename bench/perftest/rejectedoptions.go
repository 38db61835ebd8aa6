package perftest

import (
	"errors"
	"strings"

	"github.com/goverbs/goverbs/internal/getopt"
)

// rejectedOptions returns perftest's options that this test does not have, which report
// why they are rejected.
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
		{'b', "", "bidirectional", "only bandwidth tests have it"},
		{'l', "size", "post_list", "only bandwidth tests have it"},
		{'N', "", "noPeak", "only bandwidth tests have it"},
		{'q', "num", "qp", "only bandwidth tests have it: a latency test has one queue pair"},
		{'Q', "num", "cq-mod", "only bandwidth tests have it"},
		{'t', "dep", "tx-depth", "only bandwidth tests have it: a latency test has one request at a time"},
		{'H', "", "report-histogrm", "only latency tests have it"},
		{'U', "", "report-unsorted", "only latency tests have it"},
		{'e', "", "events", "a WRITE causes no completion at the peer: use --write_with_imm without -e, or send_lat -e"},
		{'X', "vector", "vector", "there are no events in WRITE tests"},
		{'I', "size", "inline_size", "READs and atomics cannot be inline"},
		{'o', "num", "outs", "only READ and atomic tests have it"},
		{'r', "dep", "rx-depth", "READs and atomics consume no receives"},
		{'A', "type", "atomic_type", "only atomic tests have it"},
		{'C', "", "report-cycles", "CPU cycles are not counted: times are in microseconds"},
		{'g', "", "mcg", "multicast tests are not supported"},
		{'M', "gid", "MGID", "multicast tests are not supported"},
		{'O', "", "dualport", "tests of two ports are not supported: run two processes"},
		{'w', "value", "limit_bw", "only bandwidth tests have it"},
		{'y', "value", "limit_msgrate", "only bandwidth tests have it"},
		{'W', "list", "report-counters", "not supported: read them in /sys/class/infiniband before and after the run"},
		{'L', "limit", "hop_limit", "only raw Ethernet tests have it, which are not supported"},
		{0, "", "dont_xchg_versions", "perftest has rejected such peers since 6.24"},
		{0, "", "use_hugepages", "memory of 2 MiB or more uses huge pages if possible"},
		{0, "", "latency_gap", "only latency tests have it"},
		{0, "", "report_gbits", "only bandwidth tests have it"},
		{0, "", "report-both", "only bandwidth tests have it"},
		{0, "", "write_with_imm", "only WRITE tests have it"},
		{0, "", "use-srq", "only SEND tests have it"},
		{0, "", "mr_per_qp", "only bandwidth tests have it: a latency test has one queue pair"},
		{0, "", "perform_warm_up", "only the bandwidth tests of WRITE, READ and atomics have it"},
		{0, "", "reversed", "only bandwidth tests have it: in a latency test both send"},
		{0, "", "run_infinitely", "only bandwidth tests have it: use -D in a latency test"},
		{0, "file", "payload_file_path", "write_lat counts its messages in the payload"},
		{0, "", "connectionless", "multicast tests are not supported"},
		{0, "", "report-per-port", "tests of two ports are not supported: run two processes"},
		{0, "", "unsolicited_write", "only SRD queue pairs have it, which are not supported"},
		{0, "", "use-null-mr", "not supported: the test measures accesses to memory"},
		{0, "value", "force-link", "the port determines the link layer"},
		{0, "size", "recv_post_list", "only bandwidth tests that consume receives have it"},
	} {
		if has[r.long] {
			continue
		}
		t = append(t, getopt.New(r.short, r.long, r.arg, "", func(string) error { return errors.New(r.why) }))
	}
	return append(t, unsupportedOptions(has)...)
}

// unsupportedOptions returns the options of perftest that no test here has, so that
// they are not reported as misspelled.
func unsupportedOptions(has map[string]bool) (t []getopt.Option) {
	for _, l := range []struct{ arg, why, names string }{
		{"value", "rate limits are not supported: set the adapter's with rdma and tc",
			"rate_limit rate_units rate_limit_type burst_size typical_pkt_size"},
		{"file", "memory of other devices is not supported: use uverbs.PD.RegDMABuf",
			"mmap mmap-offset use_cuda use_cuda_bus_id use_rocm use_neuron use_hl use_mlu"},
		{"", "memory of other devices is not supported: use uverbs.PD.RegDMABuf", "use_cuda_dmabuf use_neuron_dmabuf"},
		{"value", "encryption is not supported",
			"aes_block_size kek_path credentials_path data_enc_keys_number data_enc_key_app_path"},
		{"", "encryption is not supported", "aes_xts encrypt_on_tx sig_before"},
		{"value", "DCIs with streams are not supported", "log_dci_streams log_active_dci_streams"},
		{"value", "only HiSilicon adapters have it", "congest_type"},
		{"", "out-of-order queue pairs are the default where the device has them", "use_ooo"},
		{"value", rawEthernet, "source_mac dest_mac dest_ip source_ip dest_port source_port ethertype remote_mac local_mac " +
			"remote_ip local_ip " +
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

const rawEthernet = "only raw Ethernet tests have it, which are not supported"

// rawShort maps long options of raw Ethernet tests to their short forms.
var rawShort = map[string]byte{"source_mac": 'B', "dest_mac": 'E', "dest_ip": 'J', "source_ip": 'j', "dest_port": 'K',
	"source_port": 'k',
	"ethertype":   'Y', "server": 'Z', "client": 'P', "mac_fwd": 'v', "use_rss": 'G'}
