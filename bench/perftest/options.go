package perftest

import (
	"fmt"
	"io"

	"github.com/goverbs/goverbs/uverbs"
)

// Options say what one end of a test does. The names and the defaults are
// perftest's; [Parse] sets them from a command line.
type Options struct {
	Test

	Server string // host of the server; "" to be it
	Port   int    // of the connection on which the two ends agree

	Device   string // "": the first
	IBPort   int
	GIDIndex int // -1: the best
	IPv6     bool
	IPv6Addr bool   // for the connection on which the two ends agree
	SourceIP string // to listen or connect from

	Type         uverbs.QPType // RC, UC or UD
	Size         int           // bytes
	All          bool          // all sizes from 2 to 8 MiB by powers of two
	Iters        int
	Duration     int // seconds; 0: Iters count
	Margin       int // seconds at either end of Duration that do not count; -1: a quarter
	TxDepth      int
	RxDepth      int
	QPs          int
	PostList     int
	RecvPostList int
	CQMod        int // one completion for that many requests
	Inline       int // longest message that is sent inline; -1: what suits the device
	MTU          int // bytes; 0: the port's
	Outs         int // READs and atomics under way; 0: the device's most
	CompareSwap  bool

	Events        bool // sleep until there is a completion
	Vector        int  // completion vector
	Bidirectional bool
	NoPeak        bool
	NoLock        bool // queues of one goroutine
	StrictOrder   bool // no relaxed ordering
	RDMACM        bool // connect the QPs by rdma_cm
	CommCM        bool // agree by rdma_cm
	TOS           int  // of rdma_cm's QPs; -1: the default
	RetryCount    int  // of rdma_cm's QPs
	QPTimeout     int
	SL            int
	PKeyIndex     int
	TrafficClass  int
	FlowLabels    []int // of the QPs in turn
	DLID          int   // instead of the peer's LID; 0: that
	LatencyGap    int   // microseconds before each request

	Infinite    bool // go on for ever, and report every Duration
	WarmUp      bool
	Reversed    bool // the server is the one who sends
	SRQ         bool // all QPs take their receives from one queue
	MRPerQP     bool
	OnDemand    bool // memory that is not pinned
	WaitDestroy int  // seconds before the objects are given back
	CPUUtil     bool

	Gbits       bool // report Gb/s, not MiB/s
	ReportBoth  bool
	Histogram   bool
	Unsorted    bool
	Output      string // "": all; bandwidth, message_rate, latency: that figure alone
	JSON        bool
	JSONFile    string
	LimitBW     float64 // least bandwidth, in the report's unit; 0: none
	LimitRate   float64 // least rate, in millions of messages a second; 0: none
	ShowVersion bool

	Progress io.Writer // where a long run tells how far it is; nil: nowhere

	given           map[byte]bool // short options that the command line has
	noPeakByDefault bool          // there is no peak, which nobody asked for
	cqModByList     bool          // a list has one completion, which nobody asked for
	payload         []byte
	busy            float64 // percent of the CPUs' time in the last run

	run uint64 // tells one run from another; not 0

	// What the two ends have agreed on, and what the device is like.
	out       io.Writer
	outputErr error // what first kept a report from being printed, or written
	cycle     int   // messages of at most half of it go through a buffer of this size in circles
	cacheLine int   // by steps of at least this
	mtu       uverbs.MTU
	device    string
	link      uverbs.LinkLayer
	lid       uint16
	gid       uverbs.GIDEntry
	withGID   bool
	iwarp     bool
}

// The defaults and limits.
const (
	defaultPort    = 18515
	defaultJSON    = "perftest_out.json"
	maxSize        = 8 << 20
	maxLength      = 1<<31 - 1
	minIters       = 5
	maxQPs         = 16384
	maxPeakIters   = 20000 // beyond, the peak is not looked for
	largeMessage   = 8192  // beyond, every request completes
	defaultRxDepth = 512
	maxRxDepth     = 16384
	maxTxDepth     = 15000
	maxCQMod       = 1024
	maxInline      = 1024
	minUDSRQ       = 100
	defaultPeriod  = 5 // seconds between the reports of a run without end
)

// Defaults are perftest's for a test.
func Defaults(t Test) *Options {
	o := &Options{Test: t, Port: defaultPort, IBPort: 1, GIDIndex: -1, Type: uverbs.RC,
		Size: 2, Iters: 1000, Margin: -1, TxDepth: 1, RxDepth: 1, QPs: 1, PostList: 1, RecvPostList: 1,
		CQMod: 100, Inline: -1, TOS: -1, RetryCount: 7, QPTimeout: 14, JSONFile: defaultJSON}
	if t.Bandwidth {
		o.Size, o.TxDepth = 65536, 128
		if t.Verb == Write {
			o.Iters = 5000
		}
	}
	if t.receives() || t.Verb == Write {
		o.RxDepth = defaultRxDepth
	}
	if t.Verb == Atomic {
		o.Size = 8
	}
	return o
}

// client tells which side of the connection this end is.
func (o *Options) client() bool { return o.Server != "" }

// active tells whether this end begins: the client, as a rule.
func (o *Options) active() bool { return o.client() != o.Reversed }

// sends tells whether this end posts requests in the test.
func (o *Options) sends() bool { return o.active() || o.Bidirectional || !o.Bandwidth }

// takes tells whether this end takes messages by receives in the test.
func (o *Options) postsReceives() bool {
	return o.receives() && (!o.active() || o.Bidirectional || !o.Bandwidth)
}

// full tells whether everything is printed, not one figure alone.
func (o *Options) fullReport() bool { return o.Output == "" }

// printf prints a part of the report. The run goes on without, for the peer's
// sake, and tells in the end.
func (o *Options) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(o.out, format, args...); err != nil && o.outputErr == nil {
		o.outputErr = fmt.Errorf("printing: %w", err)
	}
}

// waiting is what a server says when it listens.
func (o *Options) waiting() {
	if o.fullReport() {
		const stars = "************************************\n"
		o.printf("\n%s* Waiting for client to connect... *\n%s", stars, stars)
	}
}

// timed tells whether the run is of a given time.
func (o *Options) timed() bool { return o.Duration > 0 && !o.Infinite }

// progress is where to tell how far a run is. One without end reports anyway.
func (o *Options) progress() io.Writer {
	if o.Infinite {
		return nil
	}
	return o.Progress
}
