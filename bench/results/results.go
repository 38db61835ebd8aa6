// Package results holds the figures of a comparison of programs, their statistics,
// and the page that shows them. testbed/bench measures; bench/report writes the
// page and draws the charts.
package results

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// The programs that are compared, by how they call the device.
const (
	Go  = "Go"
	C   = "C"
	Cgo = "cgo"
	TCP = "TCP" // the C program on sockets; of MessagesTest, Go's package net
	CM  = "cm"  // package cm, where Go is package rdma

	Fabric    = "libfabric"     // with connected endpoints (FI_EP_MSG), where Go is package rdma
	FabricRDM = "libfabric RDM" // with endpoints of ofi_rxm (FI_EP_RDM)
)

// A Run holds all figures, of one run of the programs or of several.
type Run struct {
	C      string // the compiler of the C programs that are not from a package
	Places []Place
	Series []Series

	Distributions []Distribution
	Benchmarks    []Benchmark
	Failures      []Failure
}

// A Place describes where and when programs ran, and their versions.
type Place struct {
	Name, Description string
	Date, Commit      string // the commit of the Go programs
	Machine           string
	CPUs              int
	Go, Library       string // versions; Library is rdma-core's and perftest's
}

// Native is the place of Go's own benchmarks.
const Native = "native"

// The places of rsockets, by time on one device and between two, and by instructions, and their test.
const (
	Rsocket             = "rsocket"
	RsocketTwo          = "rsocket-two"
	RsocketInstructions = "instructions-rsocket"
	RsocketTest         = "rstream"
)

// The places of package rdma, by time and by instructions, and their test.
const (
	Messages            = "messages"
	MessageInstructions = "instructions-messages"
	MessagesTest        = "messages"

	// OtherRequests is the test of requests of UD and XRC, and of those of RC that are not SEND, WRITE or READ.
	OtherRequests = "other requests"
)

// A Failure is a measurement that failed, and the reason.
type Failure struct{ Part, What, Why string }

// A Series is a figure of a test at one place, with the values of each program in
// each round.
type Series struct {
	Place, Test, Figure string
	At                  int // message size in bytes, or number of objects
	Unit                string
	More                bool // larger values are better
	Values              map[string][]float64
}

// A Distribution holds quantiles of a program's single times in all rounds: the
// i-th of n Quantiles is that of i/(n-1).
type Distribution struct {
	Place, Test, Who string
	At               int
	Unit             string
	Quantiles        []float64
}

// A Benchmark is the result of a Go benchmark without a device: a value for each
// unit.
type Benchmark struct {
	Name   string
	Values map[string]float64
}

// Add adds a program's value of one round.
func (r *Run) Add(key Series, who string, value float64) {
	for i := range r.Series {
		s := &r.Series[i]
		if s.Place == key.Place && s.Test == key.Test && s.Figure == key.Figure && s.At == key.At {
			s.Values[who] = append(s.Values[who], value)
			return
		}
	}
	key.Values = map[string][]float64{who: {value}}
	r.Series = append(r.Series, key)
}

// Measured returns the places for which there are figures.
func (r *Run) Measured() map[string]bool {
	measured := map[string]bool{}
	for _, s := range r.Series {
		measured[s.Place] = true
	}
	if len(r.Benchmarks) > 0 {
		measured[Native] = true
	}
	return measured
}

// Keep copies from an earlier run the places for which this run has no figures, or
// fewer figures because something failed or was interrupted.
func (r *Run) Keep(old *Run) {
	measured, failed := r.Measured(), map[string]bool{}
	for _, f := range r.Failures {
		failed[f.Part] = true
		if r.figures(f.Part) < old.figures(f.Part) {
			delete(measured, f.Part)
		}
	}
	r.Places = slices.DeleteFunc(r.Places, func(p Place) bool { return !measured[p.Name] })
	r.Series = slices.DeleteFunc(r.Series, func(s Series) bool { return !measured[s.Place] })
	r.Distributions = slices.DeleteFunc(r.Distributions, func(d Distribution) bool { return !measured[d.Place] })
	for _, p := range old.Places {
		if !measured[p.Name] {
			r.Places = append(r.Places, p)
		}
	}
	for _, s := range old.Series {
		if !measured[s.Place] {
			r.Series = append(r.Series, s)
		}
	}
	for _, d := range old.Distributions {
		if !measured[d.Place] {
			r.Distributions = append(r.Distributions, d)
		}
	}
	for _, f := range old.Failures {
		if !measured[f.Part] && !failed[f.Part] {
			r.Failures = append(r.Failures, f)
		}
	}
	if !measured[Native] {
		r.Benchmarks = old.Benchmarks
	}
	if r.C == "" {
		r.C = old.C
	}
}

// Of returns the series of a test at a place, in the order in which they were
// added. The figure "" matches any figure.
func (r *Run) Of(place, test, figure string) (all []Series) {
	for _, s := range r.Series {
		if s.Place == place && s.Test == test && (figure == "" || s.Figure == figure) {
			all = append(all, s)
		}
	}
	return all
}

// figures returns the number of values of a place.
func (r *Run) figures(place string) (n int) {
	if place == Native {
		n = len(r.Benchmarks)
	}
	for _, s := range r.Series {
		if s.Place != place {
			continue
		}
		for _, values := range s.Values {
			n += len(values)
		}
	}
	return n
}

// rounds returns the smallest and the largest number of rounds at a place.
func (r *Run) rounds(place string) (least, most int) {
	for _, s := range r.Series {
		if n := len(s.Values[Go]); s.Place == place && n > 0 {
			if least == 0 {
				least = n
			}
			least, most = min(least, n), max(most, n)
		}
	}
	return least, most
}

// Quantile returns a quantile, interpolated between the two nearest values, or NaN
// if there are no values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Quantiles returns n quantiles, from the smallest value to the largest.
func Quantiles(values []float64, n int) []float64 {
	sorted := slices.Sorted(slices.Values(values))
	all := make([]float64, n)
	for i := range all {
		all[i] = Quantile(sorted, float64(i)/float64(n-1))
	}
	return all
}

// A Ratio is one program's figure divided by another's in the same round, so that
// load that slows down a whole round does not change it.
type Ratio struct {
	Median, Low, High float64 // Low and High are the quartiles
	Rounds            int
}

// ErrOneSided is returned if a program has no figures, or not for each round.
var ErrOneSided = errors.New("results: no figures of one program, or not for each round")

// Ratio compares two programs. Both must have a figure for each round; otherwise
// it is unknown which figures belong to the same round.
func (s Series) Ratio(a, b string) (Ratio, error) {
	n := len(s.Values[a])
	if n == 0 || n != len(s.Values[b]) {
		return Ratio{}, fmt.Errorf("%w: %s, %s, %d", ErrOneSided, s.Place, s.Test, s.At)
	}
	all := make([]float64, n)
	for i := range all {
		all[i] = s.Values[a][i] / s.Values[b][i]
	}
	return Ratio{Quantile(all, 0.5), Quantile(all, 0.25), Quantile(all, 0.75), n}, nil
}

// Cost returns the cost of the first program divided by that of the second: the
// ratio of times, or the inverse ratio of rates. Below 1 the first is better.
func (s Series) Cost(r Ratio) float64 {
	if s.More {
		return 1 / r.Median
	}
	return r.Median
}

// AsGood reports whether the first program is as good as the second within the
// spread: whether the quartiles include 1 or are better. The tolerance of half a
// percent is invisible in two digits.
func (s Series) AsGood(r Ratio) bool {
	const tolerance = 0.005
	if s.More {
		return r.High+tolerance >= 1
	}
	return r.Low-tolerance <= 1
}
