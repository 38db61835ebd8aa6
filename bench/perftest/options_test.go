package perftest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/uverbs"

	"github.com/goverbs/goverbs/internal/getopt"
)

// longOptions lists the long options of perftest 25.01, including those that only some builds
// have.
const longOptions = `port ib-dev ib-port mtu size iters tx-depth qp-timeout sl gid-index all CPU-freq connection qp
events vector inline_size outs mcg comm_rdma_cm rdma_cm tos hop_limit MGID rx-depth bidirectional cq-mod noPeak
version report-cycles report-histogrm report-unsorted atomic_type dualport post_list duration margin source_mac
dest_mac dest_ip source_ip dest_port source_port ethertype limit_bw limit_msgrate server client mac_fwd use_rss
report-counters force-link remote_mac local_mac remote_ip local_ip remote_port local_port run_infinitely report_gbits
use-srq no_lock use-null-mr report-both reversed pkey_index tcp burst_size typical_pkt_size rate_limit rate_limit_type
rate_units output cpu_util out_json out_json_file latency_gap flow_label retry_count dont_xchg_versions
payload_file_path use_cuda use_cuda_bus_id use_cuda_dmabuf use_rocm use_neuron use_neuron_dmabuf use_hl use_mlu mmap
mmap-offset ipv6 ipv6-addr raw_ipv6 report-per-port odp use_hugepages use_old_post_send promiscuous sniffer raw_mcast
mr_per_qp dlid tclass wait_destroy flows flows_burst reply_every perform_warm_up vlan_en vlan_pcp recv_post_list
aes_xts encrypt_on_tx sig_before aes_block_size kek_path credentials_path data_enc_keys_number data_enc_key_app_path
log_dci_streams log_active_dci_streams disable_pcie_relaxed use_ooo congest_type bind_source_ip write_with_imm
unsolicited_write connectionless no_ddp`

// Each test has each of perftest's options once, if only to reject it, and no other
// option.
func TestAllOptions(t *testing.T) {
	for _, test := range Tests {
		table := Defaults(test).table()
		var short []byte
		for _, o := range table {
			if o.Short != 0 && slices.Contains(short, o.Short) {
				t.Errorf("%v: two options -%c", test, o.Short)
			}
			short = append(short, o.Short)
		}
		for _, name := range strings.Fields(longOptions) {
			n := 0
			for _, o := range table {
				if o.Long == name {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%v has --%s %d times", test, name, n)
			}
		}
		if known := strings.Fields(longOptions); slices.ContainsFunc(table,
			func(o getopt.Option) bool { return !slices.Contains(known, o.Long) }) {
			t.Errorf("%v has an option that perftest has not", test)
		}
	}
}

func TestInfinite(t *testing.T) {
	o := normalized(t, "write_bw", "--run_infinitely", "-b")
	if o.Duration != defaultPeriod || o.timed() || !o.NoPeak || o.progress() != nil || o.TxDepth != 128 {
		t.Errorf("%+v", o)
	}
	var out strings.Builder
	o = normalized(t, "write_bw", "--run_infinitely", "-D", "1", "-s", "64", "host")
	o.out = &out
	b := &bandwidthRun{endpoint: &endpoint{o: o, size: 64}, completed: 500, began: now() - int64(time.Second)/2}
	if err := b.period(); err != nil || out.Len() > 0 {
		t.Errorf("%v, before the time: %s", err, &out)
	}
	b.began -= int64(time.Second)
	if err := b.period(); err != nil || !strings.HasPrefix(out.String(), " 64         500              0.00 ") {
		t.Errorf("%v: %q", err, &out)
	}
	b.completed += 7
	if b.ended = now(); b.report().iters != 7 {
		t.Errorf("what was reported is reported again: %+v", b.report())
	}
}

func TestPayload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "words")
	for text, want := range map[string]string{"0x01020304,0x0a0b0c0d": "\x04\x03\x02\x01\x0d\x0c\x0b\x0a",
		"0x01020304, 0x05060708\n": "\x04\x03\x02\x01\x08\x07\x06\x05"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if o := normalized(t, "send_bw", "--payload_file_path", file); string(o.payload) != want {
			t.Errorf("%q: %q", text, o.payload)
		}
	}
	for _, text := range []string{"0x1", "01020304", "0x0102030g", "", ","} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := new(Options).setPayload(file); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}

// The flow labels are assigned to the QPs in turn. -S applies to each path, --tclass
// and --flow_label only to those with a GRH.
func TestPathOptions(t *testing.T) {
	o := normalized(t, "write_bw", "--flow_label=1,0xfffff", "-q", "3", "-S", "3", "--tclass=106")
	e := &endpoint{o: o, qps: []*queue{{}, {}, {}}}
	for _, withGID := range []bool{true, false} {
		o.withGID = withGID
		for i, q := range e.qps {
			want := uverbs.AHAttr{SL: 3, SGIDIndex: uint8(o.gid.Index), Port: 1}
			if withGID {
				want.IsGlobal, want.HopLimit, want.TrafficClass, want.FlowLabel = true, 0xff, 106, []uint32{1, 0xfffff, 1}[i]
			}
			if d := cmp.Diff(want, e.path(q)); d != "" {
				t.Errorf("QP %d, with a GID: %v: %s", i, withGID, d)
			}
		}
	}
}

func TestCPUTimes(t *testing.T) {
	begin, err := parseCPUTimes("cpu  100 1 2 300 4 5\ncpu0 1 2 3 4\n")
	if err != nil || begin != (cpuTimes{100, 300}) {
		t.Fatalf("%v, %v", begin, err)
	}
	v := &watchdog{cpuBegin: begin, cpuEnd: cpuTimes{130, 310}}
	if v.busy() != 0 {
		t.Error("a run that has not ended is busy")
	}
	v.end.Store(1)
	if v.busy() != 75 {
		t.Error(v.busy())
	}
	for _, bad := range []string{"", "cpu 1 2 3", "cpu x 1 2 3", "intr 1 2 3 4"} {
		if _, err := parseCPUTimes(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
	if _, err := readCPUTimes(); err != nil {
		t.Error(err)
	}
}

// The ends exchange their roles in the test, not in the connection.
func TestReversed(t *testing.T) {
	client, server := normalized(t, "send_bw", "--reversed", "host"), normalized(t, "send_bw", "--reversed")
	if !client.client() || client.active() || client.sends() || !client.postsReceives() || client.NoPeak == false {
		t.Errorf("client %+v", client)
	}
	if server.client() || !server.active() || !server.sends() || server.postsReceives() || server.NoPeak {
		t.Errorf("server %+v", server)
	}
}
