package perftest

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	separator = "---------------------------------------------------------------------------------------\n"

	bwHeader      = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n"
	bwHeaderGbits = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
	latHeader     = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    " +
		"t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
	latHeaderTimed = " #bytes        #iterations       t_avg[usec]    tps average\n"
)

// choose returns yes if the condition holds, and no otherwise.
func choose[T any](condition bool, yes, no T) T {
	if condition {
		return yes
	}
	return no
}

func onOff(on bool) string { return choose(on, "ON", "OFF") }

// name returns the test's name in reports.
func (o *Options) name(separator string) string {
	words := []string{o.Verb.title()}
	if o.Verb == Atomic {
		words = append(words, choose(o.CompareSwap, "CMP_AND_SWAP", "FETCH_AND_ADD"))
	}
	if o.Bidirectional {
		words = append(words, "Bidirectional")
	}
	if o.PostList > 1 {
		words = append(words, "Post", "List")
	}
	words = append(words, choose(o.Bandwidth, "BW", "Latency"))
	if o.Multicast {
		words = append(words, "Multicast")
	}
	return strings.Join(append(words, "Test"), separator)
}

// relaxed reports whether the memory has PCIe relaxed ordering. write_lat polls the last byte of a message.
func (o *Options) relaxed() bool { return !o.StrictOrder && (o.Verb != Write || o.Bandwidth) }

// A param is a parameter of the test in the report.
type param struct {
	shown     bool
	text, key string // the format in the text, and the key in the JSON file; "" if it is not there
	value     any
}

// params returns the parameters in the order of perftest's reports.
func (o *Options) params() []param {
	return []param{
		{o.Events, " Test with events. Using %s\n", "Test with events", fmt.Sprintf("%s_comp%d", o.device, o.Vector)},
		{o.Multicast, " MultiCast runs on UD!%.0s\n", "MultiCast_runs", "on_UD"}, // the value is not in the text
		{true, " Dual-port       : %s\t\t", "Dual_port", "OFF"},
		{true, "Device         : %s\n", "Device", o.device},
		{true, " Number of qps   : %d\t\t", "Number_of_qps", o.qpCount()},
		{true, "Transport type : %s\n", "Transport_type", choose(o.iwarp, "IW", "IB")},
		{true, " Connection type : %s\t\t", "Connection_type", o.typeName()},
		{true, "Using SRQ      : %s\n", "Using_SRQ", onOff(o.SRQ)},
		{true, " PCIe relax order: %s\t\t", "PCIe_relax_order", onOff(o.relaxed())},
		{true, "Lock-free      : %s\n", "", onOff(o.NoLock)},
		{true, " ibv_wr* API     : %s\t\t", "ibv_wr_API", "OFF"},
		{true, "Using DDP      : %s\n", "", onOff(o.outOfOrder)},
		{o.active() || o.Bidirectional, " TX depth        : %d\n", "TX_depth", o.TxDepth},
		{o.PostList > 1, " Post List       : %d\n", "Post_List", o.PostList},
		{o.RecvPostList > 1, " Recv Post List  : %d\n", "Recv_Post_List", o.RecvPostList},
		{o.receives() && (!o.active() || o.Bidirectional), " RX depth        : %d\n", "RX_depth", o.RxDepth},
		{o.Bandwidth, " CQ Moderation   : %d\n", "CQ_Moderation", o.CQMod},
		{true, " Mtu             : %d[B]\n", "Mtu", o.mtu.Bytes()},
		{true, " Link type       : %s\n", "Link_type", choose(o.link == uverbs.LinkEthernet, "Ethernet", "IB")},
		{o.withGID, " GID index       : %d\n", "GID_index", o.gid.Index},
		{o.fetches(), " Outstand reads  : %d\n", "Outstand_reads", o.Outs},
		{!o.fetches(), " Max inline data : %d[B]\n", "Max_inline_data", o.Inline},
		{true, " rdma_cm QPs\t : %s\n", "rdma_cm_QPs", onOff(o.RDMACM)},
		{true, "", "Use_ROCm_memory", "OFF"},
		{true, " Data ex. method : %s", "Data_ex_method", choose(o.CommCM, "rdma_cm", "Ethernet")},
		{o.RDMACM && o.TOS >= 0, " \tTOS    : %d", "TOS", o.TOS},
	}
}

// info prints the parameters of the test.
func (o *Options) info() {
	if !o.fullReport() {
		return
	}
	o.printf("%s                    %s\n", separator, o.name(" "))
	for _, p := range o.params() {
		if p.shown && p.text != "" {
			o.printf(p.text, p.value)
		}
	}
	if o.RDMACM && !o.client() {
		o.printf("\n%s Waiting for client rdma_cm QP to connect\n Please run the same command with the IB/RoCE interface IP",
			separator)
	}
	o.printf("\n%s", separator)
}

// address prints the keys of one end's QP. With rdma_cm those of the memory and the SRQ are
// omitted, as in perftest.
func (o *Options) address(side string, k keys) {
	if !o.fullReport() {
		return
	}
	if side == "remote" && o.DLID != 0 {
		k.lid = uint16(o.DLID)
	}
	o.printf(" %s address: LID %s QPN %s PSN %s", side, hex(uint64(k.lid), 4), hex(uint64(k.qpn), 6),
		hex(uint64(k.psn), 6))
	if o.Verb == Read && !o.CommCM {
		o.printf(" OUT %s", hex(uint64(k.outs), 4))
	}
	if (o.Verb == Write || o.Verb == Read) && !o.CommCM {
		o.printf(" RKey %s VAddr %s", hex(uint64(k.rkey), 8), hex(k.vaddr, 16))
	}
	if o.dc() && !o.CommCM {
		o.printf(" SRQn %s", hex(uint64(k.srqn), 8))
	}
	o.printf("\n")
	if o.withGID {
		bytes := strings.Trim(fmt.Sprintf("%02d", k.gid[:]), "[]") // separated by spaces
		group := o.Multicast && (side == "local") != o.client()    // also that of a client that sends to the server's group
		o.printf(" %s: %s\n", choose(group, "MGID", "GID"), strings.ReplaceAll(bytes, " ", ":"))
	}
}

// hex formats a number as C's %#0*x: the prefix 0x counts as two digits, and 0 has no
// prefix.
func hex(v uint64, width int) string {
	if v == 0 {
		return fmt.Sprintf("%0*d", width, 0)
	}
	return fmt.Sprintf("0x%0*x", width-2, v)
}

// header prints the column titles.
func (o *Options) header() {
	if !o.fullReport() {
		return
	}
	header := latHeader
	switch {
	case o.Bandwidth && o.Gbits:
		header = bwHeaderGbits
	case o.Bandwidth:
		header = bwHeader
	case o.Duration > 0:
		header = latHeaderTimed
	}
	if o.CPUUtil {
		header = strings.TrimSuffix(header, "\n") + "    CPU_Util[%]\n"
	}
	o.printf("%s%s", separator, header)
}

// extra returns the end of a row.
func (o *Options) extra() string {
	if o.CPUUtil {
		return fmt.Sprintf("\t    %-3.2f\n", o.busy)
	}
	return "\n"
}

func (o *Options) rule() {
	if o.fullReport() {
		o.printf("%s", separator)
	}
}
