package main

import (
	"math"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/bench/results"
)

// An axis maps values to positions.
type axis struct {
	low, high  float64 // values
	start, end float64 // positions
	log        bool
}

func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return a.start + (a.end-a.start)*(v-low)/(high-low)
}

// widen extends an axis to labelled values.
func (a *axis) widen() {
	if !a.log {
		step := stepOf(a.high)
		a.low, a.high = 0, math.Ceil(a.high/step)*step
		return
	}
	wide := axis{low: math.Pow10(int(math.Floor(math.Log10(a.low)))), high: 10 * a.high, log: true}
	for _, t := range wide.ticks() {
		if t.At <= a.low {
			wide.low = t.At
		}
		if t.At >= a.high {
			wide.high = t.At
			break
		}
	}
	a.low, a.high = wide.low, wide.high
}

// ticks returns the labelled values of an axis: on a logarithmic axis 1, 2 and 5
// times the powers of ten, otherwise multiples of such a value.
func (a axis) ticks() (all []results.Tick) {
	const rounding = 1e-9
	if a.log {
		for power := math.Pow10(int(math.Floor(math.Log10(a.low)))); power <= a.high; power *= 10 {
			for _, v := range []float64{power, 2 * power, 5 * power} {
				if v >= a.low*(1-rounding) && v <= a.high*(1+rounding) {
					all = append(all, results.Tick{At: v, Label: number(v)})
				}
			}
		}
		return all
	}
	step := stepOf(a.high - a.low)
	for i := 0; float64(i)*step <= a.high*(1+rounding); i++ {
		all = append(all, results.Tick{At: float64(i) * step, Label: number(float64(i) * step)})
	}
	return all
}

// stepOf returns the distance of four to eight ticks.
func stepOf(length float64) float64 {
	const most = 8
	power := math.Pow10(int(math.Floor(math.Log10(length / most))))
	for _, f := range []float64{1, 2, 5} {
		if length/(f*power) <= most {
			return f * power
		}
	}
	return 10 * power
}

// number formats a value with commas between thousands.
func number(v float64) string {
	digits := -1
	if v >= 100 {
		digits = 0
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	whole, fraction, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		return whole + "." + fraction
	}
	return whole
}
