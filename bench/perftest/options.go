package perftest

import (
	"fmt"
	"io"

	"github.com/goverbs/goverbs/uverbs"
)

// Options configure one end of a test. Names and defaults are those of perftest's
// options. [Parse] sets them from a command line.
type Options struct {
	Test

	Server string // the server's host; "": this end is the server
	Port   int    // of the control connection

	Device   string // "": the first one
	IBPort   int
	GIDIndex int // -1: choose the best
	IPv6     bool
	IPv6Addr bool   // of the control connection
	SourceIP string // local address to listen on or to connect from

	Type         uverbs.QPType // RC, UC, UD or, for DC, DCI
	Size         int           // bytes
	All          bool          // all powers of two from 2 bytes to 8 MiB
	Iters        int
	Duration     int // seconds; 0: run Iters messages
	Margin       int // seconds at the start and the end of Duration that are not measured; -1: a quarter of Duration
	TxDepth      int
	RxDepth      int
	QPs          int
	PostList     int
	RecvPostList int
	CQMod        int // requests for each completion
	Inline       int // bytes of the longest inline message; -1: a default for the device
	MTU          int // bytes; 0: that of the port
	Outs         int // outstanding READs and atomics; 0: the device's maximum
	CompareSwap  bool

	Events        bool // wait for completion events instead of polling
	Vector        int  // completion vector
	Bidirectional bool
	NoPeak        bool
	NoLock        bool // SingleGoroutine queues
	StrictOrder   bool // no PCIe relaxed ordering
	RDMACM        bool // connect the QPs with rdma_cm
	CommCM        bool // control connection over rdma_cm
	TOS           int  // of rdma_cm's QPs; -1: the default
	RetryCount    int  // of rdma_cm's QPs
	QPTimeout     int
	SL            int
	PKeyIndex     int
	TrafficClass  int
	FlowLabels    []int // assigned to the QPs in turn
	DLID          int   // destination LID; 0: the peer's
	LatencyGap    int   // microseconds before each request

	Multicast bool       // the messages are datagrams to multicast groups, which the receivers are attached to
	MGID      uverbs.GID // group of this end; zero: perftest's default

	Infinite    bool // never end, and print results every Duration
	WarmUp      bool
	Reversed    bool // the server sends to the client
	SRQ         bool // all QPs share one receive queue
	MRPerQP     bool
	OnDemand    bool // on-demand paging
	HugePages   bool // the memory has huge pages, which /proc/sys/vm/nr_hugepages reserves
	InOrder     bool // no out-of-order QPs
	WaitDestroy int  // seconds before the objects are closed
	CPUUtil     bool

	Gbits       bool // print Gb/s instead of MiB/s
	ReportBoth  bool
	Counters    []string // files below /sys/class/infiniband/DEVICE/ports/PORT whose increase is printed
	Histogram   bool
	Unsorted    bool
	Output      string // "": everything; bandwidth, message_rate or latency: only this figure
	JSON        bool
	JSONFile    string
	LimitBW     float64 // minimum bandwidth, in the report's unit; 0: none
	LimitRate   float64 // minimum rate, in millions of messages per second; 0: none
	ShowVersion bool

	RateLimit float64 // maximum rate of messages in RateUnits; 0: none
	RateUnits string  // "M": MiB/s; "g" or "": Gb/s; "p": messages per second
	Limiter   Limiter // "": the device if it can, otherwise the test
	BurstSize int     // messages that SoftwareLimiter sends at a time; 0: TxDepth

	Progress io.Writer // where a long run reports its progress; may be nil

	given           map[byte]bool // short options on the command line
	noPeakByDefault bool          // the peak is not measured, although -N was not given
	cqModByList     bool          // CQMod is PostList, although -Q was not given
	payload         []byte
	counters        []*counter
	busy            float64 // CPU utilization of the last run, in percent

	run uint64 // identifies the run to the server; not 0

	// What the two ends have agreed on, and properties of the device.
	out        io.Writer
	outputErr  error // first error of printing or writing a report
	cycle      int   // bytes of the buffer that small messages use cyclically
	cacheLine  int   // minimum distance of messages in it
	mtu        uverbs.MTU
	device     string
	link       uverbs.LinkLayer
	lid        uint16
	gid        uverbs.GIDEntry
	withGID    bool
	iwarp      bool
	staticRate uverbs.Rate // that the device limits the QPs to; 0: none
	outOfOrder bool        // the QPs have that option of mlx5.QPOptions
}

// The defaults and limits.
const (
	defaultPort    = 18515
	defaultJSON    = "perftest_out.json"
	maxSize        = 8 << 20
	maxLength      = 1<<31 - 1
	minIters       = 5
	maxQPs         = 16384
	maxPeakIters   = 20000 // no peak is measured for more
	largeMessage   = 8192  // every request of a longer message is signaled
	defaultRxDepth = 512
	maxRxDepth     = 16384
	maxTxDepth     = 15000
	maxCQMod       = 1024
	maxInline      = 1024
	minUDSRQ       = 100
	defaultPeriod  = 5 // seconds between the reports of an infinite run
)

// Defaults returns perftest's defaults for a test.
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

// client reports whether this end connects.
func (o *Options) client() bool { return o.Server != "" }

// active reports whether this end sends the first message of a bandwidth test: the
// client, unless the test is reversed.
func (o *Options) active() bool { return o.client() != o.Reversed }

// sends reports whether this end posts requests during the test.
func (o *Options) sends() bool { return o.active() || o.Bidirectional || !o.Bandwidth }

// postsReceives reports whether this end posts receives during the test.
func (o *Options) postsReceives() bool {
	return o.receives() && (!o.active() || o.Bidirectional || !o.Bandwidth)
}

// fullReport reports whether everything is printed, not just one figure (--output).
func (o *Options) fullReport() bool { return o.Output == "" }

// printf prints a part of the report. If that fails, the run continues, because the
// peer takes part in it, and returns the error at the end.
func (o *Options) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(o.out, format, args...); err != nil && o.outputErr == nil {
		o.outputErr = fmt.Errorf("printing: %w", err)
	}
}

// waiting prints that the server listens.
func (o *Options) waiting() {
	if o.fullReport() {
		const stars = "************************************\n"
		o.printf("\n%s* Waiting for client to connect... *\n%s", stars, stars)
	}
}

// timed reports whether the run ends after a given duration.
func (o *Options) timed() bool { return o.Duration > 0 && !o.Infinite }

// progress returns the writer for progress reports, or nil. An infinite run prints
// results periodically instead.
func (o *Options) progress() io.Writer {
	if o.Infinite {
		return nil
	}
	return o.Progress
}
