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

func onOff(on bool) string {
	if on {
		return "ON"
	}
	return "OFF"
}

// name returns the test's name in reports.
func (o *Options) name(separator string) string {
	words := []string{o.Verb.title()}
	if o.Verb == Atomic {
		words = append(words, map[bool]string{false: "FETCH_AND_ADD", true: "CMP_AND_SWAP"}[o.CompareSwap])
	}
	switch {
	case !o.Bandwidth:
		words = append(words, "Latency")
	default:
		if o.Bidirectional {
			words = append(words, "Bidirectional")
		}
		if o.PostList > 1 {
			words = append(words, strings.ReplaceAll("Post List", " ", separator))
		}
		words = append(words, "BW")
	}
	return strings.Join(append(words, "Test"), separator)
}

func (o *Options) linkName() string {
	if o.link == uverbs.LinkEthernet {
		return "Ethernet"
	}
	return "IB"
}

func (o *Options) transport() string {
	if o.iwarp {
		return "IW"
	}
	return "IB"
}

func (o *Options) exchangeMethod() string {
	if o.CommCM {
		return "rdma_cm"
	}
	return "Ethernet"
}

func (o *Options) relaxed() bool { return !o.StrictOrder && (o.Verb != Write || o.Bandwidth) }

// info prints the parameters of the test.
func (o *Options) info() {
	if !o.fullReport() {
		return
	}
	o.printf("%s                    %s\n", separator, o.name(" "))
	if o.Events {
		o.printf(" Test with events. Using %s_comp%d\n", o.device, o.Vector)
	}
	o.printf(" Dual-port       : OFF\t\tDevice         : %s\n", o.device)
	o.printf(" Number of qps   : %d\t\tTransport type : %s\n", o.qpCount(), o.transport())
	o.printf(" Connection type : %v\t\tUsing SRQ      : %s\n", o.typeName(), onOff(o.SRQ))
	o.printf(" PCIe relax order: %s\t\tLock-free      : %s\n", onOff(o.relaxed()), onOff(o.NoLock))
	o.printf(" ibv_wr* API     : OFF\t\tUsing DDP      : %s\n", onOff(o.outOfOrder))
	if o.active() || o.Bidirectional {
		o.printf(" TX depth        : %d\n", o.TxDepth)
	}
	if o.PostList > 1 {
		o.printf(" Post List       : %d\n", o.PostList)
	}
	if o.RecvPostList > 1 {
		o.printf(" Recv Post List  : %d\n", o.RecvPostList)
	}
	if o.receives() && (!o.active() || o.Bidirectional) {
		o.printf(" RX depth        : %d\n", o.RxDepth)
	}
	if o.Bandwidth {
		o.printf(" CQ Moderation   : %d\n", o.CQMod)
	}
	o.printf(" Mtu             : %d[B]\n Link type       : %s\n", o.mtu.Bytes(), o.linkName())
	if o.withGID {
		o.printf(" GID index       : %d\n", o.gid.Index)
	}
	if o.fetches() {
		o.printf(" Outstand reads  : %d\n", o.Outs)
	} else {
		o.printf(" Max inline data : %d[B]\n", o.Inline)
	}
	o.printf(" rdma_cm QPs\t : %s\n Data ex. method : %s", onOff(o.RDMACM), o.exchangeMethod())
	if o.RDMACM && o.TOS >= 0 {
		o.printf(" \tTOS    : %d", o.TOS)
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
		o.printf(" GID: ")
		for i, c := range k.gid {
			if i > 0 {
				o.printf(":")
			}
			o.printf("%02d", c)
		}
		o.printf("\n")
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
