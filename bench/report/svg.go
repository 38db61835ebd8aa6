package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goverbs/goverbs/bench/results"
)

// style has the colors of light and of dark pages. The first two colors can be
// distinguished by people with red-green color blindness.
const style = `<style>
text { font: 12px "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.muted { fill: #59636e }
.end { text-anchor: end }
.middle { text-anchor: middle }
.page { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d8dee4 }
.axis { stroke: #59636e }
.line { fill: none; stroke-width: 2 }
.tail { stroke-width: 1.2; stroke-dasharray: 5 4 }
.a { fill: #0072b2 } .line.a, .spread.a { stroke: #0072b2 }
.b { fill: #d55e00 } .line.b, .spread.b { stroke: #d55e00 }
.c { fill: #8c959f } .line.c, .spread.c { stroke: #8c959f }
.d { fill: #7fb8d8 } .spread.d { stroke: #7fb8d8 }
.e { fill: #009e73 } .spread.e { stroke: #009e73 }
.f { fill: #cc79a7 } .spread.f { stroke: #cc79a7 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.muted { fill: #9198a1 }
.page { fill: #0d1117; stroke: #3d444d }
.grid { stroke: #2a313c }
.axis { stroke: #9198a1 }
.a { fill: #4ba3e3 } .line.a, .spread.a { stroke: #4ba3e3 }
.b { fill: #f0883e } .line.b, .spread.b { stroke: #f0883e }
.c { fill: #7d8590 } .line.c, .spread.c { stroke: #7d8590 }
.d { fill: #1f6497 } .spread.d { stroke: #1f6497 }
.e { fill: #2fbf95 } .spread.e { stroke: #2fbf95 }
.f { fill: #d99abf } .spread.f { stroke: #d99abf }
}
.line { fill: none }
</style>
`

// classes are the colors of programs.
var classes = map[string]string{results.Go: "a", results.C: "b", results.Cgo: "c", results.TCP: "e", results.CM: "d",
	results.Fabric: "f"}

// measures of all charts
const (
	margin     = 16.0
	letter     = 6.4 // width of a character, on average
	lineHeight = 16.0
	subtitleAt = 45.0
	legendAt   = 66.0
	plotTop    = 84.0 // below the legend
	lineSkip   = 4.0  // from the middle of a line of text down to its base
	tickSpace  = 20.0 // from an axis down to the base of its labels
)

// A picture is an SVG that is being drawn.
type picture struct {
	b             bytes.Buffer
	width, height float64
}

// newPicture begins a picture with a background, the title and the subtitle. If the subtitle needs several lines, the
// picture is higher, and what follows is further down.
func newPicture(c results.Chart, width, height float64) *picture {
	lines := wrap(c.Subtitle, width-2*margin)
	down := lineHeight * float64(len(lines)-1)
	height += down
	p := &picture{width: width, height: height}
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]g %[2]g" width="%[1]g" height="%[2]g"`,
		width, height)
	p.printf(" role=\"img\">\n")
	p.printf("<title>%s</title>\n%s", escape(c.Title), style)
	p.printf(`<rect class="page" x="0.5" y="0.5" width="%g" height="%g" rx="6"/>`+"\n", width-1, height-1)
	p.text(margin, 26, "title", c.Title)
	for i, line := range lines {
		p.text(margin, subtitleAt+lineHeight*float64(i), "muted", line)
	}
	p.printf(`<g transform="translate(0 %g)">`+"\n", down)
	return p
}

// wrap breaks a text into lines of at most width.
func wrap(text string, width float64) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case textWidth(*last+" "+word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

func (p *picture) end() []byte {
	p.printf("</g>\n</svg>\n")
	return p.b.Bytes()
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

func (p *picture) text(x, y float64, class, text string) {
	p.printf(`<text x="%.1f" y="%.1f" class="%s">%s</text>`+"\n", x, y, class, escape(text))
}

func (p *picture) line(class string, x0, y0, x1, y1 float64) {
	p.printf(`<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x0, y0, x1, y1)
}

func (p *picture) rect(class string, x, y, width, height float64) {
	p.printf(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", class, x, y, width, height)
}

// An entry of a legend is a color and its meaning.
type entry struct{ class, name string }

// legend draws the entries between the subtitle and the plot.
func (p *picture) legend(entries ...entry) {
	const box, gap, between = 11, 5, 18
	x := margin
	for _, e := range entries {
		p.rect(e.class, x, legendAt-box+1, box, box)
		p.text(x+box+gap, legendAt, "", e.name)
		x += box + gap + textWidth(e.name) + between
	}
}

// textWidth returns the width that a text has at most, in all but unusual fonts.
func textWidth(s string) float64 { return letter * float64(utf8.RuneCountInString(s)) }

func escape(s string) string {
	var b bytes.Buffer
	if err := xml.EscapeText(&b, []byte(s)); err != nil { // the buffer's, which has none
		panic(err)
	}
	return b.String()
}
