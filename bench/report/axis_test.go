package main

import (
	"strconv"
	"strings"
	"testing"
)

func parse(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

func TestAxis(t *testing.T) {
	for _, c := range []struct {
		axis      axis
		low, high float64
		ticks     string
	}{
		{axis{low: 0.9, high: 60, log: true}, 0.5, 100, "0.5 1 2 5 10 20 50 100"},
		{axis{low: 35, high: 80, log: true}, 20, 100, "20 50 100"},
		{axis{low: 20, high: 2600, log: true}, 20, 5000, "20 50 100 200 500 1,000 2,000 5,000"},
		{axis{high: 281.5}, 0, 300, "0 50 100 150 200 250 300"},
		{axis{high: 80123}, 0, 100000, "0 20,000 40,000 60,000 80,000 100,000"},
	} {
		a := c.axis
		a.widen()
		var labels []string
		for _, tick := range a.ticks() {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != c.ticks || a.low != c.low || a.high != c.high {
			t.Errorf("%+v: from %v to %v: %s, want %s", c.axis, a.low, a.high, got, c.ticks)
		}
	}
	if at := (axis{low: 1, high: 100, start: 10, end: 30, log: true}).at(10); at != 20 {
		t.Errorf("10 between 1 and 100 is at %v", at)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 99: "99", 281.5: "282", 1000: "1,000",
		1234567: "1,234,567"} {
		if got := number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

// TestWrap checks that lines of a subtitle are as long as fits, and no longer.
func TestWrap(t *testing.T) {
	const text = "one WRITE, data inline; in C, threads; measured on a software ConnectX; median and quartiles of 5 rounds"
	for _, width := range []float64{60, 200, linesWidth - 2*margin, barsWidth} {
		lines := wrap(text, width)
		if got := strings.Join(lines, " "); got != text {
			t.Errorf("%g: %q", width, lines)
		}
		for i, l := range lines {
			if textWidth(l) > width && strings.Contains(l, " ") {
				t.Errorf("%g: %q is longer", width, l)
			}
			if next, _, _ := strings.Cut(strings.Join(lines[i+1:], " "), " "); next != "" && textWidth(l+" "+next) <= width {
				t.Errorf("%g: %q has room for %q", width, l, next)
			}
		}
	}
	if got := wrap("", 100); len(got) != 1 {
		t.Errorf("no subtitle: %q", got)
	}
}
