package main

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/bench/results"
)

const (
	linesWidth  = 470.0
	linesHeight = 360.0
)

// drawLines draws a line for each program. Points have marks, with the spread of
// the rounds, unless a line has many points.
func drawLines(c results.Chart) []byte {
	p := newPicture(c, linesWidth, linesHeight)
	const unitLine, left = 22, 62
	top, bottom := plotTop+unitLine, linesHeight-belowAxis-6
	x := axis{log: c.LogX, start: left, end: linesWidth - margin - 14}
	y := axis{log: c.LogY, start: bottom, end: top}
	var entries []entry
	x.low, x.high = c.Lines[0].X[0], c.Lines[0].X[0]
	y.low, y.high = c.Lines[0].Y[0], c.Lines[0].Y[0]
	for _, l := range c.Lines {
		if !l.Tail {
			entries = append(entries, entry{classes[l.Name], l.Name})
		}
		for i := range l.X {
			x.low, x.high = min(x.low, l.X[i]), max(x.high, l.X[i])
			low, high := spread(l, i)
			y.low, y.high = min(y.low, low), max(y.high, high)
		}
	}
	y.widen()
	p.legend(entries...)
	p.text(margin, plotTop+6, "muted", c.Y)
	for _, t := range y.ticks() {
		p.line("grid", left, y.at(t.At), x.end, y.at(t.At))
		p.text(left-6, y.at(t.At)+lineSkip, "end muted", t.Label)
	}
	for _, t := range c.Ticks {
		p.line("grid", x.at(t.At), top, x.at(t.At), bottom)
		p.text(x.at(t.At), bottom+tickSpace, "middle muted", t.Label)
	}
	p.line("axis", left, bottom, x.end, bottom)
	p.text((left+x.end)/2, bottom+tickSpace+20, "middle", c.X)
	for _, l := range c.Lines {
		p.curve(classes[l.Name], l, x, y)
	}
	return p.end()
}

// curve draws a line with its marks.
func (p *picture) curve(class string, l results.Line, x, y axis) {
	var points strings.Builder
	for i := range l.X {
		fmt.Fprintf(&points, "%.1f,%.1f ", x.at(l.X[i]), y.at(l.Y[i]))
	}
	if l.Tail {
		class = "tail " + class
	}
	p.printf(`<polyline class="line %s" points="%s"/>`+"\n", class, strings.TrimSpace(points.String()))
	if len(l.Low) == 0 {
		return
	}
	for i := range l.X {
		low, high := spread(l, i)
		p.line("spread "+class, x.at(l.X[i]), y.at(low), x.at(l.X[i]), y.at(high))
		p.printf(`<circle class="%s" cx="%.1f" cy="%.1f" r="3"/>`+"\n", class, x.at(l.X[i]), y.at(l.Y[i]))
	}
}

// spread returns the quartiles of a point, or the point.
func spread(l results.Line, i int) (low, high float64) {
	if len(l.Low) == 0 {
		return l.Y[i], l.Y[i]
	}
	return l.Low[i], l.High[i]
}
