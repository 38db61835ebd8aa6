package perftest

import (
	"errors"
	"strings"

	"github.com/goverbs/goverbs/internal/getopt"
)

const (
	bandwidthOnly = "only bandwidth tests have it"
	oneQP         = bandwidthOnly + ": a latency test has one queue pair"
	latencyOnly   = "only latency tests have it"
	eightBytes    = "an atomic has 8 bytes"
	noEvents      = "there are no events in WRITE tests"
	onePort       = "tests of two ports are not supported: run two processes"
	otherMemory   = "memory of other devices is not supported: use uverbs.PD.RegDMABuf"
	noEncryption  = "encryption is not supported"
	rawEthernet   = "it is for " + rawEthernetTests

	rawEthernetTests = "raw Ethernet tests, which are not supported"
)

// rejected are perftest's options that not all tests here have, or none, and why: short and long names, with or without
// an argument. The others would be reported as misspelled.
var rejected = []struct{ arg, why, names string }{
	{"", eightBytes, "a:all"},
	{"size", eightBytes, "s:size"},
	{"", bandwidthOnly, "b:bidirectional N:noPeak report_gbits report-both"},
	{"size", bandwidthOnly, "l:post_list"},
	{"num", oneQP, "q:qp"},
	{"", oneQP, "mr_per_qp"},
	{"num", bandwidthOnly, "Q:cq-mod"},
	{"dep", bandwidthOnly + ": a latency test has one request at a time", "t:tx-depth"},
	{"value", bandwidthOnly, "w:limit_bw y:limit_msgrate"},
	{"", bandwidthOnly + ": in a latency test both send", "reversed"},
	{"", bandwidthOnly + ": use -D in a latency test", "run_infinitely"},
	{"size", "only bandwidth tests that consume receives have it", "recv_post_list"},
	{"", "only the bandwidth tests of WRITE, READ and atomics have it", "perform_warm_up"},
	{"", latencyOnly, "H:report-histogrm U:report-unsorted latency_gap"},
	{"", "a WRITE causes no completion at the peer: use --write_with_imm without -e, or send_lat -e", "e:events"},
	{"vector", noEvents, "X:vector"},
	{"size", "READs and atomics cannot be inline", "I:inline_size"},
	{"num", "only READ and atomic tests have it", "o:outs"},
	{"dep", "READs and atomics consume no receives", "r:rx-depth"},
	{"type", "only atomic tests have it", "A:atomic_type"},
	{"", "only WRITE tests have it", "write_with_imm"},
	{"", "only SEND tests have it", "use-srq g:mcg"},
	{"gid", "only SEND tests have it", "M:MGID"},
	{"file", "write_lat counts its messages in the payload", "payload_file_path"},

	{"", "CPU cycles are not counted: times are in microseconds, without -C too", "C:report-cycles"},
	{"", "not supported: the two ends always agree on the test", "connectionless"},
	{"", onePort, "O:dualport report-per-port"},
	{"", "both ends have to send their version: C's perftest rejects a peer without one since 6.24", "dont_xchg_versions"},
	{"", "only SRD queue pairs have it, which are not supported", "unsolicited_write"},
	{"", "not supported: the test measures accesses to memory", "use-null-mr"},
	{"value", "the port determines the link layer", "force-link"},
	{"value", bandwidthOnly, "rate_limit rate_units rate_limit_type burst_size"},
	{"bytes", "only packet pacing has it, which is for " + rawEthernetTests, "typical_pkt_size"},
	{"file", otherMemory, "mmap mmap-offset use_cuda use_cuda_bus_id use_rocm use_neuron use_hl use_mlu"},
	{"", otherMemory, "use_cuda_dmabuf use_neuron_dmabuf"},
	{"value", noEncryption, "aes_block_size kek_path credentials_path data_enc_keys_number data_enc_key_app_path"},
	{"", noEncryption, "aes_xts encrypt_on_tx sig_before"},
	{"value", "DCIs with streams are not supported", "log_dci_streams log_active_dci_streams"},
	{"value", "only HiSilicon adapters have it", "congest_type"},
	{"", "out-of-order queue pairs are the default where the device has them", "use_ooo"},
	{"limit", rawEthernet, "L:hop_limit"},
	{"value", rawEthernet, "B:source_mac E:dest_mac J:dest_ip j:source_ip K:dest_port k:source_port Y:ethertype " +
		"remote_mac local_mac remote_ip local_ip remote_port local_port flows flows_burst reply_every vlan_pcp"},
	{"", rawEthernet, "Z:server P:client v:mac_fwd G:use_rss tcp raw_ipv6 promiscuous sniffer raw_mcast vlan_en"},
}

// rejectedOptions returns the rejected options that are not among the supported ones of a test, which report why.
func rejectedOptions(supported []getopt.Option) (t []getopt.Option) {
	has := map[string]bool{}
	for _, o := range supported {
		has[o.Long] = true
	}
	for _, r := range rejected {
		for _, name := range strings.Fields(r.names) {
			short, long, both := strings.Cut(name, ":")
			if !both {
				short, long = "\x00", name
			}
			if !has[long] {
				t = append(t, getopt.New(short[0], long, r.arg, "", func(string) error { return errors.New(r.why) }))
			}
		}
	}
	return t
}
