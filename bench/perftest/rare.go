package perftest

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// timed tells whether the run is of a given time.
func (o *Options) timed() bool { return o.Duration > 0 && !o.Infinite }

// progress is where to tell how far a run is. One without end reports anyway.
func (o *Options) progress() io.Writer {
	if o.Infinite {
		return nil
	}
	return o.Progress
}

// checkRare is for options that few runs have.
func (o *Options) checkRare() error {
	switch {
	case o.WarmUp && (o.receives() || !o.Bandwidth):
		return here("--perform_warm_up", "it is of the bandwidth tests of WRITE, READ and atomics")
	case o.SRQ && o.Verb != Send:
		return here("--use-srq", "it is of the SEND tests")
	case o.SRQ && o.Type == uverbs.UC:
		return here("--use-srq", "UC has no shared receive queues: choose RC or UD")
	case o.Reversed && (o.RDMACM || o.CommCM):
		return here("--reversed", "it is for a connection over TCP: leave out -R and -z, or change the roles of the hosts")
	case o.CPUUtil && o.Duration == 0:
		return here("--cpu_util", "it is of runs of a given time: add -D")
	}
	if o.CPUUtil {
		if _, err := readCPUTimes(); err != nil {
			return here("--cpu_util", "%v", err)
		}
	}
	return nil
}

// settleInfinite has a run without end report every few seconds.
func (o *Options) settleInfinite() error {
	switch {
	case !o.Infinite:
		return nil
	case o.Events:
		return here("--run_infinitely", "a run without end polls: leave out -e")
	case o.All:
		return here("--run_infinitely", "a run without end has one size: leave out -a")
	case o.receives() && o.Bidirectional:
		return here("--run_infinitely", "with messages that take receives it is for one direction: leave out -b")
	case o.CPUUtil:
		return here("--cpu_util", "it is of runs of a given time: leave out --run_infinitely")
	}
	if o.Duration == 0 {
		o.Duration = defaultPeriod
	}
	o.Margin = 0
	return nil
}

// setFlowLabels takes labels separated by commas.
func (o *Options) setFlowLabels(value string) error {
	for field := range strings.SplitSeq(value, ",") {
		v, err := strconv.ParseUint(field, 0, 20)
		if err != nil {
			return fmt.Errorf("%q is no flow label, a number of at most 20 bits", field)
		}
		o.FlowLabels = append(o.FlowLabels, int(v))
	}
	return nil
}

// setPayload reads a file of words such as 0x01020304, separated by commas. The
// lowest byte of a word goes first.
func (o *Options) setPayload(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var bytes []byte
	for field := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
		digits, found := strings.CutPrefix(field, "0x")
		word, err := strconv.ParseUint(digits, 16, 32)
		if !found || len(digits) != 8 || err != nil {
			return fmt.Errorf("%s: %q is no word of eight hexadecimal digits such as 0x01020304", file, field)
		}
		bytes = append(bytes, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
	}
	if len(bytes) == 0 {
		return fmt.Errorf("%s has no word", file)
	}
	o.payload = bytes
	return nil
}

// cpuTimes are what all CPUs have spent, in ticks.
type cpuTimes struct{ user, idle float64 }

func readCPUTimes() (t cpuTimes, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, err
	}
	return parseCPUTimes(string(text))
}

// parseCPUTimes reads the line of all CPUs: user, nice, system, idle.
func parseCPUTimes(stat string) (t cpuTimes, err error) {
	f := strings.Fields(stat)
	if len(f) < 5 || f[0] != "cpu" {
		return t, fmt.Errorf("/proc/stat begins with %.40q", stat)
	}
	if t.user, err = strconv.ParseFloat(f[1], 64); err != nil {
		return t, err
	}
	t.idle, err = strconv.ParseFloat(f[4], 64)
	return t, err
}

// cpu reads the times if they are asked for. That they can be read has been
// seen before the test.
func (v *watch) cpu(o *Options) (t cpuTimes) {
	if o.CPUUtil {
		t, _ = readCPUTimes()
	}
	return t
}

// busy is the share of the time that programs had, in percent, as perftest has
// it: of theirs and what was idle.
func (v *watch) busy() float64 {
	if v.end.Load() == 0 {
		return 0
	}
	user, idle := v.cpuEnd.user-v.cpuBegin.user, v.cpuEnd.idle-v.cpuBegin.idle
	if user+idle <= 0 {
		return 0
	}
	return 100 * user / (user + idle)
}

// warmUp fills each send queue once before anything is measured.
func (e *endpoint) warmUp(ctx context.Context) error {
	if !e.o.sends() {
		return nil
	}
	return patiently(ctx, func(ctx context.Context) error {
		for _, q := range e.qps {
			q.wrs[len(q.wrs)-1].Flags |= uverbs.Signaled
			lists := e.o.TxDepth / e.o.PostList
			for range lists {
				if _, err := q.qp.PostSend(q.wrs...); err != nil {
					return err
				}
			}
			if err := e.complete(ctx, lists*e.o.PostList/min(e.o.CQMod, e.o.PostList)); err != nil {
				return err
			}
		}
		e.prepare(e.size)
		return nil
	})
}

// complete waits for n completions of sends.
func (e *endpoint) complete(ctx context.Context, n int) error {
	for range n {
		wc, err := e.next(ctx, e.scq)
		if err != nil {
			return err
		}
		if err := e.check(wc, false); err != nil {
			return err
		}
	}
	return nil
}
