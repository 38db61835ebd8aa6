package rdma

import (
	"math"
	"testing"
	"time"
)

// TestHistogramBuckets checks that a duration is counted in the first bucket whose bound is above it.
func TestHistogramBuckets(t *testing.T) {
	for i := range HistogramBuckets - 1 {
		bound := HistogramBound(i)
		if i > 0 && (bound <= HistogramBound(i-1) || 2*bound > 3*HistogramBound(i-1)) {
			t.Errorf("bound %d is %v, after %v", i, bound, HistogramBound(i-1))
		}
		if below, at := bucketOf(bound-1), bucketOf(bound); below != i || at != i+1 {
			t.Errorf("%v and %v are in buckets %d and %d, want %d and %d", bound-1, bound, below, at, i, i+1)
		}
	}
	if HistogramBound(HistogramBuckets-1) != math.MaxInt64 || HistogramBound(HistogramBuckets) != math.MaxInt64 {
		t.Error("the last bucket has a bound")
	}
	const last = HistogramBuckets - 1
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, time.Hour: last, math.MaxInt64: last} {
		if b := bucketOf(d); b != want {
			t.Errorf("%v is in bucket %d, want %d", d, b, want)
		}
	}
}

func TestHistogramQuantile(t *testing.T) {
	var h Histogram
	if q := h.Quantile(0.5); q != 0 {
		t.Errorf("the median of nothing is %v", q)
	}
	for range 99 {
		h.add(5 * time.Microsecond)
	}
	h.add(100 * time.Microsecond)
	for q, want := range map[float64]time.Duration{-1: 6 * time.Microsecond, 0: 6 * time.Microsecond,
		0.5: 6 * time.Microsecond, 0.99: 6 * time.Microsecond, 0.991: 128 * time.Microsecond, 1: 128 * time.Microsecond,
		2: 128 * time.Microsecond} {
		if got := h.Quantile(q); got != want {
			t.Errorf("Quantile(%v) is %v, want %v", q, got, want)
		}
	}
	if h.Count() != 100 || h.Sum != 595*time.Microsecond {
		t.Errorf("%d durations, %v in all", h.Count(), h.Sum)
	}
}
