package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/goverbs/goverbs/bench/results"
)

const (
	barWidth  = 12.0
	barsWidth = 860.0
	between   = 9.0 // between rows
	belowAxis = 46.0
)

// drawBars draws a row for each name, with one bar for each program.
func drawBars(c results.Chart) []byte {
	row := barWidth*float64(len(c.Bars)) + between
	bottom := plotTop + row*float64(len(c.Rows))
	p := newPicture(c, barsWidth, bottom+belowAxis)
	const room = 56 // for the value at the end of a bar
	a := axis{high: highest(c), start: margin + widest(c.Rows) + 8, end: barsWidth - margin - room}
	p.grid(a, a.ticks(), c.X, bottom)
	var entries []entry
	for _, b := range c.Bars {
		entries = append(entries, entry{classes[b.Name], b.Label})
	}
	p.legend(entries...)
	for i, name := range c.Rows {
		y := plotTop + row*float64(i) + between/2
		p.text(a.start-8, y+(row-between)/2+lineSkip, "end", name)
		for j, b := range c.Bars {
			if v := b.Values[i]; !math.IsNaN(v) {
				top := y + barWidth*float64(j)
				p.rect(classes[b.Name], a.start, top, a.at(v)-a.start, barWidth-1)
				p.text(a.at(v)+4, top+barWidth/2+lineSkip-0.5, "muted", valueLabel(v))
			}
		}
	}
	p.line("axis", a.start, plotTop, a.start, bottom)
	return p.end()
}

// drawCosts draws a row for each name. Its bar begins at 1: to the left Go costs
// less, to the right C does.
func drawCosts(c results.Chart) []byte {
	const row = barWidth + between
	bottom := plotTop + row*float64(len(c.Rows))
	p := newPicture(c, barsWidth, bottom+belowAxis)
	p.legend(entry{"a", "Go costs less"}, entry{"b", "C costs less"})
	const room = 40
	a := axis{low: 0.5, high: 2, start: margin + widest(c.Rows) + room, end: barsWidth - margin - room, log: true}
	for _, v := range c.Bars[0].Values {
		a.low, a.high = min(a.low, v), max(a.high, v)
	}
	p.grid(a, a.ticks(), c.X, bottom)
	for i, name := range c.Rows {
		v, y := c.Bars[0].Values[i], plotTop+row*float64(i)+between/2
		base := y + barWidth/2 + lineSkip
		p.text(margin+widest(c.Rows), base, "end", name)
		label := strconv.FormatFloat(v, 'f', 2, 64)
		if v < 1 {
			p.rect("a", a.at(v), y, a.at(1)-a.at(v), barWidth)
			p.text(a.at(v)-4, base, "end muted", label)
		} else {
			p.rect("b", a.at(1), y, a.at(v)-a.at(1), barWidth)
			p.text(a.at(v)+4, base, "muted", label)
		}
	}
	p.line("axis", a.at(1), plotTop, a.at(1), bottom)
	return p.end()
}

// grid draws the vertical lines of an axis below all rows, their labels, and what
// the axis shows.
func (p *picture) grid(a axis, ticks []results.Tick, name string, bottom float64) {
	for _, t := range ticks {
		p.line("grid", a.at(t.At), plotTop, a.at(t.At), bottom)
		p.text(a.at(t.At), bottom+tickSpace-4, "middle muted", t.Label)
	}
	p.text((a.start+a.end)/2, bottom+tickSpace+15, "middle", name)
}

// highest returns the largest value of all bars.
func highest(c results.Chart) float64 {
	high := 0.0
	for _, b := range c.Bars {
		for _, v := range b.Values {
			if !math.IsNaN(v) {
				high = max(high, v)
			}
		}
	}
	return high
}

func widest(names []string) float64 {
	width := 0.0
	for _, name := range names {
		width = max(width, textWidth(name))
	}
	return width
}

func valueLabel(v float64) string {
	if v >= 100 {
		return number(v)
	}
	return fmt.Sprintf("%.1f", v)
}
