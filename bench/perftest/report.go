package perftest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// latencyFigures are the columns of a latency report, in microseconds.
type latencyFigures struct {
	size, iters                            int
	min, max, typical, avg, stdev          float64
	percentile99, percentile999, perSecond float64
	all, sorted                            []int64 // single times of a run of so many messages, in ns: all of them with -U alone
	ways                                   float64 // by which they are divided
}

// figures works a latency test's figures out, as perftest does: the time from
// each post to the next, halved where a message goes to and fro; of the sorted
// times the two longest are left out, and the next is the maximum.
func (r latencyResult) figures(o *Options, size int) latencyFigures {
	f := latencyFigures{size: size, iters: r.iters, ways: 2000} // from ns
	if o.fetches() {
		f.ways = 1000
	}
	if o.Duration > 0 {
		if r.iters > 0 {
			f.avg = float64(r.elapsed) / f.ways / float64(r.iters)
			f.perSecond = float64(r.iters) / (float64(r.elapsed) / 1e9)
		}
		return f
	}
	times := r.posted // which nobody wants afterwards, and which may be most of the memory
	for i := range max(len(times)-1, 0) {
		times[i] = times[i+1] - times[i]
	}
	f.sorted = times[:max(len(times)-1, 0)]
	if o.Unsorted {
		f.all = slices.Clone(f.sorted)
	}
	slices.Sort(f.sorted)
	if len(f.sorted) < minIters-1 {
		return f
	}
	f.summarize()
	return f
}

// summarize works out what the sorted times tell.
func (f *latencyFigures) summarize() {
	n := len(f.sorted) - 2
	at := func(i int) float64 { return float64(f.sorted[i]) / f.ways }
	f.min, f.max, f.typical = at(0), at(n), at(n/2)
	if n%2 == 0 {
		f.typical = (at(n/2) + at(n/2-1)) / 2
	}
	for i := range n {
		f.avg += at(i) / float64(n)
	}
	for i := range n {
		f.stdev += (at(i) - f.avg) * (at(i) - f.avg) / float64(n)
	}
	f.stdev = math.Sqrt(f.stdev)
	f.percentile99 = at(int(math.Ceil(float64(n) * 0.99)))
	f.percentile999 = at(int(math.Ceil(float64(n) * 0.999)))
}

// printLatency prints a size's figures, and writes them as JSON.
func (o *Options) printLatency(f latencyFigures) {
	o.printAll(f)
	switch {
	case !o.fullReport():
		o.printf("%f\n", f.avg)
	case o.Duration > 0:
		o.printf(" %-7d       %d            %-7.2f        %-7.2f%s", f.size, f.iters, f.avg, f.perSecond, o.extra())
	default:
		o.printf(" %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f\n",
			f.size, f.iters, f.min, f.max, f.typical, f.avg, f.stdev, f.percentile99, f.percentile999)
	}
	o.writeJSON(o.latencyJSON(f))
}

// printAll prints every single time, as the options ask.
func (o *Options) printAll(f latencyFigures) {
	list := func(all []int64) {
		o.printf("#, usec\n")
		for i, t := range all {
			o.printf("%d, %s\n", i+1, strconv.FormatFloat(float64(t)/f.ways, 'g', 6, 64))
		}
	}
	if o.Unsorted {
		list(f.all)
	}
	if o.Histogram {
		list(f.sorted[:max(len(f.sorted)-2, 0)])
	}
	if o.Unsorted || o.Histogram {
		o.header()
	}
}

// printBandwidth prints figures, and writes them as JSON.
func (o *Options) printBandwidth(r bwReport) {
	format := " %-7d    %-10d       %-7.2f            %-7.2f\t\t     %-7.6f%s"
	if o.Gbits && r.avg < 0.1 {
		format = " %-7d    %d           %-7.6f            %-7.6f            %-7.6f%s"
	}
	switch o.Output {
	case "bandwidth":
		o.printf("%f\n", r.avg)
	case "message_rate":
		o.printf("%f\n", r.rate)
	default:
		o.printf(format, r.size, r.iters, r.peak, r.avg, r.rate, o.extra())
	}
	o.writeJSON(o.bandwidthJSON(r))
}

// limits are those that the options set for the figures.
func (o *Options) checkLimits(r bwReport) error {
	switch {
	case !(r.avg >= o.LimitBW): // NaN, too
		return fmt.Errorf("the bandwidth, %.2f, is below the limit of %.2f (-w)", r.avg, o.LimitBW)
	case !(r.rate >= o.LimitRate):
		return fmt.Errorf("the message rate, %.6f, is below the limit of %.6f (-y)", r.rate, o.LimitRate)
	}
	return nil
}

// plus is the sum of what two directions carried.
func (r bwReport) plus(s bwReport) bwReport {
	r.peak += s.peak
	r.avg += s.avg
	r.rate += s.rate
	return r
}
