package results

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values []float64
		q, v   float64
	}{
		{[]float64{3}, 0.9, 3}, {[]float64{4, 1, 3, 2}, 0, 1}, {[]float64{4, 1, 3, 2}, 1, 4},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5}, {[]float64{5, 1, 3}, 0.25, 2},
	} {
		if v := Quantile(c.values, c.q); v != c.v {
			t.Errorf("quantile %v of %v: %v, want %v", c.q, c.values, v, c.v)
		}
	}
	if v := Quantile(nil, 0.5); !math.IsNaN(v) {
		t.Errorf("of nothing: %v", v)
	}
	if d := cmp.Diff([]float64{1, 2, 3}, Quantiles([]float64{3, 1, 2}, 3)); d != "" {
		t.Error(d)
	}
}

// A round that is slow for both programs does not change the ratio, and a
// difference within the spread is ignored.
func TestRatio(t *testing.T) {
	for _, c := range []struct {
		more   bool
		a, b   []float64
		want   Ratio
		asGood bool
	}{
		{false, []float64{1, 20, 3}, []float64{2, 40, 6}, Ratio{0.5, 0.5, 0.5, 3}, true},
		{false, []float64{2, 40, 6}, []float64{1, 20, 3}, Ratio{2, 2, 2, 3}, false},
		{true, []float64{2, 40, 6}, []float64{1, 20, 3}, Ratio{2, 2, 2, 3}, true},
		{true, []float64{1, 1}, []float64{2, 2}, Ratio{0.5, 0.5, 0.5, 2}, false},
		{false, []float64{0.8, 1, 1.2, 1.4, 1.6}, []float64{1, 1, 1, 1, 1}, Ratio{1.2, 1, 1.4, 5}, true},
		{false, []float64{1.004}, []float64{1}, Ratio{1.004, 1.004, 1.004, 1}, true},
		{false, []float64{1.006}, []float64{1}, Ratio{1.006, 1.006, 1.006, 1}, false},
		{true, []float64{0.996}, []float64{1}, Ratio{0.996, 0.996, 0.996, 1}, true},
		{true, []float64{0.994}, []float64{1}, Ratio{0.994, 0.994, 0.994, 1}, false},
	} {
		s := Series{More: c.more, Values: map[string][]float64{Go: c.a, C: c.b}}
		r, err := s.Ratio(Go, C)
		if err != nil || r != c.want || s.AsGood(r) != c.asGood {
			t.Errorf("%v of %v: %v, %v, %v", c.a, c.b, r, s.AsGood(r), err)
		}
		if _, err := s.Ratio(Go, Cgo); !errors.Is(err, ErrOneSided) {
			t.Errorf("without the other: %v", err)
		}
		s.Values[C] = s.Values[C][1:]
		if _, err := s.Ratio(Go, C); !errors.Is(err, ErrOneSided) {
			t.Errorf("of other rounds: %v", err)
		}
	}
}

// A run of one place replaces the figures of that place.
func TestKeep(t *testing.T) {
	old, part := sample(), &Run{Places: []Place{{Name: "rxe", Commit: "new"}}}
	part.Add(Series{Place: "rxe", Test: "send_lat", Figure: "typical", At: 2}, Go, 1)
	part.Keep(old)
	if len(part.Places) != 3 || part.Places[0].Commit != "new" || part.Places[1].Name != "instructions" {
		t.Errorf("places %v", part.Places)
	}
	if len(part.Of("rxe", "send_bw", "")) != 0 || len(part.Of("rxe", "send_lat", "")) != 1 ||
		len(part.Of("instructions", "requests", "")) != 2 {
		t.Errorf("series %v", part.Series)
	}
	if len(part.Distributions) != 0 || len(part.Benchmarks) != 1 || part.C != old.C {
		t.Errorf("%v", part)
	}
}

// A run without figures of a place keeps the old ones.
func TestKeepOfNothing(t *testing.T) {
	old, failed :=
		sample(), &Run{Places: []Place{{Name: "instructions", Commit: "new"}, {Name: "native"}},
			Failures: []Failure{{"instructions", "", "no guest"}}}
	failed.Keep(old)
	failed.Keep(old)
	want := sample()
	want.Failures = []Failure{{"instructions", "", "no guest"}}
	if d := cmp.Diff(want, failed); d != "" {
		t.Error(d)
	}
}

// A place that failed in its first rounds keeps its old figures.
func TestKeepMoreRounds(t *testing.T) {
	key := Series{Place: "rxe", Test: "send_lat", Figure: "typical", At: 2}
	run := func(rounds int, commit string) *Run {
		r := &Run{Places: []Place{{Name: "rxe", Commit: commit}}}
		for range rounds {
			r.Add(key, Go, 1)
			r.Add(key, C, 1)
		}
		return r
	}
	for _, c := range []struct {
		failed bool
		want   string
	}{{true, "old"}, {false, "new"}} {
		r := run(2, "new")
		if c.failed {
			r.Failures = []Failure{{"rxe", "send_lat, 2, round 3", "interrupted"}}
		}
		r.Keep(run(10, "old"))
		if len(r.Places) != 1 || r.Places[0].Commit != c.want || len(r.Series) != 1 {
			t.Errorf("failed %v: %v, %v", c.failed, r.Places, r.Series)
		}
	}
}

// A place that failed in its only round keeps its old figures.
func TestKeepMoreFigures(t *testing.T) {
	requests := func(commit string, qps ...int) *Run {
		r := &Run{Places: []Place{{Name: "instructions", Commit: commit}, {Name: Native, Commit: commit}}}
		for _, at := range qps {
			r.Add(Series{Place: "instructions", Test: "requests", Figure: "write", At: at}, Go, 1)
			r.Benchmarks = append(r.Benchmarks, Benchmark{Name: commit})
		}
		return r
	}
	r := requests("new", 1)
	r.Failures = []Failure{{"instructions", "requests of 100 queue pairs", "interrupted"}, {Native, "mmio", "interrupted"}}
	r.Keep(requests("old", 1, 100, 10000))
	if len(r.Series) != 3 || len(r.Places) != 2 || r.Places[0].Commit != "old" || r.Places[1].Commit != "old" ||
		len(r.Benchmarks) != 3 {
		t.Errorf("%v, %v, %v", r.Places, r.Series, r.Benchmarks)
	}
}

// A ratio that is printed as 1.00 is as good, from one round or from many.
func TestHolds(t *testing.T) {
	for _, c := range []struct {
		more bool
		r    Ratio
		want bool
	}{
		{false, Ratio{Rounds: 1, Median: 1.004, Low: 1.004, High: 1.004}, true},
		{false, Ratio{Rounds: 10, Median: 1.02, Low: 1.004, High: 1.04}, true},
		{false, Ratio{Rounds: 10, Median: 1.02, Low: 1.006, High: 1.04}, false},
		{true, Ratio{Rounds: 10, Median: 0.98, Low: 0.9, High: 0.996}, true},
		{true, Ratio{Rounds: 10, Median: 0.98, Low: 0.9, High: 0.994}, false},
	} {
		if got := (Series{More: c.more}).AsGood(c.r); got != c.want {
			t.Errorf("more %v, %+v: %v", c.more, c.r, got)
		}
	}
}

// Allocations that were not counted are not printed as 0.
func TestUncounted(t *testing.T) {
	r := &Run{Benchmarks: []Benchmark{{"mmio Store64", map[string]float64{"ns/op": 2.4}}}}
	if strings.Contains(both(r), "allocs/op") {
		t.Error("the page shows allocations that were not counted")
	}
}

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	r := &Run{C: "gcc", Places: []Place{{Name: "rxe", CPUs: 2}}}
	key := Series{Place: "rxe", Test: "send_lat", Figure: "typical", At: 2, Unit: "us"}
	r.Add(key, Go, 1)
	r.Add(key, C, 2)
	r.Add(key, Go, 3)
	r.Add(Series{Place: "rxe", Test: "send_lat", Figure: "99 %", At: 2, Unit: "us"}, Go, 9)
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	got, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, got); d != "" {
		t.Error(d)
	}
	of := got.Of("rxe", "send_lat", "typical")
	if len(of) != 1 || len(of[0].Values[Go]) != 2 || len(got.Of("rxe", "send_lat", "")) != 2 ||
		len(got.Of("mlx5", "send_lat", "")) != 0 {
		t.Errorf("%v", of)
	}
	if _, err := Read(file + "x"); err == nil {
		t.Error("no error for a missing file")
	}
}
