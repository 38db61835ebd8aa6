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
	o.CommCM = o.CommCM || o.RDMACM
	o.SRQ = o.SRQ || o.dc() // a DCT receives into an SRQ
	for _, f := range []func() error{o.checkMinimums, o.checkMulticast, o.checkContradictions, o.normalizeDuration,
		o.normalizeDepths, o.checkLists, o.normalizeRate, o.checkJSON} {
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

// checkContradictions rejects options that contradict each other.
func (o *Options) checkContradictions() error {
	for _, c := range []struct {
		wrong       bool
		option, why string
	}{
		{o.fetches() && !o.reliable(), "-c", "READs and atomics need RC or DC"},
		{o.Type == uverbs.UD && o.Verb != Send, "-c", "UD supports only SEND"},
		{o.dc() && o.RDMACM, "-c", "rdma_cm does not connect DC: leave out -R"},
		{o.Type == uverbs.UC && o.RDMACM, "-c", "rdma_cm does not connect UC: leave out -R"},
		{o.SourceIP != "" && strings.Contains(o.SourceIP, ":") != o.IPv6Addr, "--bind_source_ip",
			o.SourceIP + ": give an IPv6 address with --ipv6-addr, and an IPv4 address without"},
		{o.TOS >= 0 && !o.RDMACM, "-T", "it applies to rdma_cm's queue pairs: add -R, or use --tclass"},
		{o.given['X'] && !o.Events, "-X", "a completion vector needs events: add -e"},
		{o.ReportBoth && !o.Bidirectional, "--report-both", "there is only one direction: add -b"},
		{o.WarmUp && (o.receives() || !o.Bandwidth), "--perform_warm_up",
			"only the bandwidth tests of WRITE, READ and atomics have it"},
		{o.SRQ && o.Verb != Send && !o.dc(), "--use-srq", "only SEND tests have it"},
		{o.SRQ && o.Type == uverbs.UC, "--use-srq", "UC has no shared receive queues: choose RC or UD"},
		{o.Reversed && o.CommCM, "--reversed",
			"it needs a control connection over TCP: leave out -R and -z, or exchange the roles of the hosts"},
		{o.CPUUtil && o.Duration == 0, "--cpu_util", "it needs a run of a given duration: add -D"},
		{o.Infinite && o.Events, "--run_infinitely", "an infinite run polls: leave out -e"},
		{o.Infinite && o.All, "--run_infinitely", "an infinite run has one size: leave out -a"},
		{o.Infinite && o.receives() && o.Bidirectional, "--run_infinitely",
			"messages that consume receives run in one direction only: leave out -b"},
		{o.Infinite && o.CPUUtil, "--cpu_util", "it needs a run of a given duration: leave out --run_infinitely"},
		{o.Duration == 0 && !o.Infinite && o.given['f'], "-f", "a margin needs a duration: add -D"},
		{o.Duration > 0 && o.Events, "-D", "a run of a given duration polls: leave out -e"},
		{o.Duration > 0 && o.All, "-D", "a run of a given duration has one size: leave out -a"},
	} {
		if c.wrong {
			return here(c.option, "%s", c.why)
		}
	}
	return nil
}

// normalizeDuration gives an infinite run its period, and a run of a given duration its margin. It checks that the CPU
// utilization of the run can be read.
func (o *Options) normalizeDuration() error {
	if o.CPUUtil {
		if _, err := readCPUTimes(); err != nil {
			return here("--cpu_util", "%v", err)
		}
	}
	if o.Infinite {
		o.Margin = 0
		if o.Duration == 0 {
			o.Duration = defaultPeriod
		}
	}
	if o.Duration > 0 && o.Margin < 0 {
		o.Margin = o.Duration / 4
	}
	if o.Duration != 0 && o.Duration <= 2*o.Margin {
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
