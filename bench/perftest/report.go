package perftest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// latencyFigures holds the columns of a latency report, in microseconds.
type latencyFigures struct {
	size, iters                            int
	min, max, typical, avg, stdev          float64
	percentile99, percentile999, perSecond float64
	all, sorted                            []int64 // times of single messages, in ns; all only with -U
	ways                                   float64 // divisor of the times: microseconds, for one direction
}

// figures computes the columns as perftest does. A time is the difference of two posts,
// halved if messages go in both directions. The two longest times are not part of the
// averages; the shorter of them is the maximum.
func (r latencyResult) figures(o *Options, size int) latencyFigures {
	f := latencyFigures{size: size, iters: r.iters, ways: 2000} // ns to microseconds, and half
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
	times := r.posted // reused for the differences, because it may be large
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

// summarize computes the statistics of the sorted times.
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

// printLatency prints the results of a size and writes the JSON file.
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
	o.printCounters()
	o.writeJSON(o.latencyJSON(f))
}

// printAll prints all times, if the options request it (-H, -U).
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

// printBandwidth prints results and writes the JSON file.
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
	o.printCounters()
	o.writeJSON(o.bandwidthJSON(r))
}

// checkLimits returns an error if results are below the limits of -w and -y.
func (o *Options) checkLimits(r bwReport) error {
	switch {
	case !(r.avg >= o.LimitBW): // also rejects NaN
		return fmt.Errorf("the bandwidth, %.2f, is below the limit of %.2f (-w)", r.avg, o.LimitBW)
	case !(r.rate >= o.LimitRate):
		return fmt.Errorf("the message rate, %.6f, is below the limit of %.6f (-y)", r.rate, o.LimitRate)
	}
	return nil
}

// plus returns the sum of the results of two directions.
func (r bwReport) plus(s bwReport) bwReport {
	r.peak += s.peak
	r.avg += s.avg
	r.rate += s.rate
	return r
}
