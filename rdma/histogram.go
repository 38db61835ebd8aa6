package rdma

import (
	"math"
	"math/bits"
	"time"
)

// A Histogram counts durations. Bucket i has those below [HistogramBound](i) that no bucket before it has, and the
// last bucket has the others, too.
type Histogram struct {
	Counts [HistogramBuckets]uint64
	Sum    time.Duration
}

// HistogramBuckets is the number of buckets of a [Histogram]. Their bounds are 1 us, 1.5 us, 2 us, 3 us, 4 us, 6 us and
// so on: each second one is twice as large.
const HistogramBuckets = 50

// HistogramBound returns the bound of a bucket. It is math.MaxInt64 for the last one.
func HistogramBound(bucket int) time.Duration {
	if bucket >= HistogramBuckets-1 {
		return math.MaxInt64
	}
	return time.Microsecond << (bucket / 2) * time.Duration(2+bucket%2) / 2
}

func (h *Histogram) add(d time.Duration) {
	h.Counts[bucketOf(d)]++
	h.Sum += d
}

// bucketOf returns the bucket for d.
func bucketOf(d time.Duration) int {
	n := bits.Len64(uint64(max(d, 0) / time.Microsecond)) // 0 below 1 us
	if n == 0 {
		return 0
	}
	b := 2*n - 1 // from 1 << (n-1) us on
	if d >= HistogramBound(b) {
		b++
	}
	return min(b, HistogramBuckets-1)
}

// Count returns how many durations h has.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Quantile returns the bound of the bucket with the duration that a part q, 0 to 1, of all does not exceed, or 0 if
// there is none: the 99th percentile is Quantile(0.99). It is at most 1.5 times the duration, from 1 us on.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(h.Count())))
	var n uint64
	for i, c := range h.Counts {
		if n += c; n >= rank && n > 0 {
			return HistogramBound(i)
		}
	}
	return 0
}
