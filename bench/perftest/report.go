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
	all                                    []float64 // of a run of so many messages: in order of time
}

// figures works a latency test's figures out, as perftest does: the time from
// each post to the next, halved where a message goes to and fro; of the sorted
// times the two longest are left out, and the next is the maximum.
func (r latencyResult) figures(o *Options, size int) latencyFigures {
	f := latencyFigures{size: size, iters: r.iters}
	ways := 2000.0 // from ns
	if o.fetches() {
		ways = 1000
	}
	if o.Duration > 0 {
		if r.iters > 0 {
			f.avg = float64(r.took) / ways / float64(r.iters)
			f.perSecond = float64(r.iters) / (float64(r.took) / 1e9)
		}
		return f
	}
	for i := 1; i < len(r.posted); i++ {
		f.all = append(f.all, float64(r.posted[i]-r.posted[i-1])/ways)
	}
	if len(f.all) < leastIters-1 {
		return f
	}
	sorted := slices.Sorted(slices.Values(f.all))
	n := len(sorted) - 2
	f.min, f.max = sorted[0], sorted[n]
	f.typical = sorted[n/2]
	if n%2 == 0 {
		f.typical = (sorted[n/2] + sorted[n/2-1]) / 2
	}
	for _, t := range sorted[:n] {
		f.avg += t / float64(n)
	}
	for _, t := range sorted[:n] {
		f.stdev += (t - f.avg) * (t - f.avg) / float64(n)
	}
	f.stdev = math.Sqrt(f.stdev)
	f.percentile99 = sorted[int(math.Ceil(float64(n)*0.99))]
	f.percentile999 = sorted[int(math.Ceil(float64(n)*0.999))]
	return f
}

// printLatency prints a size's figures, and writes them as JSON.
func (o *Options) printLatency(f latencyFigures) {
	o.printAll(f)
	switch {
	case !o.full():
		o.printf("%f\n", f.avg)
	case o.Duration > 0:
		o.printf(" %-7d       %d            %-7.2f        %-7.2f\n", f.size, f.iters, f.avg, f.perSecond)
	default:
		o.printf(" %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f\n",
			f.size, f.iters, f.min, f.max, f.typical, f.avg, f.stdev, f.percentile99, f.percentile999)
	}
	o.writeJSON(o.latencyJSON(f))
}

// printAll prints every single time, as the options ask.
func (o *Options) printAll(f latencyFigures) {
	list := func(all []float64) {
		o.printf("#, usec\n")
		for i, t := range all {
			o.printf("%d, %s\n", i+1, strconv.FormatFloat(t, 'g', 6, 64))
		}
	}
	if o.Unsorted {
		list(f.all)
	}
	if o.Histogram {
		sorted := slices.Sorted(slices.Values(f.all))
		list(sorted[:max(len(sorted)-2, 0)])
	}
	if o.Unsorted || o.Histogram {
		o.header()
	}
}

// printBandwidth prints figures, and writes them as JSON.
func (o *Options) printBandwidth(r bwReport) {
	format := " %-7d    %-10d       %-7.2f            %-7.2f\t\t     %-7.6f\n"
	if o.Gbits && r.avg < 0.1 {
		format = " %-7d    %d           %-7.6f            %-7.6f            %-7.6f\n"
	}
	switch o.Output {
	case "bandwidth":
		o.printf("%f\n", r.avg)
	case "message_rate":
		o.printf("%f\n", r.rate)
	default:
		o.printf(format, r.size, r.iters, r.peak, r.avg, r.rate)
	}
	o.writeJSON(o.bandwidthJSON(r))
}

// limits are those that the options set for the figures.
func (o *Options) limits(r bwReport) error {
	switch {
	case r.avg < o.LimitBW:
		return fmt.Errorf("the bandwidth, %.2f, is below the limit of %.2f (-w)", r.avg, o.LimitBW)
	case r.rate < o.LimitRate:
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
