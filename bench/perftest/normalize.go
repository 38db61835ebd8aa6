package perftest

import (
	"os"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// normalize adjusts the options to each other as perftest does, and rejects those that
// contradict each other.
func (o *Options) normalize() error {
	o.cycle, o.cacheLine = os.Getpagesize(), 64
	if o.Verb == Write {
		o.RxDepth = 1
	}
	for _, f := range []func() error{o.checkMinimums, o.checkType, o.checkModes, o.normalizeInfinite, o.normalizeDuration,
		o.normalizeDepths, o.checkLists, o.checkJSON} {
		if err := f(); err != nil {
			return err
		}
	}
	if o.All {
		o.Size = maxSize
	}
	if o.fetches() {
		o.Inline = 0
	}
	none := o.Duration > 0 || o.Iters > maxPeakIters || o.receives() && !o.active() && !o.Bidirectional
	o.noPeakByDefault = o.Bandwidth && none && !o.NoPeak
	o.NoPeak = o.NoPeak || none || !o.Bandwidth
	return nil
}

// checkMinimums rejects zero values of Options that were not filled in by Defaults.
func (o *Options) checkMinimums() error {
	if o.Verb > Atomic {
		return here("", "there is no verb %d: choose from %v", o.Verb, Tests)
	}
	for _, v := range []struct {
		option string
		value  int
	}{{"-s", o.Size}, {"-n", o.Iters}, {"-t", o.TxDepth}, {"-r", o.RxDepth}, {"-q", o.QPs}, {"-Q", o.CQMod},
		{"-l", o.PostList}, {"--recv_post_list", o.RecvPostList}} {
		if v.value < 1 {
			return here(v.option, "it is %d, and must be at least 1: start from Defaults or Parse", v.value)
		}
	}
	return nil
}

func (o *Options) checkType() error {
	switch {
	case o.fetches() && !o.reliable():
		return here("-c", "READs and atomics need RC or DC")
	case o.Type == uverbs.UD && o.Verb != Send:
		return here("-c", "UD supports only SEND")
	case o.dc() && o.RDMACM:
		return here("-c", "rdma_cm does not connect DC: leave out -R")
	case o.Type == uverbs.UC && o.RDMACM:
		return here("-c", "rdma_cm does not connect UC: leave out -R")
	case o.SourceIP != "" && strings.Contains(o.SourceIP, ":") != o.IPv6Addr:
		return here("--bind_source_ip", "%s: give an IPv6 address with --ipv6-addr, and an IPv4 address without", o.SourceIP)
	case o.TOS >= 0 && !o.RDMACM:
		return here("-T", "it applies to rdma_cm's queue pairs: add -R, or use --tclass")
	case o.given['X'] && !o.Events:
		return here("-X", "a completion vector needs events: add -e")
	case o.ReportBoth && !o.Bidirectional:
		return here("--report-both", "there is only one direction: add -b")
	}
	if o.RDMACM {
		o.CommCM = true
	}
	o.SRQ = o.SRQ || o.dc() // a DCT receives into an SRQ
	return nil
}

func (o *Options) normalizeDuration() error {
	switch {
	case o.Duration == 0 && o.given['f']:
		return here("-f", "a margin needs a duration: add -D")
	case o.Duration == 0:
		return nil
	case o.Events:
		return here("-D", "a run of a given duration polls: leave out -e")
	case o.All:
		return here("-D", "a run of a given duration has one size: leave out -a")
	}
	if o.Margin < 0 {
		o.Margin = o.Duration / 4
	}
	if o.Duration <= 2*o.Margin {
		return here("-f", "a margin of %d s at both ends leaves nothing of %d s", o.Margin, o.Duration)
	}
	return nil
}

// normalizeDepths adjusts the queue depths to the number of messages and to each other.
func (o *Options) normalizeDepths() error {
	if o.Duration == 0 {
		o.TxDepth = min(o.TxDepth, o.Iters)
		if o.receives() {
			o.RxDepth = min(o.RxDepth, o.Iters)
		}
		if !o.reliable() && o.SRQ && o.Iters <= minUDSRQ {
			o.RxDepth = minUDSRQ
		}
		if !o.reliable() && o.RxDepth == defaultRxDepth { // there is no flow control
			o.RxDepth = min(o.Iters, 16000)
		}
	}
	if o.Size > largeMessage && o.Type != uverbs.UD && !o.All && !o.Events && !o.given['Q'] {
		o.CQMod = 1
	}
	o.CQMod = min(o.CQMod, o.TxDepth)
	if o.PostList > 1 && !o.given['Q'] {
		o.CQMod, o.cqModByList = o.PostList, true
	}
	if o.receives() && o.RxDepth%2 == 1 && !o.All {
		o.RxDepth++
	}
	return nil
}

func (o *Options) checkLists() error {
	switch {
	case o.PostList > o.TxDepth:
		return here("-l", "a list of %d does not fit into a queue of %d: raise -t", o.PostList, o.TxDepth)
	case o.PostList > 1 && o.PostList%o.CQMod != 0:
		return here("-Q", "the last request of each list of %d must be signaled: %d does not divide that",
			o.PostList, o.CQMod)
	case o.SRQ && o.receives() && o.QPs > o.RxDepth/o.RecvPostList:
		return here("--use-srq", "%d receives are not enough for %d queue pairs: raise -r and -n", o.RxDepth, o.QPs)
	case o.RecvPostList > o.RxDepth:
		return here("--recv_post_list", "a list of %d does not fit into a queue of %d: raise -r", o.RecvPostList, o.RxDepth)
	case o.Duration > 0:
		return nil
	case o.Iters%o.PostList != 0:
		return here("-l", "lists of %d do not divide %d messages: choose a divisor of -n", o.PostList, o.Iters)
	case o.Iters%o.RecvPostList != 0:
		return here("--recv_post_list", "lists of %d do not divide %d messages: choose a divisor of -n",
			o.RecvPostList, o.Iters)
	}
	return nil
}

// checkModes checks warm-up, SRQ, reversed and CPU utilization.
func (o *Options) checkModes() error {
	switch {
	case o.WarmUp && (o.receives() || !o.Bandwidth):
		return here("--perform_warm_up", "only the bandwidth tests of WRITE, READ and atomics have it")
	case o.SRQ && o.Verb != Send && !o.dc():
		return here("--use-srq", "only SEND tests have it")
	case o.SRQ && o.Type == uverbs.UC:
		return here("--use-srq", "UC has no shared receive queues: choose RC or UD")
	case o.Reversed && (o.RDMACM || o.CommCM):
		return here("--reversed",
			"it needs a control connection over TCP: leave out -R and -z, or exchange the roles of the hosts")
	case o.CPUUtil && o.Duration == 0:
		return here("--cpu_util", "it needs a run of a given duration: add -D")
	}
	if o.CPUUtil {
		if _, err := readCPUTimes(); err != nil {
			return here("--cpu_util", "%v", err)
		}
	}
	return nil
}

// normalizeInfinite gives an infinite run its period, and rejects options that it
// cannot have.
func (o *Options) normalizeInfinite() error {
	switch {
	case !o.Infinite:
		return nil
	case o.Events:
		return here("--run_infinitely", "an infinite run polls: leave out -e")
	case o.All:
		return here("--run_infinitely", "an infinite run has one size: leave out -a")
	case o.receives() && o.Bidirectional:
		return here("--run_infinitely", "messages that consume receives run in one direction only: leave out -b")
	case o.CPUUtil:
		return here("--cpu_util", "it needs a run of a given duration: leave out --run_infinitely")
	}
	if o.Duration == 0 {
		o.Duration = defaultPeriod
	}
	o.Margin = 0
	return nil
}
