package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

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
	low, high, label := extent(c)
	a := axis{low: low, high: high, start: margin + widest(c.Rows) + 8, end: barsWidth - margin - label - 4, log: c.LogX}
	if c.LogX {
		a.widen()
		a.high = high
	}
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
			if !math.IsNaN(b.Values[i]) {
				p.bar(a, b, i, y+barWidth*float64(j))
			}
		}
	}
	p.line("axis", a.start, plotTop, a.start, bottom)
	return p.end()
}

// bar draws the bar of a row with its tail and its label.
func (p *picture) bar(a axis, b results.Bars, row int, top float64) {
	v := b.Values[row]
	p.rect(classes[b.Name], a.start, top, a.at(v)-a.start, barWidth-1)
	end := v
	if tail, ok := tailOf(b, row); ok {
		p.whisker(classes[b.Name], a, v, tail, top+barWidth/2-0.5)
		end = max(v, tail)
	}
	p.text(a.at(end)+4, top+barWidth/2+lineSkip-0.5, "muted", barLabel(b, row))
}

// whisker draws a line from the end of a bar, with a mark at its end.
func (p *picture) whisker(class string, a axis, from, to, y float64) {
	p.line("spread "+class, a.at(from), y, a.at(to), y)
	p.line("spread "+class, a.at(to), y-barWidth/4, a.at(to), y+barWidth/4)
}

// tailOf returns the tail of a bar, if it has one.
func tailOf(b results.Bars, row int) (v float64, ok bool) {
	if len(b.Tails) == 0 || math.IsNaN(b.Tails[row]) {
		return 0, false
	}
	return b.Tails[row], true
}

// drawCosts draws a row for each name. Its bar begins at 1: to the left Go costs
// less, to the right C does.
func drawCosts(c results.Chart) []byte {
	const row = barWidth + between
	bottom := plotTop + row*float64(len(c.Rows))
	p := newPicture(c, barsWidth, bottom+belowAxis)
	p.legend(entry{"a", "Go costs less"}, entry{"b", "C costs less"})
	const room, wide = 40, 130 // for the labels at the left and at the right
	a := axis{low: 0.5, high: 2, start: margin + widest(c.Rows) + room, end: barsWidth - margin - wide, log: true}
	for i, v := range c.Bars[0].Values {
		a.low, a.high = min(a.low, v), max(a.high, v, c.Bars[0].Tails[i])
	}
	p.grid(a, a.ticks(), c.X, bottom)
	for i, name := range c.Rows {
		v, y := c.Bars[0].Values[i], plotTop+row*float64(i)+between/2
		base := y + barWidth/2 + lineSkip
		p.text(margin+widest(c.Rows), base, "end", name)
		label := costLabel(v)
		if v < 1 {
			p.rect("a", a.at(v), y, a.at(1)-a.at(v), barWidth)
			p.text(a.at(v)-4, base, "end muted", label)
			label = ""
		} else {
			p.rect("b", a.at(1), y, a.at(v)-a.at(1), barWidth)
		}
		end := max(v, 1)
		if highest := c.Bars[0].Tails[i]; highest > end && costLabel(highest) != costLabel(end) {
			p.whisker("b", a, end, highest, y+barWidth/2)
			end, label = highest, strings.TrimPrefix(label+", highest "+costLabel(highest), ", ")
		}
		p.text(a.at(end)+4, base, "muted", label)
	}
	p.line("axis", a.at(1), plotTop, a.at(1), bottom)
	return p.end()
}

func costLabel(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// grid draws the vertical lines of an axis below all rows, their labels as far as there is room for them, and what the
// axis shows.
func (p *picture) grid(a axis, ticks []results.Tick, name string, bottom float64) {
	end := 0.0 // of the last label
	for _, t := range ticks {
		at, half := a.at(t.At), textWidth(t.Label)/2
		p.line("grid", at, plotTop, at, bottom)
		if at-half > end+letter {
			p.text(at, bottom+tickSpace-4, "middle muted", t.Label)
			end = at + half
		}
	}
	p.text((a.start+a.end)/2, bottom+tickSpace+15, "middle", name)
}

// extent returns the least and the largest value of the axis of all bars, and the width of the longest label. The least
// is 0 if the axis is linear.
func extent(c results.Chart) (low, high, label float64) {
	low = math.Inf(1)
	for _, b := range c.Bars {
		for i, v := range b.Values {
			if math.IsNaN(v) {
				continue
			}
			tail, _ := tailOf(b, i)
			low, high = min(low, v), max(high, v, tail)
			label = max(label, textWidth(barLabel(b, i)))
		}
	}
	if !c.LogX {
		low = 0
	}
	return low, high, label
}

func widest(names []string) float64 {
	width := 0.0
	for _, name := range names {
		width = max(width, textWidth(name))
	}
	return width
}

// barLabel returns the text at the end of a bar.
func barLabel(b results.Bars, row int) string {
	text := valueLabel(b.Values[row])
	if v, ok := tailOf(b, row); ok {
		text += ", p99 " + valueLabel(v)
	}
	return text
}

func valueLabel(v float64) string {
	if v >= 100 {
		return number(v)
	}
	return fmt.Sprintf("%.1f", v)
}
