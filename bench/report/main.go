// Report writes the page and the charts for the figures that testbed/bench has
// measured, into the directory of the figures:
//
//	report ../../docs/go-and-c.json # writes ../../docs/go-and-c.md and ../../docs/charts
package main

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/goverbs/goverbs/bench/results"
)

const (
	width  = 14 * vg.Centimeter
	height = 9 * vg.Centimeter
)

// colors can be distinguished by people with red-green color blindness.
var colors = map[string]color.Color{
	results.Go:  color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
	results.C:   color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	results.Cgo: color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 || filepath.Ext(args[0]) != ".json" {
		return errors.New("usage: report FILE.json")
	}
	r, err := results.Read(args[0])
	if err != nil {
		return err
	}
	page, dir := strings.TrimSuffix(args[0], ".json")+".md", filepath.Join(filepath.Dir(args[0]), "charts")
	if err := os.WriteFile(page, []byte(r.Page()), 0o644); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, c := range r.Charts() {
		if err := drawChart(c, filepath.Join(dir, c.File)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.File, err))
		}
	}
	return errors.Join(errs...)
}

func drawChart(c results.Chart, file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Legend.Padding = vg.Millimeter
	// a distribution ends at the top right
	p.Legend.Top, p.Legend.Left = true, len(c.Lines) > 0 && len(c.Lines[0].X) > maxTicks
	p.BackgroundColor = color.White // for pages with a dark background
	p.Add(plotter.NewGrid())
	add := lines
	if len(c.Groups) > 0 {
		add = bars
	}
	if err := add(p, c); err != nil {
		return err
	}
	return p.Save(width, height, file)
}

// points adapts a line to package plotter. The quartiles are the error bars.
type points struct{ results.Line }

func (p points) Len() int                         { return len(p.X) }
func (p points) XY(i int) (x, y float64)          { return p.X[i], p.Y[i] }
func (p points) YError(i int) (low, high float64) { return p.Y[i] - p.Low[i], p.High[i] - p.Y[i] }

func lines(p *plot.Plot, c results.Chart) error {
	for _, l := range c.Lines {
		line, err := plotter.NewLine(points{l})
		if err != nil {
			return err
		}
		line.Color, line.Width = colors[l.Name], vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(l.Name, line)
		if len(l.Low) == 0 {
			continue
		}
		spread, err := plotter.NewYErrorBars(points{l})
		if err != nil {
			return err
		}
		spread.Color = colors[l.Name]
		dots, err := plotter.NewScatter(points{l})
		if err != nil {
			return err
		}
		dots.Color, dots.Shape, dots.Radius = colors[l.Name], draw.CircleGlyph{}, vg.Points(2.5)
		p.Add(spread, dots)
	}
	if c.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, at(c)
	}
	if c.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	} else {
		p.Y.Min = 0
	}
	return nil
}

// maxTicks is the largest number of points that have a tick each.
const maxTicks = 12

// at returns a ticker with a tick at each point, unless there are too many points.
func at(c results.Chart) plot.Ticker {
	x := c.Lines[0].X
	if len(x) > maxTicks {
		return decades{}
	}
	var ticks plot.ConstantTicks
	for _, v := range x {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return ticks
}

// decades has ticks at 1, 2 and 5 times the powers of ten.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for power := math.Pow10(int(math.Floor(math.Log10(low)))); power <= high; power *= 10 {
		for _, v := range []float64{power, 2 * power, 5 * power} {
			if v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 3, 64)})
			}
		}
	}
	return ticks
}

func bars(p *plot.Plot, c results.Chart) error {
	const each = 8 // points
	for i, b := range c.Bars {
		chart, err := plotter.NewBarChart(plotter.Values(b.Values), vg.Points(each))
		if err != nil {
			return err
		}
		chart.Color, chart.LineStyle.Width = colors[b.Name], 0
		chart.Offset = vg.Points(each * (float64(i) - float64(len(c.Bars)-1)/2))
		p.Add(chart)
		p.Legend.Add(b.Name, chart)
	}
	p.NominalX(c.Groups...)
	p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = 0.6, draw.XRight, draw.YCenter
	p.Y.Min = 0
	return nil
}
